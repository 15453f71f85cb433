"""A warm command line: a process that has Holdfast imported and forks once per command, supervisors too.

Most of what a command or the start of a supervisor costs is the start of Python and its imports, and a run of all tests
gives thousands of them. What runs is the same: `holdfast.__main__.main` in a process of its own, with the arguments,
the environment, the directory and the standard streams that it is given. It is the child of the process that asked, as
if that had started it: the server forks with CLONE_PARENT. So signals, exit codes, who reaps, and who gets its orphans
are as they are with `subprocess`, and nothing ends or stays because the server does.

/proc/PID shows the command line and the environment that it was given, too: they are written over the server's.

What is not the same: whatever a fresh interpreter does before it has imported Holdfast. Tests about that start it the
ordinary way (fleet.py decides). HOLDFAST_TEST_COLD=1 starts all of them the ordinary way.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import gc
import io
import json
import os
import platform
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import apsw

MOST_REQUEST = 4 * 1024 * 1024
SERVER_PATIENCE = 60.0  # until it is there, or answers
ROOM = 16000  # for the words of a command, and for its environment: what /proc shows of them
_ROOT = str(Path(__file__).parent.parent)
_SIGCHLD = 17
_CLONE_PARENT, _CLONE_CHILD_CLEARTID, _CLONE_CHILD_SETTID = 0x8000, 0x200000, 0x1000000
_PR_GET_TID_ADDRESS = 40
_CLONE = {"x86_64": (56, 3), "aarch64": (220, 4)}  # the number of clone(2), and which argument the thread's id goes to

CAN_BE_WARM = platform.machine() in _CLONE


class Warm:
    """Our end. One per test process, made when it is first needed."""

    def __init__(self) -> None:
        self._turn = threading.Lock()  # one request at a time; what was started runs beside the others
        self._connect()

    def _connect(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            for end in (ours, theirs):
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    end.setsockopt(socket.SOL_SOCKET, option, MOST_REQUEST)
            ours.settimeout(SERVER_PATIENCE)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno()), "-" * ROOM],
                cwd=_ROOT,
                env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "ROOM": "-" * ROOM},
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # a Ctrl-C on our terminal is ours
            )
            self._socket = socket.socket(fileno=ours.detach())
            self._socket.settimeout(SERVER_PATIENCE)

    def start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        streams: Sequence[int],
        *,
        session: bool,
        mutant: Sequence[str] = (),
    ) -> Forked:
        """Like subprocess.Popen: `holdfast` with these arguments, and with these descriptors as its streams.

        `mutant`: the names and the folder of a mutation (tests/harness/mutations.py)."""
        words = [sys.executable, "-m", "holdfast", *arguments]
        request = {"argv": words, "env": dict(env), "cwd": cwd, "session": session, "umask": _umask(), "mutant": mutant}
        with self._turn:
            # A test that plays a supervisor in its own process ends strays: all children of that process that it does
            # not know, and the server is one.
            if self._process.poll() is not None:
                self._socket.close()
                self._connect()
            socket.send_fds(self._socket, [json.dumps(request).encode()], list(streams))
            answer = json.loads(self._socket.recv(200))
        if "pid" not in answer:
            raise OSError(answer["error"])
        return Forked(words, answer["pid"])

    def run(
        self, arguments: Sequence[str], env: Mapping[str, str], cwd: str, stdin: bytes | None, timeout: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Like subprocess.run. The output goes through files: a pipe would have to be read meanwhile."""
        with contextlib.ExitStack() as files:
            given, out, err = (files.enter_context(_scratch()) for _stream in range(3))
            given.write(stdin or b"")
            given.seek(0)
            streams = [given.fileno(), out.fileno(), err.fileno()]
            process = self.start(arguments, env, cwd, streams, session=False)
            try:
                process.wait(timeout)
            except BaseException:
                process.kill()
                process.wait()
                raise
            return subprocess.CompletedProcess(
                ["holdfast", *arguments], process.returncode, _content(out.fileno()), _content(err.fileno())
            )

    def close(self) -> None:
        """The server ends when its socket does. What it started is ours, and stays."""
        self._socket.close()
        self._process.wait(timeout=10)


