"""The stub LLM server, spoken to as the CLIs do: four protocols, every scenario, nothing left when it ends."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.fleet import wait_filled, wait_until

from holdfast.rehearsal.stub import SCENARIOS, StubServer

Json = dict[str, Any]
STRINGS = {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}}
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
HISTORY = {"path": "out.txt", "content": "x"}
TOOLS = (("write_file", STRINGS), ("bash", SHELL))


def anthropic(history: Json | None) -> Json:
    messages: list[Json] = [{"role": "user", "content": "the prompt"}]
    if history is not None:
        messages.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "w", "input": history}]}
        )
        messages.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "done"}]})
    return {"model": "m", "messages": messages, "tools": [{"name": n, "input_schema": s} for n, s in TOOLS]}


def responses(history: Json | None) -> Json:
    items: list[Json] = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "the prompt"}]}]
    if history is not None:
        items.append({"type": "function_call", "call_id": "1", "name": "w", "arguments": json.dumps(history)})
        items.append({"type": "function_call_output", "call_id": "1", "output": "done"})
    return {"model": "m", "input": items, "tools": [{"type": "function", "name": n, "parameters": s} for n, s in TOOLS]}


def chat(history: Json | None) -> Json:
    messages: list[Json] = [{"role": "user", "content": "the prompt"}]
    if history is not None:
        call = {"id": "1", "type": "function", "function": {"name": "w", "arguments": json.dumps(history)}}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "1", "content": "done"})
    tools = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in TOOLS]
    return {"model": "m", "messages": messages, "tools": tools}


def gemini(history: Json | None) -> Json:
    contents: list[Json] = [{"role": "user", "parts": [{"text": "the prompt"}]}]
    if history is not None:
        contents.append({"role": "model", "parts": [{"functionCall": {"name": "w", "args": history}}]})
        contents.append({"role": "user", "parts": [{"functionResponse": {"name": "w", "response": {}}}]})
    return {"contents": contents, "tools": [{"functionDeclarations": [{"name": n, "parameters": s} for n, s in TOOLS]}]}


PROTOCOLS = {
    "anthropic": (anthropic, "/v1/messages", "/v1/messages"),
    "responses": (responses, "/v1/responses", "/v1/responses"),
    "chat": (chat, "/v1/chat/completions", "/v1/chat/completions"),
    "gemini": (
        gemini,
        "/v1beta/models/gemini-x:generateContent",
        "/v1beta/models/gemini-x:streamGenerateContent?alt=sse",
    ),
}


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with StubServer() as server:
        yield server


class Answered:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()

    @property
    def said(self) -> str:
        """The model's words, whether they came whole or in pieces."""
        return "".join(re.findall(r'"(?:text|content|delta)": "([^"]*)"', self.text))

    @property
    def json(self) -> Json:
        found: Json = json.loads(self.text)
        return found


def ask(
    base: str, protocol: str, *, stream: bool = False, history: Json | None = None, timeout: float = 20
) -> Answered:
    body, plain, streamed = PROTOCOLS[protocol]
    url = urlsplit(base + (streamed if stream else plain))
    connection = http.client.HTTPConnection("127.0.0.1", url.port or 0, timeout=timeout)
    try:
        where = url.path + (f"?{url.query}" if url.query else "")
        said = json.dumps(body(history) | ({"stream": True} if stream and protocol != "gemini" else {}))
        connection.request("POST", where, said, {"x-api-key": "key-of-account-7"})
        return Answered(connection.getresponse())
    finally:
        connection.close()


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tool_is_called_and_its_result_ends_the_talk(stub: StubServer, protocol: str, stream: bool) -> None:
    """Whether the call was made is read from the history: the server remembers nothing of a conversation."""
    base = stub.url("tool")
    first = ask(base, protocol, stream=stream)
    assert first.status == 200
    assert "write_file" in first.text
    assert "out.txt" in first.text
    last = ask(base, protocol, stream=stream, history=HISTORY)
    assert "write_file" not in last.text
    assert "the task is done" in last.said
    assert ask(stub.url("ok"), protocol, stream=stream).text.count("write_file") == 0
    seen = stub.requests("tool")
    assert [(one.answer, one.results) for one in seen] == [("call write_file", 0), ("text", 1)]
    assert {one.protocol for one in seen} == {protocol}
    assert {one.stream for one in seen} == {stream}
    assert seen[1].prompts == ("the prompt",)
    assert seen[1].key_end == "ount-7"


