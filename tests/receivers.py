"""Receivers of notices that behave as told: a web server on loopback, and a hook script."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FLOOD = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Received:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        said = json.loads(self.body)
        return str(said["key"]) if "key" in said else said["message"].rpartition("(")[2].rstrip(")")  # of apprise


@dataclass
class WebReceiver:
    """`behaviour` may change between requests: take, refuse, hang, flood, close, redirect, drip."""

    behaviour: str = "take"
    retry_after: str = ""
    port: int = 0
    scheme: str = "http"
    received: list[Received] = field(default_factory=list)
    release_lost_task: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hook/t0ken"

    @property
    def messenger_url(self) -> str:
        """Where apprise posts JSON to."""
        return self.url.replace("http", "json", 1)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        self.received.append(Received(handler.path, dict(handler.headers), body))
        if self.behaviour == "hang":
            self.release_lost_task.wait(60)
        if self.behaviour in ("hang", "close"):
            return
        if self.behaviour == "redirect":
            self._say(handler, 302, b"", Location=f"http://127.0.0.1:{self.port}/elsewhere")
        elif self.behaviour == "refuse":
            more = {"Retry-After": self.retry_after} if self.retry_after else {}
            self._say(handler, 503, b"out of order; you sent /hook/t0ken", **more)
        elif self.behaviour == "flood":
            self._say(handler, 500, b"x" * FLOOD)
        elif self.behaviour == "drip":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.release_lost_task.wait(0.05):
                handler.wfile.write(b"X-Slow: 1\r\n")
                handler.wfile.flush()
        else:
            self._say(handler, 204, b"")

    def _say(self, handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


@contextlib.contextmanager
def web_receiver(behaviour: str = "take", certificate: Path | None = None) -> Iterator[WebReceiver]:
    """With a certificate (and its key in the same file): by https."""
    receiver = WebReceiver(behaviour, scheme="http" if certificate is None else "https")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the name that http.server wants
            with contextlib.suppress(OSError):  # whoever asked may be gone by now
                receiver.answer(self)

        def log_message(self, *_words: Any) -> None:
            """A test's output is not the place."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_address[1]
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    serving.start()
    try:
        yield receiver
    finally:
        receiver.release_lost_task.set()
        server.shutdown()
        server.server_close()
        serving.join()


def make_certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that nobody has signed but itself, with its key."""
    path, key = folder / "certificate.pem", folder / "key.pem"
    words = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    more = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(path)]
    subprocess.run(["openssl", *words, *more], check=True, capture_output=True)
    path.write_bytes(path.read_bytes() + key.read_bytes())
    return path


class Hook:
    """A shell script that keeps what it is given, then behaves as told."""

    def __init__(self, folder: Path, behaviour: str = "take") -> None:
        self.folder = folder / "hook"
        self.folder.mkdir()
        self.script = self.folder / "hook.sh"
        self.behave(behaviour)

    @property
    def argv(self) -> list[str]:
        return ["/bin/sh", str(self.script)]

    def behave(self, behaviour: str) -> None:
        end = {
            "take": "exit 0",
            "refuse": "echo out of order >&2; exit 3",
            "hang": f"echo $$ > {self.folder}/pid; trap '' TERM; while :; do sleep 60; done",
            "flood": f"head -c {FLOOD} /dev/zero | tr '\\0' x; exit 3",
            "close": "kill -9 $$",
            "daemon": f"(setsid sh -c 'echo $$ > {self.folder}/pid; exec sleep 1000' &); "
            f"until [ -s {self.folder}/pid ]; do sleep 0.1; done; exit 0",
        }[behaviour]
        kept = f"{self.folder}/received"
        new = self.folder / "new.sh"
        new.write_text(
            f"t=$(mktemp {self.folder}/in.XXXXXX)\ncat > $t\ncat $t >> {kept}\necho >> {kept}\nrm $t\n{end}\n"
        )
        os.rename(new, self.script)

    @property
    def received(self) -> list[Received]:
        try:
            lines = (self.folder / "received").read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [Received("", {}, line) for line in lines]
