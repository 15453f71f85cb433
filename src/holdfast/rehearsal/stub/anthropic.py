"""The Anthropic Messages protocol."""

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

name = "anthropic"
_UNIFIED = "anthropic-ratelimit-unified-"
_WARNED_WINDOW = 4 * 3600
_USAGE = {"input_tokens": 100, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30}
_OUTPUT_TOKENS = 42


def read(body: Json, *, stream: bool | None) -> Conversation:
    blocks = [
        (message.get("role"), block)
        for message in dicts(body.get("messages"))
        for block in (
            [{"type": "text", "text": message["content"]}]
            if isinstance(message.get("content"), str)
            else dicts(message.get("content"))
        )
    ]
    return Conversation(
        model=str(body.get("model", "stub-model")),
        stream=bool(body.get("stream")) if stream is None else stream,
        tools=tuple(
            Tool(name=str(tool.get("name")), schema=tool["input_schema"])
            for tool in dicts(body.get("tools"))
            if isinstance(tool.get("input_schema"), dict)
        ),
        system="\n".join(texts_of(body.get("system"))),
        prompts=tuple(str(b.get("text")) for role, b in blocks if role == "user" and b.get("type") == "text"),
        calls=tuple(strings_of(block.get("input")) for _, block in blocks if block.get("type") == "tool_use"),
        results=sum(block.get("type") == "tool_result" for _, block in blocks),
    )


def whole(reply: TextReply | ToolCallReply, conversation: Conversation) -> Json:
    return _message(conversation) | {
        "content": [_block(reply)],
        "stop_reason": _reason(reply),
        "usage": _USAGE | {"output_tokens": _OUTPUT_TOKENS},
    }


def frames(reply: TextReply | ToolCallReply, conversation: Conversation) -> list[bytes]:
    block = _block(reply)
    if isinstance(reply, TextReply):
        empty = block | {"text": ""}
        half = len(reply.text) // 2
        deltas = [{"type": "text_delta", "text": part} for part in (reply.text[:half], reply.text[half:])]
    else:
        empty = block | {"input": {}}
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    events: list[Json] = [
        {"type": "message_start", "message": _message(conversation) | {"usage": _USAGE | {"output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": _reason(reply), "stop_sequence": None},
            "usage": {"output_tokens": _OUTPUT_TOKENS},
        },
        {"type": "message_stop"},
    ]
    return [_frame(event) for event in events]


def error_frame() -> bytes:
    return _frame({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})


def problem(failure: ProviderFailure, conversation: Conversation, now: int) -> ProviderError:
    limited = "This request would exceed your account's rate limit. Please try again later."
    retry = {"retry-after": str(failure.seconds)}
    table: dict[str, tuple[int, str, str, Mapping[str, str]]] = {
        "401": (401, "authentication_error", "invalid x-api-key", {}),
        "429": (429, "rate_limit_error", limited, retry),
        "usage-limit": (429, "rate_limit_error", limited, retry | _unified("rejected", now + failure.seconds)),
        "credit": (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
            "purchase credits.",
            {},
        ),
        "500": (500, "api_error", "Internal server error", {}),
        "503": (503, "api_error", "Service unavailable", {}),
        "529": (529, "overloaded_error", "Overloaded", {}),
        "context-too-long": (400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum", {}),
    }
    status, kind, message, more = table[failure.kind]
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_stub"}
    return ProviderError(status=status, body=body, headers=headers(warning=False, now=now) | dict(more))


def headers(*, warning: bool, now: int) -> dict[str, str]:
    return {"request-id": "req_stub"} | (_unified("allowed_warning", now + _WARNED_WINDOW) if warning else {})


def _unified(status: str, reset: int) -> dict[str, str]:
    """Return the limit headers of a subscription. Answers to an API key have none, and the CLI ignores them there."""
    rejected = status == "rejected"
    window = {"status": status, "reset": str(reset), "utilization": "1.0" if rejected else "0.93"}
    values = {"status": status, "reset": str(reset), "representative-claim": "five_hour"}
    values |= {f"5h-{key}": value for key, value in window.items()}
    values |= (
        {"overage-status": "rejected", "overage-disabled-reason": "org_level_disabled"}
        if rejected
        else {"5h-surpassed-threshold": "0.9"}
    )
    return {_UNIFIED + key: value for key, value in values.items()}


def _message(conversation: Conversation) -> Json:
    return {
        "id": f"msg_stub_{len(conversation.calls)}_{len(conversation.prompts)}",
        "type": "message",
        "role": "assistant",
        "model": conversation.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block(reply: TextReply | ToolCallReply) -> Json:
    if isinstance(reply, TextReply):
        return {"type": "text", "text": reply.text}
    identity = f"toolu_stub{reply.number:020}"
    return {"type": "tool_use", "id": identity, "name": reply.tool.name, "input": reply.arguments}


def _reason(reply: TextReply | ToolCallReply) -> str:
    return "end_turn" if isinstance(reply, TextReply) else "tool_use"


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
