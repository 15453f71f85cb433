"""A warm command line: a process that has Holdfast imported and forks once per command.

Most of what a short command costs is the start of Python and its imports, and a run of all tests gives thousands of
them. What runs is the same: `holdfast.__main__.main` in a process of its own, with the arguments, the environment, the
directory and the standard streams that it is given. Only for commands that come and go: whatever starts a supervisor,
or is told apart by its own command line or environment in /proc, is started the ordinary way (fleet.py).
HOLDFAST_TEST_COLD=1 starts all of them the ordinary way.
"""

from __future__ import annotations

import array
import contextlib
import gc
import io
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import apsw

MOST_REQUEST = 4 * 1024 * 1024
_ROOT = str(Path(__file__).parent.parent)


class Warm:
    """Our end. One per test process, made when it is first needed."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  # one command at a time
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            for end in (ours, theirs):
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    end.setsockopt(socket.SOL_SOCKET, option, MOST_REQUEST)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=_ROOT,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
            self._socket = socket.socket(fileno=ours.detach())

    def run(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes | None, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Like subprocess.run. The output goes through files: a pipe would have to be read meanwhile."""
        request = json.dumps({"argv": list(arguments), "env": dict(env), "cwd": cwd}).encode()
        with contextlib.ExitStack() as files:
            given = files.enter_context(_scratch())
            given.write(stdin or b"")
            given.seek(0)
            out, err = files.enter_context(_scratch()), files.enter_context(_scratch())
            socket.send_fds(self._socket, [request], [given.fileno(), out.fileno(), err.fileno()])
            self._socket.settimeout(timeout)
            try:
                code = json.loads(self._socket.recv(100))["code"]
            except TimeoutError as error:
                self.close()
                raise subprocess.TimeoutExpired(list(arguments), timeout) from error
            return subprocess.CompletedProcess(
                ["holdfast", *arguments], code, _content(out.fileno()), _content(err.fileno())
            )

    def close(self) -> None:
        """The server ends when its socket does, and ends the command that it waits for."""
        self._socket.close()
        self._process.wait(timeout=10)


def _scratch() -> io.FileIO:
    return io.FileIO(os.memfd_create("warm", os.MFD_CLOEXEC), "r+")


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


# -- the server --------------------------------------------------------------------------------------------------------


def serve(server: socket.socket) -> None:
    """One command after the other."""
    _import_everything()
    gc.freeze()
    with selectors.DefaultSelector() as waiting:
        waiting.register(server, selectors.EVENT_READ)
        while True:
            request, descriptors, _flags, _address = socket.recv_fds(server, MOST_REQUEST, 3)
            if not request:
                return
            pid = os.fork()
            if pid == 0:
                waiting.close()
                server.close()
                _become(json.loads(request), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            code = _wait(pid, waiting)
            if code is None:
                return
            server.send(json.dumps({"code": code}).encode())


def _wait(pid: int, waiting: selectors.DefaultSelector) -> int | None:
    """Its exit code as subprocess has it; None: nobody waits for it any more, so it was ended."""
    child = os.pidfd_open(pid)
    waiting.register(child, selectors.EVENT_READ)
    try:
        ready = {key.fd for key, _events in waiting.select()}
    finally:
        waiting.unregister(child)
        os.close(child)
    if child not in ready:  # the socket: our test process is gone, or gave up
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status) if child in ready else None


def _become(request: dict[str, object], descriptors: array.array[int] | list[int]) -> None:
    """The command itself, in the forked process. Never returns."""
    code = 70
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        env, argv = request["env"], request["argv"]
        assert isinstance(env, dict)
        assert isinstance(argv, list)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        os.chdir(str(request["cwd"]))
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")
        sys.argv = ["holdfast", *argv]
        from holdfast.__main__ import main

        try:
            main()
            code = 0
        except SystemExit as done:
            code = done.code if isinstance(done.code, int) else 0 if done.code is None else 1
        sys.stdout.flush()
        sys.stderr.flush()
        for connection in apsw.connections():  # as the end of an interpreter does, which writes the log back
            connection.close()
    except BaseException:  # noqa: BLE001 - what the interpreter would print at the end
        import traceback

        with contextlib.suppress(Exception):
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


def _import_everything() -> None:
    import importlib

    from holdfast.interfaces.cli.main import COMMANDS

    for module in {module for module, _words in COMMANDS.values()}:
        importlib.import_module(f"holdfast.interfaces.cli.{module}")
    for name in _NEEDED:
        importlib.import_module(name)


# What the short commands import when they run.
_NEEDED = (
    "holdfast.__main__",
    "holdfast.interfaces.cli.streams",
    "holdfast.interfaces.cli.manual",
    "holdfast.api.commands",
    "holdfast.api.doctor",
    "holdfast.api.health",
    "holdfast.api.promises",
    "holdfast.api.setup",
    "holdfast.api.show",
    "holdfast.api.salvages",
    "holdfast.api.workspaces",
    "holdfast.api.stats",
    "holdfast.roster",
    "holdfast.storage",
)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