ERRORS = {
    "401": {
        "anthropic": (401, "authentication_error"),
        "responses": (401, "invalid_api_key"),
        "chat": (401, "invalid_api_key"),
        "gemini": (400, "API_KEY_INVALID"),
    },
    "429": {
        "anthropic": (429, "rate_limit_error"),
        "responses": (429, "rate_limit_exceeded"),
        "chat": (429, "rate_limit_exceeded"),
        "gemini": (429, '"retryDelay": "2s"'),
    },
    "usage-limit": {
        "anthropic": (429, "rate_limit_error"),
        "responses": (429, "resets_at"),
        "chat": (429, "usage_limit_reached"),
        "gemini": (429, "PerDay"),
    },
    "credit": {
        "anthropic": (400, "credit balance is too low"),
        "responses": (429, "insufficient_quota"),
        "chat": (429, "insufficient_quota"),
        "gemini": (403, "BILLING_DISABLED"),
    },
    "500": dict.fromkeys(("anthropic", "responses", "chat", "gemini"), (500, "error")),
    "503": dict.fromkeys(("anthropic", "responses", "chat", "gemini"), (503, "error")),
    "529": dict.fromkeys(("anthropic", "responses", "chat", "gemini"), (529, "verloaded")),
    "context-too-long": {
        "anthropic": (400, "prompt is too long"),
        "responses": (400, "context_length_exceeded"),
        "chat": (400, "maximum context length"),
        "gemini": (400, "exceeds the maximum number of tokens"),
    },
}


@pytest.mark.parametrize("scenario", ERRORS)
def test_a_provider_that_refuses_words_it_as_the_real_one(stub: StubServer, scenario: str) -> None:
    for protocol, (status, words) in ERRORS[scenario].items():
        answered = ask(stub.url(scenario), protocol)
        assert (answered.status, words in answered.text) == (status, True), (protocol, answered.text)
        assert answered.json["error"]["message"]


def test_limits_say_when_they_end(stub: StubServer) -> None:
    limited = ask(stub.url("usage-limit", 60), "anthropic").headers
    assert limited["anthropic-ratelimit-unified-status"] == "rejected"
    reset = int(limited["anthropic-ratelimit-unified-reset"])
    plan = ask(stub.url("usage-limit", 60), "responses").json["error"]
    assert abs(plan["resets_at"] - reset) < 30
    assert plan["resets_in_seconds"] == 60
    assert ask(stub.url("429"), "chat").headers["retry-after"] == "2"
    assert ask(stub.url("429-long"), "anthropic").headers["retry-after"] == "3600"
    warned = ask(stub.url("warning"), "anthropic")
    assert (warned.status, warned.headers["anthropic-ratelimit-unified-status"]) == (200, "allowed_warning")
    assert "insufficient_quota" in ask(stub.url("credit"), "responses", stream=True).text  # told inside the stream


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_broken_connections(stub: StubServer, protocol: str) -> None:
    with pytest.raises(ConnectionResetError) as reset:
        ask(stub.url("reset"), protocol)
    assert reset.type is ConnectionResetError  # a good-bye without an answer would be a kind of it
    with pytest.raises(ConnectionRefusedError):
        ask(stub.url("refused"), protocol)
    with pytest.raises(http.client.IncompleteRead):
        ask(stub.url("cut-stream"), protocol, stream=True)
    with pytest.raises(http.client.IncompleteRead):
        ask(stub.url("cut-early"), protocol, stream=True)
    wordless = ask(stub.url("empty-stream"), protocol, stream=True)
    assert (wordless.status, "Hello" in wordless.text, "[DONE]" in wordless.text) == (200, False, False)
    assert "Hello" in ask(stub.url("empty-stream"), protocol).text  # who asks without a stream is answered
    page = ask(stub.url("html"), protocol)
    assert (page.status, page.headers["content-type"], page.text[:9]) == (200, "text/html; charset=utf-8", "<!DOCTYPE")
    broken = ask(stub.url("error-stream"), protocol, stream=True).text
    assert "error" in broken
    assert "[DONE]" not in broken
    with pytest.raises(TimeoutError):
        ask(stub.url("hang"), protocol, timeout=0.2)
    with pytest.raises(TimeoutError):
        ask(stub.url("hang-stream"), protocol, stream=True, timeout=0.2)


