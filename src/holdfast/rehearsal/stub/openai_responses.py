"""The OpenAI Responses protocol, as the codex CLI uses it."""

from __future__ import annotations

import json
import re
from contextlib import suppress

from holdfast.rehearsal.stub import openai_common
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

name = "responses"
headers = openai_common.headers
_MORE_TOOLS = "additional_tools"
_LITERAL = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_USAGE = {
    "input_tokens": openai_common.INPUT_TOKENS,
    "input_tokens_details": {"cached_tokens": openai_common.CACHED_TOKENS},
    "output_tokens": openai_common.OUTPUT_TOKENS,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": openai_common.INPUT_TOKENS + openai_common.OUTPUT_TOKENS,
}


def read(body: Json, *, stream: bool | None) -> Conversation:
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else dicts(given)
    return Conversation(
        model=str(body.get("model", "stub-model")),
        stream=bool(body.get("stream")) if stream is None else stream,
        tools=tuple(_tools([*dicts(body.get("tools")), *(one for one in items if one.get("type") == _MORE_TOOLS)])),
        system="\n".join(
            [
                *texts_of(body.get("instructions")),
                *(t for i in items if i.get("role") == "developer" for t in texts_of(i.get("content"))),
            ]
        ),
        prompts=tuple(text for item in items if item.get("role") == "user" for text in texts_of(item.get("content"))),
        calls=tuple(_arguments(item) for item in items if item.get("type") in _CALLS),
        results=sum(str(item.get("type", "")).endswith("_call_output") for item in items),
    )


def whole(reply: TextReply | ToolCallReply, conversation: Conversation) -> Json:
    return _response(conversation, "completed") | {"output": [_item(reply)], "usage": _USAGE}


def frames(reply: TextReply | ToolCallReply, conversation: Conversation) -> list[bytes]:
    item = _item(reply)
    events: list[Json] = [
        {"type": "response.created", "response": _response(conversation, "in_progress")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | ({"content": []} if isinstance(reply, TextReply) else {}),
        },
    ]
    if isinstance(reply, TextReply):
        half = len(reply.text) // 2
        place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events += [
            {"type": "response.output_text.delta", **place, "delta": part}
            for part in (reply.text[:half], reply.text[half:])
        ]
    events += [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole(reply, conversation)},
    ]
    return [_frame(event) for event in events]


def error_frame() -> bytes:
    message = (
        "Rate limit reached for stub-model in organization org-stub on tokens per min (TPM): Limit 30000, Used 29000, "
        "Requested 2000. Please try again in 2.5s."
    )
    return _failed(Conversation(), "rate_limit_exceeded", message)


def problem(failure: ProviderFailure, conversation: Conversation, now: int) -> ProviderError:
    too_long = "Your input exceeds the context window of this model. Please adjust your input and try again."
    answer = openai_common.problem(failure, too_long=too_long, now=now)
    if failure.kind == "credit" and conversation.stream and "codex" in conversation.client.lower():
        # Codex's own endpoint sends this error inside the stream. The public endpoint answers with 429.
        created = _frame({"type": "response.created", "response": _response(conversation, "in_progress")})
        return ProviderError(
            status=200, body={}, frames=(created, _failed(conversation, "insufficient_quota", openai_common.QUOTA))
        )
    return answer


def _tools(offered: list[Json]) -> list[Tool]:
    found = []
    for tool in offered:
        kind, own = tool.get("type"), str(tool.get("name", ""))
        if kind == "function":
            found.append(Tool(name=own, schema=tool.get("parameters") or {}))
        elif kind == "custom":
            found.append(Tool(name=own, freeform=True))
        else:  # a namespace, or tools that are part of the conversation
            found += _tools(dicts(tool.get("tools")))
    return found


def _arguments(item: Json) -> str:
    if item.get("type") == "function_call":
        try:
            return strings_of(json.loads(item.get("arguments", "")))
        except ValueError:
            return str(item.get("arguments"))
    text = strings_of(item.get("input") or item.get("action"))
    return "\n".join([text, *_literals(text)])


def _literals(script: str) -> list[str]:
    """Return the string literals of a script, with their escapes decoded."""
    found = []
    for literal in _LITERAL.findall(script):
        with suppress(ValueError):
            found.append(str(json.loads(literal)))
    return found


def _response(conversation: Conversation, status: str) -> Json:
    return {
        "id": f"resp_stub_{len(conversation.calls)}",
        "object": "response",
        "status": status,
        "model": conversation.model,
        "output": [],
        "error": None,
    }


def _item(reply: TextReply | ToolCallReply) -> Json:
    if isinstance(reply, TextReply):
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        return {"type": "message", "id": "msg_stub", "role": "assistant", "status": "completed", "content": content}
    same = {"name": reply.tool.name, "call_id": f"call_stub_{reply.number}", "status": "completed"}
    if reply.tool.freeform:
        return {"type": "custom_tool_call", "id": f"ctc_stub_{reply.number}", "input": reply.arguments["input"], **same}
    arguments = json.dumps(reply.arguments)
    return {"type": "function_call", "id": f"fc_stub_{reply.number}", "arguments": arguments, **same}


def _failed(conversation: Conversation, code: str, message: str) -> bytes:
    response = _response(conversation, "failed") | {"error": {"code": code, "message": message}}
    return _frame({"type": "response.failed", "response": response})


def _frame(event: Json) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
