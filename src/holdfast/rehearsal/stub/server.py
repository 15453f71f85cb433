"""The stub's HTTP server: loopback only, one thread per connection, and all threads end with the server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from http.server import HTTPServer
from types import TracebackType
from urllib.parse import quote

from holdfast.rehearsal.stub.handler import Handler
from holdfast.rehearsal.stub.log import Exchange, RequestLog
from holdfast.rehearsal.stub.scenarios import ScriptedTurn, why_unknown

_HOST = "127.0.0.1"
_JOIN = 5.0
MAX_CONNECTIONS = 512  # further connections are closed at once


class _Listener(HTTPServer):
    request_queue_size = 256

    def __init__(self, log: RequestLog, port: int, script: Sequence[ScriptedTurn]) -> None:
        self.log = log
        self.script = script
        self.resets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._served: dict[socket.socket, threading.Thread] = {}
        super().__init__((_HOST, port), Handler)

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override]  # ours are stream sockets
        thread = threading.Thread(target=self._serve, args=(request, client_address), daemon=True, name="stub")
        with self._lock:
            if len(self._served) >= MAX_CONNECTIONS:
                self.shutdown_request(request)
                return
            self._served[request] = thread
        thread.start()

    def _serve(self, request: socket.socket, client_address: object) -> None:
        try:
            with suppress(OSError):  # the client went away
                self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._lock:
                self._served.pop(request, None)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # ours are stream sockets
        if request in self.resets:  # a shutdown would send FIN; close alone sends the reset
            self.resets.discard(request)
            request.close()
        else:
            super().shutdown_request(request)

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        with self._lock:
            served = dict(self._served)
        for request in served:
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads, writes or hangs
        for thread in served.values():
            thread.join(_JOIN)


class StubServer:
    """The stub in this process. `url(scenario)` is the base URL for a CLI."""

    def __init__(self, *, log_file: str | None = None, port: int = 0, script: Sequence[ScriptedTurn] = ()) -> None:
        self._log = RequestLog(log_file)
        self._listener = _Listener(self._log, port, script)
        self._thread = threading.Thread(
            target=self._listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True, name="stub listener"
        )

    @property
    def port(self) -> int:
        return int(self._listener.server_address[1])

    def url(self, scenario: str, *arguments: object) -> str:
        """Return the base URL of a scenario, without the protocol's own path (`/v1/…`)."""
        texts = [str(argument) for argument in arguments]
        if scenario == "refused":
            return refused_url()
        if problem := why_unknown(scenario, texts):
            raise ValueError(problem)
        return "/".join([f"http://{_HOST}:{self.port}", scenario, *(quote(text, safe="") for text in texts)])

    def requests(self, scenario: str | None = None, *arguments: object) -> list[Exchange]:
        """Return the requests to models so far: all, or those to the address of one scenario."""
        if scenario is None:
            return self._log.of(None)
        return self._log.of("/".join([scenario, *(quote(str(argument), safe="") for argument in arguments)]))

    def start(self) -> StubServer:
        self._thread.start()
        return self

    def close(self) -> None:
        self._listener.end()
        self._thread.join(_JOIN)

    def __enter__(self) -> StubServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_refusing: list[socket.socket] = []


def refused_url() -> str:
    """Return an address that refuses connections. A socket of this process holds its port and never listens."""
    if not _refusing:
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        taken.bind((_HOST, 0))
        _refusing.append(taken)
    return f"http://{_HOST}:{_refusing[0].getsockname()[1]}/refused"
