"""Keeps one private engine: `python -m tests.harness.engines.engine_daemon FOLDER [dockerd options]`.

Everything of the engine lies below FOLDER. It takes one word per connection on FOLDER/control: `up` (start it, and wait
until it answers), `kill` (SIGKILL), `term` (end it in order), `stop` and `cont`, `left` (shims with a container that
runs), `tidy` (end what an engine that was killed in the middle of a start has lost sight of), `clear` (end all).
Standard input is the lifeline: when the last who holds its other end is gone, the engine, its containers, its mounts
and FOLDER go.
"""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.containers.client import send_request

PATIENCE = 60.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)


class Sitter:
    """A subreaper: containerd and the shims come to it when their engine dies, and have to be collected, since an
    engine that starts again waits for the containerd that it had."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder = folder
        self._options = options
        self._daemon = 0
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def serve(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(self.folder / "control.new"))
        listener.listen(16)
        os.rename(self.folder / "control.new", self.folder / "control")  # whoever sees it may speak
        while True:
            ready, _, _ = select.select([listener.fileno(), 0], [], [], 1.0)
            self._collect()
            if 0 in ready and not os.read(0, 1):
                return
            if listener.fileno() in ready:
                asked, _address = listener.accept()
                with asked, contextlib.suppress(OSError):
                    word = asked.recv(64).decode().strip()
                    asked.sendall(self._obey(word).encode())

    def _obey(self, word: str) -> str:
        if word == "up":
            return self._up()
        if word == "left":
            return " ".join(str(shim) for shim in self._shims() if any(map(_is_agent, _children_of(shim))))
        if word in ("tidy", "clear"):
            return self._end_shims(everything=word == "clear")
        number = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "stop": signal.SIGSTOP, "cont": signal.SIGCONT}[word]
        if not self._lives():
            return "it does not run"
        os.kill(self._daemon, number)
        if word in ("kill", "term"):
            return self._until_gone()
        return "ok"

    def _end_shims(self, *, everything: bool) -> str:
        """A container that is made but not started waits for a word that never comes, and holds its workspace."""
        for shim in self._shims():
            children = _children_of(shim)
            if everything or (children and not any(map(_is_agent, children))):
                for pid in [*children, shim]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        return "ok"

    def _up(self) -> str:
        if not self._lives():
            self._daemon = self._start()
        os.kill(self._daemon, signal.SIGCONT)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if send_request(str(self.folder / "sock"), "GET", "/_ping")[0] == 200:
                    return "ok"
            if not self._lives():
                last = (self.folder / "log").read_text(errors="replace").strip().splitlines()[-1:] or ["(nothing)"]
                return f"dockerd did not start: {last[0]}"
            time.sleep(0.02)
        return f"dockerd did not answer within {PATIENCE:.0f} s"

    def _start(self) -> int:
        (self.folder / "pid").unlink(missing_ok=True)
        log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        argv = [
            "dockerd",
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec",
            f"--host=unix://{self.folder}/sock",
            f"--pidfile={self.folder}/pid",
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            *self._options,
        ]
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM),
        )
        child.returncode = 0  # it is collected by us, with everybody else
        os.close(log)
        return child.pid

    def _until_gone(self) -> str:
        """Of the engine, and of the containerd that goes with it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if not self._lives() and not self._children("containerd"):
                return "ok"
            time.sleep(0.01)
        return "it does not go"

    def _lives(self) -> bool:
        self._collect()
        return self._daemon > 0

    def _collect(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid == self._daemon:
                    self._daemon = 0

    def _shims(self) -> list[int]:
        """Each container that runs has one, whoever its parent is by now."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes()
                if b"containerd-shim" in words and os.fsencode(self.folder) + b"/" in words:
                    found.append(int(path.parent.name))
        return found

    def _children(self, name: str) -> list[int]:
        """Ours, and those of our engine, by what the kernel calls them."""
        found = []
        for parent in (os.getpid(), self._daemon):
            with contextlib.suppress(OSError):
                for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
                    with contextlib.suppress(OSError):
                        if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                            found.append(int(pid))
        return found

    def end(self) -> None:
        """In order, then by force; then its mounts and its folder."""
        if self._lives():
            os.kill(self._daemon, signal.SIGCONT)
            os.kill(self._daemon, signal.SIGTERM)
            deadline = time.monotonic() + 20
            while self._lives() and time.monotonic() < deadline:
                time.sleep(0.02)
        deadline = time.monotonic() + 10
        with contextlib.suppress(OSError):
            while time.monotonic() < deadline:
                own = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
                if not own:
                    break
                for pid in own:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.01)
                self._collect()
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)  # our own, and nothing is mounted in it any more


def _children_of(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def _is_agent(pid: int) -> bool:
    """Not what waits for the word to become one."""
    try:
        return not Path(f"/proc/{pid}/comm").read_text().startswith("runc")
    except OSError:
        return False


def main(folder: Path, options: Sequence[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the lifeline ends us
    sitter = Sitter(folder, options)
    try:
        sitter.serve()
    finally:
        sitter.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
