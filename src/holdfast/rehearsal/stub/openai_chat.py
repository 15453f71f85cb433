"""The OpenAI Chat Completions protocol, which opencode, Qwen Code, Copilot and aider use with any provider."""

from __future__ import annotations

import json

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

name = "chat"
headers = openai_common.headers
_CREATED = 1_700_000_000
_USAGE = {
    "prompt_tokens": openai_common.INPUT_TOKENS,
    "completion_tokens": openai_common.OUTPUT_TOKENS,
    "total_tokens": openai_common.INPUT_TOKENS + openai_common.OUTPUT_TOKENS,
    "prompt_tokens_details": {"cached_tokens": openai_common.CACHED_TOKENS},
}


def read(body: Json, *, stream: bool | None) -> Conversation:
    messages = dicts(body.get("messages"))

    def said_by(*roles: str) -> list[str]:
        return [text for one in messages if one.get("role") in roles for text in texts_of(one.get("content"))]

    functions = [tool["function"] for tool in dicts(body.get("tools")) if isinstance(tool.get("function"), dict)]
    return Conversation(
        model=str(body.get("model", "stub-model")),
        stream=bool(body.get("stream")) if stream is None else stream,
        tools=tuple(Tool(name=str(one.get("name")), schema=one.get("parameters") or {}) for one in functions),
        system="\n".join(said_by("system", "developer")),
        prompts=tuple(said_by("user")),
        calls=tuple(_arguments(call) for one in messages for call in dicts(one.get("tool_calls"))),
        results=sum(one.get("role") == "tool" for one in messages),
    )


def whole(reply: TextReply | ToolCallReply, conversation: Conversation) -> Json:
    message: Json = {"role": "assistant", "content": reply.text if isinstance(reply, TextReply) else None}
    if isinstance(reply, ToolCallReply):
        message["tool_calls"] = [_call(reply)]
    choice = {"index": 0, "message": message, "finish_reason": _reason(reply), "logprobs": None}
    return _envelope(conversation, "chat.completion") | {"choices": [choice], "usage": _USAGE}


def frames(reply: TextReply | ToolCallReply, conversation: Conversation) -> list[bytes]:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    if isinstance(reply, TextReply):
        half = len(reply.text) // 2
        deltas += [{"content": reply.text[:half]}, {"content": reply.text[half:]}]
    else:
        deltas.append({"tool_calls": [{"index": 0, **_call(reply)}]})
    envelope = _envelope(conversation, "chat.completion.chunk")
    chunks = [envelope | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append(envelope | {"choices": [{"index": 0, "delta": {}, "finish_reason": _reason(reply)}]})
    chunks.append(envelope | {"choices": [], "usage": _USAGE})
    return [*(_frame(chunk) for chunk in chunks), b"data: [DONE]\n\n"]


def error_frame() -> bytes:
    message = "The server had an error while processing your request. Sorry about that!"
    return _frame(openai_common.error("server_error", None, message))


def problem(failure: ProviderFailure, conversation: Conversation, now: int) -> ProviderError:
    too_long = (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 250000 tokens. "
        "Please reduce the length of the messages."
    )
    return openai_common.problem(failure, too_long=too_long, now=now)


def _arguments(call: Json) -> str:
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, dict) else None
    try:
        return strings_of(json.loads(arguments or "{}"))
    except (TypeError, ValueError):
        return str(arguments)


def _call(reply: ToolCallReply) -> Json:
    function = {"name": reply.tool.name, "arguments": json.dumps(reply.arguments)}
    return {"id": f"call_stub_{reply.number}", "type": "function", "function": function}


def _reason(reply: TextReply | ToolCallReply) -> str:
    return "stop" if isinstance(reply, TextReply) else "tool_calls"


def _envelope(conversation: Conversation, kind: str) -> Json:
    identity = f"chatcmpl-stub-{len(conversation.calls)}"
    return {"id": identity, "object": kind, "created": _CREATED, "model": conversation.model}


def _frame(chunk: Json) -> bytes:
    return f"data: {json.dumps(chunk)}\n\n".encode()