def fits(arguments: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether /proc can show the whole of it."""
    words = [sys.executable, "-m", "holdfast", *arguments]
    return max(len(_lines(words)), len(_lines(f"{name}={value}" for name, value in env.items()))) < ROOM


def _lines(words: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in words)


class Forked(subprocess.Popen[bytes]):
    """A child of ours that the server forked: a Popen in all that tests do with one, but that it started nothing."""

    def __init__(self, args: Sequence[str], pid: int) -> None:
        self.args = args
        self.pid = pid
        self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        self.text_mode = False
        self._input = None
        self._communication_started = False
        self._child_created = True
        self._waitpid_lock = threading.Lock()

    def wait(self, timeout: float | None = None) -> int:
        """Popen would look again and again, up to 50 ms apart."""
        if timeout is not None and self.poll() is None:
            ended = select.poll()
            handle = os.pidfd_open(self.pid)
            try:
                ended.register(handle, select.POLLIN)
                if not ended.poll(timeout * 1000):
                    raise subprocess.TimeoutExpired(self.args, timeout)
            finally:
                os.close(handle)
        return super().wait()


def _scratch() -> io.FileIO:
    return io.FileIO(os.memfd_create("warm", os.MFD_CLOEXEC), "r+")


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)


def _umask() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Umask:")), 8)


# -- the server --------------------------------------------------------------------------------------------------------


def serve(server: socket.socket) -> None:
    """One request after the other. It waits for nothing that it forked: those are not its children."""
    _import_everything()
    gc.collect()
    gc.freeze()
    while True:
        request, descriptors, _flags, _address = socket.recv_fds(server, MOST_REQUEST, 3)
        if not request:
            return
        pid = _fork_sibling()
        if pid == 0:
            server.close()
            _become(json.loads(request), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        answer = {"pid": pid} if pid > 0 else {"error": f"clone: {os.strerror(ctypes.get_errno())}"}
        server.send(json.dumps(answer).encode())


def _fork_sibling() -> int:
    """os.fork(), but the new process is our parent's child: with what CPython and the C library do around one."""
    number, place = _CLONE[platform.machine()]
    flags = _CLONE_PARENT | _SIGCHLD
    tid = ctypes.c_void_p()
    libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, as os.fork does
    if libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(tid), 0, 0, 0) == 0 and tid.value:
        flags |= _CLONE_CHILD_SETTID | _CLONE_CHILD_CLEARTID  # the C library remembers its thread's id there
    arguments = [ctypes.c_ulong(flags), *[ctypes.c_ulong(0)] * 4]
    arguments[place] = ctypes.c_ulong(tid.value or 0)
    libc.syscall.restype = ctypes.c_long
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(libc.syscall(ctypes.c_long(number), *arguments))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def _become(request: dict[str, object], descriptors: array.array[int] | list[int]) -> None:
    """The command itself, in the forked process. Never returns."""
    code = 70
    try:
        argv, env, umask = request["argv"], request["env"], request["umask"]
        assert isinstance(argv, list)
        assert isinstance(env, dict)
        assert isinstance(umask, int)
        if request["session"]:
            os.setsid()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
        os.closerange(3, 64)  # the streams' other numbers, and whatever the server had
        os.umask(umask)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        os.chdir(str(request["cwd"]))
        _be_known_as(argv, env)
        sys.stdin = os.fdopen(0, encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False)
        sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
        sys.orig_argv[:] = argv
        from holdfast import __main__
        from holdfast.base import faults

        sys.argv = [__main__.__file__, *argv[3:]]
        faults.arm(*(env.get(f"HOLDFAST_{name}", "") for name in ("FAULT", "FAULT_TRACE")))
        _be_mutant(request["mutant"])
        code = _code_of(__main__.main)
        _end()
    except BaseException:  # noqa: BLE001 - what the interpreter would print at the end
        import traceback

        with contextlib.suppress(Exception):
            traceback.print_exc(file=sys.stderr)
            sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


def _be_mutant(mutant: object) -> None:
    if mutant:
        from tests.harness.mutations import Mutation

        assert isinstance(mutant, list)
        names, folder = mutant
        Mutation(names, Path(folder)).apply()


def _code_of(main: object) -> int:
    assert callable(main)
    try:
        main()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    return 0


def _end() -> None:
    """What an interpreter does when it ends, and somebody may see: threads, exit functions, buffers, databases (the
    last close writes the log back)."""
    threading._shutdown()  # type: ignore[attr-defined]  # what the interpreter calls
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    for connection in apsw.connections():
        connection.close()


def _be_known_as(words: Sequence[str], env: Mapping[str, str]) -> None:
    """What `ps` and our witnesses see of it: the memory where the kernel put our command line and our environment,
    overwritten. Nothing of ours points there any more."""
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    shown = (_lines(words), _lines(f"{name}={value}" for name, value in env.items()))
    for line, start, end in zip(shown, map(int, fields[45:49:2]), map(int, fields[46:49:2]), strict=True):
        ctypes.memmove(start, line.ljust(end - start, b"\0"), end - start)


def _import_everything() -> None:
    """All that commands and supervisors import when they run."""
    import importlib
    import pkgutil

    from holdfast import agents, api, cli
    from holdfast.store import sqlite

    for package in (agents, api, cli, sqlite):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in _ALSO:
        importlib.import_module(name)
    sql = importlib.import_module("holdfast.store.sqlite.engine.statements")
    sql.migrations()  # read once, and remembered
    for file in Path(sqlite.__path__[0], "queries").glob("*.sql"):
        sql.statements(file.stem)


_ALSO = (
    "concurrent.futures.thread",
    "encodings.ascii",
    "holdfast.__main__",
    "holdfast.agents.registry",
    "holdfast.store.open",
    "holdfast.rehearsal.scripted_player",
    "holdfast.wiring.reload",
    "holdfast.wiring.supervisor",
)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
