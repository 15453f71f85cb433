"""The Gemini generateContent protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping

from holdfast.rehearsal.stub.messages import (
    Conversation,
    Json,
    ProviderError,
    ProviderFailure,
    TextReply,
    Tool,
    ToolCallReply,
    dicts,
    strings_of,
    texts_of,
)

name = "gemini"
_RPC = "type.googleapis.com/google.rpc."
_USAGE = {
    "promptTokenCount": 100,
    "candidatesTokenCount": 42,
    "totalTokenCount": 142,
    "cachedContentTokenCount": 30,
}


def read(body: Json, *, stream: bool | None) -> Conversation:
    contents = dicts(body.get("contents"))
    parts = [(one.get("role", "user"), part) for one in contents for part in dicts(one.get("parts"))]
    declared = [one for tool in dicts(body.get("tools")) for one in dicts(tool.get("functionDeclarations"))]
    return Conversation(
        stream=bool(stream),
        tools=tuple(
            Tool(name=str(one.get("name")), schema=one.get("parametersJsonSchema") or one.get("parameters") or {})
            for one in declared
        ),
        system="\n".join(texts_of(body.get("systemInstruction"))),
        prompts=tuple(text for role, part in parts if role == "user" for text in texts_of(part)),
        calls=tuple(strings_of(part["functionCall"].get("args")) for _, part in parts if "functionCall" in part),
        results=sum("functionResponse" in part for _, part in parts),
    )


def whole(reply: TextReply | ToolCallReply, conversation: Conversation) -> Json:
    return _chunk(_part(reply)) | {
        "candidates": [{"content": {"role": "model", "parts": [_part(reply)]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": _USAGE,
    }


def frames(reply: TextReply | ToolCallReply, conversation: Conversation) -> list[bytes]:
    if isinstance(reply, ToolCallReply):
        return [_frame(whole(reply, conversation))]
    half = len(reply.text) // 2
    last = whole(TextReply(reply.text[half:]), conversation)
    return [_frame(_chunk({"text": reply.text[:half]})), _frame(last)]


def error_frame() -> bytes:
    return _frame(_error(503, "UNAVAILABLE", "The model is overloaded. Please try again later."))


def problem(failure: ProviderFailure, conversation: Conversation, now: int) -> ProviderError:
    quota = "You exceeded your current quota, please check your plan and billing details."
    limited = f"{quota} Please retry in {failure.seconds}s."
    retry: Json = {"@type": f"{_RPC}RetryInfo", "retryDelay": f"{failure.seconds}s"}
    bad_key: Json = {"@type": f"{_RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    no_billing: Json = {"@type": f"{_RPC}ErrorInfo", "reason": "BILLING_DISABLED", "domain": "googleapis.com"}
    overloaded = "The model is overloaded. Please try again later."
    table: dict[str, tuple[int, str, str, list[Json]]] = {
        "401": (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", [bad_key]),
        "429": (429, "RESOURCE_EXHAUSTED", limited, [_quota("PerMinute"), retry]),
        "usage-limit": (429, "RESOURCE_EXHAUSTED", quota, [_quota("PerDay")]),
        "credit": (
            403,
            "PERMISSION_DENIED",
            "This API method requires billing to be enabled. Please enable billing on project #1 then retry.",
            [no_billing],
        ),
        "500": (500, "INTERNAL", "An internal error has occurred. Please retry.", []),
        "503": (503, "UNAVAILABLE", overloaded, []),
        "529": (529, "UNAVAILABLE", overloaded, []),
        "context-too-long": (
            400,
            "INVALID_ARGUMENT",
            "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
            [],
        ),
    }
    status, name_, message, details = table[failure.kind]
    return ProviderError(status=status, body=_error(status, name_, message, details))


def headers(*, warning: bool, now: int) -> Mapping[str, str]:
    return {}


def _quota(period: str) -> Json:
    violation = {
        "quotaMetric": "generativelanguage.googleapis.com/generate_content_free_tier_requests",
        "quotaId": f"GenerateRequests{period}PerProjectPerModel-FreeTier",
        "quotaDimensions": {"location": "global", "model": "gemini-stub"},
        "quotaValue": "250",
    }
    return {"@type": f"{_RPC}QuotaFailure", "violations": [violation]}


def _error(code: int, status: str, message: str, details: list[Json] | None = None) -> Json:
    return {"error": {"code": code, "message": message, "status": status, "details": details or []}}


def _part(reply: TextReply | ToolCallReply) -> Json:
    if isinstance(reply, TextReply):
        return {"text": reply.text}
    return {"functionCall": {"name": reply.tool.name, "args": reply.arguments}}


def _chunk(part: Json) -> Json:
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}],
        "modelVersion": "gemini-stub",
        "responseId": "stub",
    }


def _frame(chunk: Json) -> bytes:
    return f"data: {json.dumps(chunk)}\r\n\r\n".encode()
