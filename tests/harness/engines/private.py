"""A private engine, seen from whoever uses it: where its socket is, what to do to it, what it has."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

from tests.harness import ROOT
from tests.harness.engines.image import IMAGE, image

from holdfast.containers.client import EngineConnection as Connection
from holdfast.containers.client import send_request

PATIENCE = 90.0
LABEL = "dev.holdfast.home"
sitters: set[int] = set()  # that this process has started: children that are not a case's


class EngineFailed(Exception):
    """It does not start, or not do what it is told."""


class PrivateEngine:
    """Made before workers are forked: each holds its lifeline, and the engine goes when all of them are gone."""

    def __init__(self, *options: str) -> None:
        base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-engine-", dir=base))
        self.socket = str(self.folder / "sock")
        lifeline, self._lifeline = os.pipe()
        with (self.folder / "sitter.log").open("ab") as log:
            self._sitter = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.engines.engine_daemon", str(self.folder), *options],
                cwd=ROOT,
                stdin=lifeline,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(lifeline)
        sitters.add(self._sitter.pid)
        try:
            self._until((self.folder / "control").exists)
            self.tell("up")
            self._bring_image()
        except BaseException:
            self.close()
            raise

    def tell(self, word: str) -> str:
        """What the sitter answers; EngineFailed when that is no."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(PATIENCE)
            line.connect(str(self.folder / "control"))
            line.sendall(word.encode())
            answer = b""
            while block := line.recv(4096):
                answer += block
        said = answer.decode()
        if word != "left" and said not in ("ok", "it does not run"):
            raise EngineFailed(f"{word}: {said}")
        return said

    def containers(self, home: str | None = None) -> list[dict[str, Any]]:
        """All of them, running or not; those that carry the label of a home."""
        wanted = {"label": [f"{LABEL}={home}"]} if home else {}
        target = f"/containers/json?all=1&filters={urllib.parse.quote(json.dumps(wanted))}"
        status, answer = send_request(self.socket, "GET", target)
        if status != 200:
            raise EngineFailed(f"the engine answered {status}: {answer}")
        found: list[dict[str, Any]] = answer
        return found

    def remove(self, container: str) -> None:
        send_request(self.socket, "DELETE", f"/containers/{container}?force=1&v=1")

    def things(self) -> tuple[int, int]:
        """How many networks and volumes it has."""
        _, networks = send_request(self.socket, "GET", "/networks")
        _, volumes = send_request(self.socket, "GET", "/volumes")
        return len(networks), len(volumes.get("Volumes") or [])

    def shims(self) -> list[str]:
        return self.tell("left").split()

    def close(self) -> None:
        """Let go of it; whoever else holds its lifeline keeps it."""
        with contextlib.suppress(OSError):
            os.close(self._lifeline)

    def end(self) -> None:
        """By the only one who holds its lifeline: until it is gone."""
        self.close()
        self._sitter.wait(timeout=PATIENCE)
        sitters.discard(self._sitter.pid)

    def _until(self, fact: Any) -> None:
        deadline = time.monotonic() + PATIENCE
        while not fact():
            if self._sitter.poll() is not None or time.monotonic() > deadline:
                raise EngineFailed(f"its sitter says: {(self.folder / 'sitter.log').read_text()[-400:]}")
            time.sleep(0.01)

    def _bring_image(self) -> None:
        name, _, tag = IMAGE.partition(":")
        line = Connection(self.socket)
        try:
            line.request("POST", f"/images/create?fromSrc=-&repo={name}&tag={tag}", body=image())
            answer = line.getresponse()
            words = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise EngineFailed(f"the image could not be brought: {error}") from error
        finally:
            line.close()
        if answer.status != 200 or '"error"' in words:
            raise EngineFailed(f"the image could not be brought: {words}")


_own: dict[tuple[str, ...], PrivateEngine] = {}


def own_engine(*options: str) -> PrivateEngine:
    """The one of this process, started when it is first wanted; it goes when a worker of `multiprocessing` does."""
    if options not in _own:
        import docker  # type: ignore[import-untyped]  # noqa: F401 - once, before supervisors are forked from here

        _own[options] = engine = PrivateEngine(*options)
        Finalize(None, engine.end, exitpriority=1)
    return _own[options]
