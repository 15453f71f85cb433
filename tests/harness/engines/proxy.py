"""A socket in front of an engine: lets one request of all go wrong, and everything else through.

A request is known by what it asks for (`create`, `start`, `list`, …) and its number among those; what goes wrong:

refuse    nobody listens, from this request on for a while
hang      no answer for a while, then the connection is cut
error     the engine says 500, and does nothing
lost      the engine does it, and its answer is lost
half      the engine does it, and half of its answer comes
kill      the engine is killed before it hears of it (SIGKILL), and started again after a while
killed    the engine does it, is killed, and its answer is lost; and started again after a while
restart   the engine is ended in order and started again before it hears of it
frozen    the engine is stopped (SIGSTOP), hears of it, and continues after a while

The kind `at` is no request but an instant: so many milliseconds after the first one.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import selectors
import signal
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.harness.engines.private import PrivateEngine

ACTIONS = ("refuse", "hang", "error", "lost", "half", "kill", "killed", "restart", "frozen")
AWAY = 0.6  # seconds: how long it is away, beyond the first pause between two tries
_PR_SET_PDEATHSIG = 1
AT = "at"
AT_INSTANTS = ("refuse", "kill", "restart", "frozen")
_KINDS = (
    ("create", r"POST .*/containers/create"),
    ("start", r"POST .*/containers/\w+/start"),
    ("attach", r"POST .*/containers/\w+/attach"),
    ("kill", r"POST .*/containers/\w+/kill"),
    ("wait", r"POST .*/containers/\w+/wait"),
    ("remove", r"DELETE .*/containers/\w+"),
    ("list", r"GET .*/containers/json"),
    ("inspect", r"GET .*/containers/\w+/json"),
    ("image", r"GET .*/images/"),
    ("info", r"GET .*/info"),
    ("version", r"GET .*/version"),
)
_WORDS = b'{"message":"context canceled"}'
_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_WORDS), _WORDS)
)


@dataclass(frozen=True, slots=True)
class Trouble:
    """At the `hit`-th request of a kind."""

    kind: str
    hit: int
    action: str


def kind_of(head: bytes) -> str:
    line = head.split(b"\r\n", 1)[0].decode(errors="replace")
    return next((kind for kind, pattern in _KINDS if re.match(pattern, line)), "other")


class Proxy:
    """In a process of its own (`serve` never returns), with a thread for each connection."""

    def __init__(self, path: Path, engine: PrivateEngine, trouble: Trouble | None, seen: Path, away: Path) -> None:
        """`away` exists while something is wrong that will be over by itself."""
        self._away = away
        self._path, self._engine, self._trouble, self._seen = path, engine, trouble, seen
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._away_until = 0.0

    def serve(self) -> None:
        """Until whoever forked us dies, if need be by a SIGKILL: we would keep its engine alive."""
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"{self._path}.new")
        listener.listen(64)
        os.rename(f"{self._path}.new", self._path)
        while True:
            client, _address = listener.accept()
            threading.Thread(target=self._guarded, args=(client,), daemon=True).start()

    def _guarded(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            if time.monotonic() < self._away_until:
                return
            head, body = _request_of(client)
            if head:
                self._answer(client, head, body)

    def _answer(self, client: socket.socket, head: bytes, body: bytes) -> None:
        action = self._due(kind_of(head))
        if action == "refuse":
            self._refuse()
            return
        if action == "hang":
            time.sleep(AWAY)
            return
        if action == "error":
            client.sendall(_ERROR)
            return
        if action in ("kill", "restart"):
            self._engine.tell("kill" if action == "kill" else "term")
            if action == "kill":
                self._back_later()
                return
            self._engine.tell("up")
        if action == "frozen":
            self._engine.tell("stop")
            self._back_later()
        self._carry(client, head + body, action)

    def _due(self, kind: str) -> str:
        with self._lock:
            if not self._counts and self._trouble is not None and self._trouble.kind == AT:
                threading.Timer(self._trouble.hit / 1000, self._at_an_instant, [self._trouble]).start()
            self._counts[kind] += 1
            hit = self._counts[kind]
            is_due = self._trouble is not None and (self._trouble.kind, self._trouble.hit) == (kind, hit)
            with self._seen.open("a") as seen:
                seen.write(f"{kind}:{hit}\n")
        return self._trouble.action if is_due and self._trouble is not None else ""

    def _at_an_instant(self, trouble: Trouble) -> None:
        with self._seen.open("a") as seen:
            seen.write(f"{AT}:{trouble.hit}\n")
        if trouble.action == "refuse":
            self._refuse()
            return
        self._engine.tell({"kill": "kill", "restart": "term", "frozen": "stop"}[trouble.action])
        self._back_later()

    def _refuse(self) -> None:
        self._away_until = time.monotonic() + AWAY

    def _back_later(self) -> None:
        self._away.touch()
        threading.Timer(AWAY, self._back).start()

    def _back(self) -> None:
        self._engine.tell("up")
        self._away.unlink(missing_ok=True)

    def _carry(self, client: socket.socket, request: bytes, action: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
            engine.connect(self._engine.socket)
            engine.sendall(request)
            if action in ("lost", "half", "killed"):
                answer = _answer_of(engine)
                if action == "killed":
                    self._engine.tell("kill")
                    self._back_later()
                elif action == "half":
                    client.sendall(answer[: max(1, len(answer) // 2)])
                return
            _both_ways(client, engine)


def _request_of(client: socket.socket) -> tuple[bytes, bytes]:
    """Head and body. One request per connection: the client is told to open a new one for the next."""
    got = b""
    while b"\r\n\r\n" not in got:
        block = client.recv(65536)
        if not block:
            return b"", b""
        got += block
    head, _, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    while length is not None and len(body) < int(length[1]):
        block = client.recv(65536)
        if not block:
            return b"", b""
        body += block
    if b"upgrade: tcp" not in head.lower():
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
        head = b"\r\n".join([*lines, b"Connection: close"])
    return head + b"\r\n\r\n", body


def _answer_of(engine: socket.socket) -> bytes:
    """All of it; of a stream its head."""
    got = b""
    while block := engine.recv(65536):
        got += block
        if got.startswith(b"HTTP/1.1 101") and b"\r\n\r\n" in got:
            break
    return got


def _both_ways(client: socket.socket, engine: socket.socket) -> None:
    other = {client: engine, engine: client}
    with selectors.DefaultSelector() as selector:
        for one in other:
            selector.register(one, selectors.EVENT_READ)
        while selector.get_map():
            for key, _events in selector.select():
                source = key.fileobj
                assert isinstance(source, socket.socket)
                block = source.recv(65536)
                if block:
                    other[source].sendall(block)
                    continue
                if source is engine:
                    return  # it has said all
                selector.unregister(source)
                with contextlib.suppress(OSError):
                    other[source].shutdown(socket.SHUT_WR)
