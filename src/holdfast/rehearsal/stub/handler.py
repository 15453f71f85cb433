"""One connection to the stub: reads requests, gets the scenario's answer, and sends it in the answer's manner."""

from __future__ import annotations

import itertools
import json
import select
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Protocol, cast

from holdfast.rehearsal.stub import address, scenarios
from holdfast.rehearsal.stub.log import Exchange, RequestLog
from holdfast.rehearsal.stub.messages import (
    Conversation,
    Json,
    Manner,
    ProviderFailure,
    StubAnswer,
    TextReply,
    ToolCallReply,
)
from holdfast.rehearsal.stub.scenarios import ScriptedTurn, why_unknown

_LONGEST_HANG = 3600.0
_LONGEST_BODY = 256 * 1024 * 1024
_PAGE = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>Please sign in to this network.</body></html>\n"
_WORDLESS = (Manner.CUT_EARLY, Manner.EMPTY)
_FIRST_WORD = scenarios.DONE.split()[0].encode()
_AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER on, with 0 seconds: the close resets the connection


class StubServerPort(Protocol):
    """The part of the server that a connection uses."""

    log: RequestLog
    resets: set[socket.socket]  # connections that end with a reset
    script: Sequence[ScriptedTurn]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "holdfast-stub"
    sys_version = ""
    disable_nagle_algorithm = True  # frames must not wait for one another

    def log_message(self, format: str, *arguments: object) -> None:
        """Do not print to stderr: requests are recorded in `RequestLog`."""

    def do_HEAD(self) -> None:
        self._send_json(200, {})

    def do_GET(self) -> None:
        at = address.parse_url(self.path)
        if at and at.asked == "models":
            self._send_json(200, _MODELS)
        else:
            self._not_found()

    def do_POST(self) -> None:
        body = self._body()
        at = address.parse_url(self.path)
        if at is None:
            self._not_found()
        elif problem := why_unknown(at.scenario, at.arguments):
            self._send_json(404, _error(problem))
        elif at.asked == "count":
            self._send_json(200, {"input_tokens": 100, "totalTokens": 100})
        elif at.asked == "answer":
            self._answer(at, body)
        else:
            self._not_found()

    def _answer(self, at: address.Address, body: Json) -> None:
        log = self._server().log
        try:
            conversation = at.dialect.read(body, stream=at.stream)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._send_json(400, _error("The stub cannot read this request."))
            return
        conversation = replace(conversation, client=self.headers.get("User-Agent", ""))
        if at.scenario == "script":
            answer = scenarios.scripted_answer(self._server().script, conversation)
        else:
            answer = scenarios.answer_to(at.scenario, at.arguments, conversation, log.tries(at.path))
        now = time.time()
        log.add(
            Exchange(
                path=at.path,
                protocol=at.dialect.name,
                model=at.model or conversation.model,
                stream=conversation.stream,
                prompts=conversation.prompts,
                calls=conversation.calls,
                results=conversation.results,
                answer=_answer_name(answer),
                key_end=self._key(),
                at=now,
            )
        )
        if isinstance(answer.reply, ProviderFailure):
            problem = at.dialect.problem(answer.reply, conversation, int(now))
            if problem.frames:
                self._stream(problem.frames, problem.headers)
            else:
                self._send_json(problem.status, problem.body, problem.headers)
            return
        self._put(at, conversation, answer, answer.reply, int(now))

    def _put(
        self,
        at: address.Address,
        conversation: Conversation,
        answer: StubAnswer,
        reply: TextReply | ToolCallReply,
        now: int,
    ) -> None:
        headers = at.dialect.headers(warning=answer.warning, now=now)
        if answer.manner is Manner.RESET:
            self._reset()
        elif answer.manner is Manner.SILENT:
            self._hang()
        elif answer.manner is Manner.HTML:
            self._send_page()
        elif conversation.stream:
            frames = at.dialect.frames(reply, conversation)
            if answer.manner in (Manner.WHOLE, Manner.SLOW):
                self._stream(frames, headers, answer.seconds / len(frames))
            else:
                begin = _frames_before_a_word if answer.manner in _WORDLESS else _first_half
                self._break_stream(begin(frames), at.dialect.error_frame(), headers, answer.manner)
        elif answer.manner is Manner.STALLED:
            self._begin(200, {"Content-Type": "application/json", "Content-Length": "1000"})
            self._hang()
        else:  # the other manners apply to streams only
            self._send_json(200, at.dialect.whole(reply, conversation), headers)

    def _break_stream(self, frames: list[bytes], error: bytes, headers: Mapping[str, str], manner: Manner) -> None:
        self._begin_stream(headers)
        for frame in frames:
            self._chunk(frame)
        if manner is Manner.STALLED:
            self._hang()
        elif manner is Manner.ERROR_EVENT:
            self._chunk(error)
        if manner in (Manner.ERROR_EVENT, Manner.EMPTY):
            self._chunk(b"")
        self.close_connection = True  # the other manners end without the last chunk

    def _stream(self, frames: Iterable[bytes], headers: Mapping[str, str], pause: float = 0.0) -> None:
        self._begin_stream(headers)
        for frame in frames:
            self._chunk(frame)
            if pause and self._wait_for_close(pause):
                break
        self._chunk(b"")

    def _begin_stream(self, headers: Mapping[str, str]) -> None:
        kind = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        self._begin(200, kind | {"Transfer-Encoding": "chunked"} | dict(headers))

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _send_json(self, status: int, value: Json, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        kind = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        self._begin(status, kind | dict(headers or {}))
        if self.command != "HEAD":
            self.wfile.write(data)

    def _send_page(self) -> None:
        self._begin(200, {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(_PAGE))})
        self.wfile.write(_PAGE)

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status, None if status in self.responses else "Overloaded")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _not_found(self) -> None:
        self._send_json(404, _error(f"The stub does not serve {self.command} {self.path}."))

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self._server().resets.add(self.connection)
        self.close_connection = True

    def _server(self) -> StubServerPort:
        return cast(StubServerPort, self.server)

    def _hang(self) -> None:
        """Wait until the client closes the connection, the server ends, or _LONGEST_HANG is over."""
        self._wait_for_close(_LONGEST_HANG)
        self.close_connection = True

    def _wait_for_close(self, seconds: float) -> bool:
        """Wait. True if meanwhile the client went away, or the server ended and closed the connection."""
        ends = select.poll()  # select() cannot take descriptors above 1023
        ends.register(self.connection, select.POLLIN | select.POLLHUP)
        return bool(ends.poll(seconds * 1000))

    def _key(self) -> str:
        for name in ("x-api-key", "authorization", "x-goog-api-key"):
            if value := self.headers.get(name):
                return str(value).removeprefix("Bearer ")
        return ""

    def _body(self) -> Json:
        try:
            value = json.loads(self._read() or b"{}")
        except ValueError:
            return {}
        return value if isinstance(value, dict) else {}

    def _read(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            length = self.headers.get("Content-Length") or "0"
            return self.rfile.read(min(int(length), _LONGEST_BODY) if length.isdecimal() else 0)
        parts = []
        while size := int(self.rfile.readline(64).split(b";")[0].strip() or b"0", 16):
            parts.append(self.rfile.read(min(size, _LONGEST_BODY)))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)


def _first_half(frames: list[bytes]) -> list[bytes]:
    return frames[: max(1, len(frames) // 2)]


def _frames_before_a_word(frames: list[bytes]) -> list[bytes]:
    """Return the frames before the first word of an answer. Gemini sends none: for its stream the list is empty."""
    return list(itertools.takewhile(lambda frame: _FIRST_WORD not in frame, frames))


def _answer_name(answer: StubAnswer) -> str:
    if answer.manner is not Manner.WHOLE:
        return str(answer.manner.value)
    if isinstance(answer.reply, ProviderFailure):
        return answer.reply.kind
    return f"call {answer.reply.tool.name}" if isinstance(answer.reply, ToolCallReply) else "text"


def _error(message: str) -> Json:
    return {"type": "error", "error": {"type": "not_found_error", "message": message, "code": 404}}


_MODELS: Json = {
    "object": "list",
    "data": [{"id": "stub-model", "object": "model", "type": "model", "display_name": "Stub", "owned_by": "holdfast"}],
    "models": [],  # codex and Gemini read this key
    "has_more": False,
}