def test_hanging_connections_end_with_the_server() -> None:
    """A rehearsal of a hang must not leave a thread for ever, whether the client goes or the server."""
    before = set(threading.enumerate())
    with StubServer() as stub:
        gone, kept = (socket.create_connection(("127.0.0.1", stub.port)) for _ in range(2))
        for connection in (gone, kept):
            connection.sendall(b"POST /hang/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
        wait_until(lambda: len(stub.requests("hang")) == 2, "both requests hang")
        gone.close()

        def serving() -> int:
            return sum(thread.name == "stub" for thread in set(threading.enumerate()) - before)

        wait_until(lambda: serving() == 1, "the thread of the client that went has ended")
    assert set(threading.enumerate()) - before == set()
    assert kept.recv(10) == b""
    kept.close()


def test_a_slow_tool_is_followed_by_the_file_when_the_session_is_resumed(stub: StubServer) -> None:
    base = stub.url("slowtool")
    slow = ask(base, "chat").json["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (slow["name"], "sleep 1003" in slow["arguments"]) == ("bash", True)
    assert "write_file" in ask(base, "chat", history=json.loads(slow["arguments"])).text
    asked = "echo 'a/b' && exit 3"
    command = json.loads(
        ask(stub.url("shell", asked), "chat").json["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    )
    assert command["command"] == asked
    assert "task is done" in ask(stub.url("shell", asked), "chat", history=command).text


def test_the_first_requests_fail_of_each_address_by_itself(stub: StubServer) -> None:
    one, other = stub.url("flaky", 2, "one"), stub.url("first", "usage-limit", 1, "other")
    assert [ask(one, "chat").status for _ in range(3)] == [529, 529, 200]
    assert [ask(other, "chat").status for _ in range(2)] == [429, 200]
    soon = ask(stub.url("first", "usage-limit", 1, "soon", 60), "responses").json["error"]
    assert 50 <= soon["resets_in_seconds"] <= 60
    assert [exchange.answer for exchange in stub.requests("flaky", 2, "one")] == ["529", "529", "call write_file"]


def test_without_a_tool_for_files_a_shell_writes_them_and_without_tools_there_is_text(stub: StubServer) -> None:
    """Codex may offer a shell only, and CLIs ask for titles without any tool."""
    url = urlsplit(stub.url("tool"))

    def post(body: Json) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", url.port or 0, timeout=20)
        connection.request("POST", f"{url.path}/v1/responses", json.dumps(body))
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    array = {"type": "object", "properties": {"command": {"type": "array"}}, "required": ["command"]}
    shell = json.loads(post({"input": "hi", "tools": [{"type": "function", "name": "shell", "parameters": array}]}))
    command = json.loads(shell["output"][0]["arguments"])["command"]
    assert command[:2] == ["bash", "-lc"]
    assert "> out.txt" in command[2]
    patch = json.loads(post({"input": "hi", "tools": [{"type": "custom", "name": "apply_patch"}]}))["output"][0]
    assert (patch["type"], "*** Add File: out.txt" in patch["input"]) == ("custom_tool_call", True)
    assert "task is done" in post({"input": "a title, please"})
    scripts = {"type": "namespace", "name": "functions", "tools": [{"type": "custom", "name": "exec"}]}
    offer = {"type": "additional_tools", "role": "developer", "tools": [scripts]}
    script = json.loads(post({"input": [offer]}))["output"][0]
    assert "await tools.exec_command({" in script["input"]  # JavaScript, as codex has it for the models that it knows
    done = {"type": "custom_tool_call_output", "call_id": script["call_id"], "output": ""}
    assert "task is done" in post({"input": [offer, script, done]})


def test_what_no_scenario_is_named(stub: StubServer) -> None:
    with pytest.raises(ValueError, match=r"no scenario 'usage'.*usage-limit"):
        stub.url("usage")
    with pytest.raises(ValueError, match="needs a command"):
        stub.url("shell")
    with pytest.raises(ValueError, match="whole number"):
        stub.url("429", "soon")
    wrong = ask(f"http://127.0.0.1:{stub.port}/usage", "chat")
    assert (wrong.status, "no scenario" in wrong.json["error"]["message"]) == (404, True)
    page = Path("docs/stub-llm.md").read_text()
    assert [name for name in SCENARIOS if f"`{name}" not in page] == [], "docs/stub-llm.md does not name them"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_no_request_is_refused(stub: StubServer, protocol: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever a CLI sends, it gets an answer, and no thread dies of it."""
    _, path, _ = PROTOCOLS[protocol]
    broken: list[bytes] = [b"", b"[]", b"{", b"null", b'{"messages": 3, "input": 3, "contents": 3, "tools": 3}']
    broken.append(b'{"messages": [[], {"content": [{"type": "tool_use"}], "tool_calls": [{"function": 1}]}]}')
    broken.append(b'{"contents": [{"parts": [{"functionCall": 3}, {"text": 3}]}], "input": [{"type": "reasoning"}]}')
    for body in broken:
        connection = http.client.HTTPConnection("127.0.0.1", stub.port, timeout=20)
        connection.request("POST", f"/ok{path}", body)
        assert connection.getresponse().status in (200, 400), body
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", stub.port, timeout=20)
    chunks = iter([b'{"model"', b': "m"}'])
    connection.request("POST", f"/ok{path}", chunks, {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    assert connection.getresponse().status == 200
    connection.close()
    assert "Traceback" not in capfd.readouterr().err


def test_beside_a_program_with_a_log(tmp_path: Path) -> None:
    port, log = tmp_path / "port", tmp_path / "log.jsonl"
    command = [sys.executable, "-m", "holdfast.rehearsal.stub", "--port-file", str(port), "--log", str(log)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ})
    try:
        number = int(wait_filled(port, "the stub has said its port"))
        assert ask(f"http://127.0.0.1:{number}/limittext", "gemini").status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    (line,) = log.read_text().splitlines()
    assert {key: json.loads(line)[key] for key in ("path", "protocol", "answer")} == {
        "path": "limittext",
        "protocol": "gemini",
        "answer": "text",
    }
