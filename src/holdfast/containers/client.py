"""Runs the agent of one run in its container, and ends that container: `boxed.py run|end SOCKET CONTAINER`.

`run` is what a keeper has as its agent when the real one is in a container (ADR 0016): it starts the container,
carries standard input in and output out, passes TERM on, and ends as the container's main process ended. `end` is what
the keeper runs when that is over, whatever way: it kills through the engine, and exit code 0 says that the engine says
"not running" (3: likewise, and the kernel had killed in it for want of memory). Any other code means that nobody knows.
When the engine goes away before it has said that the container runs, or while it ends, `run` ends by SIGUSR2: an engine
that is ended takes its containers along, and whatever code an agent has then is not its own word.
Standard library only, one file, nothing imported later.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from types import FrameType
from typing import Any

COULD_NOT_START = 125
ENGINE_LOST = signal.SIGUSR2  # `run` ends by it
ENDED, ENDED_OUT_OF_MEMORY, UNKNOWN = 0, 3, 1
PATIENCE = 10.0  # seconds for one answer of the engine
KILL_PATIENCE = 8.0  # ... and for a container to be gone once it was killed
BLOCK = 65536
LOOKS_AT_THE_END = 5  # the end of the stream comes a moment before the engine knows of the container's
NEVER_RAN = ("created", "initialized")
CRASHES = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
)


class EngineLost(Exception):
    """It does not answer, or says that it cannot just now."""


class Refused(Exception):
    """It says no, and would again."""


class Engine(http.client.HTTPConnection):
    """The engine's HTTP API on its unix socket."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        super().__init__("engine", timeout=patience)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ask(path: str, method: str, target: str, patience: float = PATIENCE) -> tuple[int, Any]:
    """(status, answer). Raises OSError or HTTPException when the engine does not answer."""
    engine = Engine(path, patience)
    try:
        engine.request(method, target)
        answer = engine.getresponse()
        content = answer.read()
    finally:
        engine.close()
    try:
        return answer.status, json.loads(content) if content else None
    except ValueError:
        return answer.status, content.decode(errors="replace")


def state_of(path: str, container: str) -> dict[str, Any] | None:
    """What the engine says of it; None: there is no such container."""
    status, answer = ask(path, "GET", f"/containers/{container}/json")
    if status == 404:
        return None
    if status != 200:
        raise OSError(f"the engine answered {status}: {answer}")
    state: dict[str, Any] = answer["State"]
    return state


def is_running(state: dict[str, Any]) -> bool:
    return bool(state.get("Running") or state.get("Paused") or state.get("Restarting"))


# -- run -----------------------------------------------------------------------------------------------------------


class Box:
    """One container and the stream of what goes in and comes out."""

    def __init__(self, path: str, container: str) -> None:
        self.path = path
        self.container = container
        self.asked_to_stop = False
        self.is_deaf = False  # listened to again, and had nothing to say: an agent may close its output and live on
        self.wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.note_stop)

    def note_stop(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_stop = True

    def run(self) -> int:
        """The exit code of the container's main process."""
        try:
            stream = self.attach()  # before the start: nothing that it says is missed
            if self.asked_to_stop:
                return 128 + signal.SIGTERM
            # Asked once: if the answer is lost, a second start could be the agent's second life in one run.
            status, answer = ask(self.path, "POST", f"/containers/{self.container}/start")
        except (OSError, http.client.HTTPException) as problem:
            raise EngineLost(problem) from problem
        if status not in (204, 304):
            words = answer.get("message", answer) if isinstance(answer, dict) else answer
            refusal = f"the engine could not start it: {words}"
            raise EngineLost(refusal) if status >= 500 else Refused(refusal)
        whole = Pump(stream, self).run()
        while (code := self.wait()) is None:
            if not whole:
                raise EngineLost("the connection broke before all of the agent's input was carried")
            self.attach_again()
        return code

    def attach(self, *, with_input: bool = True) -> socket.socket:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        stream.settimeout(PATIENCE)
        stream.connect(self.path)
        target = f"/containers/{self.container}/attach?stream=1&stdin={int(with_input)}&stdout=1&stderr=1"
        stream.sendall(
            f"POST {target} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = stream.recv(1)  # one by one: what follows is the container's
            if not byte:
                raise OSError("the engine closed the connection")
            head += byte
        status = head.split()[1]
        if status not in (b"101", b"200"):
            refusal = f"the engine would not attach: {head.decode(errors='replace').splitlines()[0]}"
            raise EngineLost(refusal) if status.startswith(b"5") else Refused(refusal)
        return stream

    def pass_stop_on(self) -> None:
        """TERM for the agent. Whether it obeys is the keeper's business, which has the grace in its hands."""
        self.asked_to_stop = False
        try:
            ask(self.path, "POST", f"/containers/{self.container}/kill?signal=SIGTERM")
        except (OSError, http.client.HTTPException):
            return

    def wait(self) -> int | None:
        """The stream is over: its exit code; None when it runs all the same, and might be listened to again. An engine
        that does not answer is asked again: the agent may live. One that was away when it ended has no word for how."""
        pause, looks, was_away = 0.01, 0, False
        while True:
            try:
                state = state_of(self.path, self.container)
                looks += 1
            except TimeoutError:
                state = {"Running": True}  # it hangs, and will know when it does not
            except (OSError, http.client.HTTPException):
                state, was_away = {"Running": True}, True
            if state is None:
                return 128 + signal.SIGKILL  # removed by somebody else
            if not is_running(state):
                if was_away:
                    raise EngineLost("the engine was away when its container ended")
                return int(state.get("ExitCode", 0))
            if looks > LOOKS_AT_THE_END and (was_away or not self.is_deaf):
                self.is_deaf = not was_away
                return None
            if self.asked_to_stop:
                self.pass_stop_on()
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)

    def attach_again(self) -> None:
        """Its engine was replaced under it, say. What it printed meanwhile is gone, and that is said in its place."""
        try:
            stream = self.attach(with_input=False)
        except (OSError, http.client.HTTPException, EngineLost, Refused):
            return  # whoever waits for it sees more
        words = f"holdfast: the connection to container {self.container[:12]} broke; output may be missing here\n"
        os.write(2, words.encode())
        pump = Pump(stream, self)
        pump.input_is_open = False
        pump.run()


class Pump:
    """Carries standard input in, and standard output and error out, until the stream ends."""

    def __init__(self, stream: socket.socket, box: Box) -> None:
        stream.setblocking(False)
        self.stream = stream
        self.box = box
        self.waiting = b""  # for the container's standard input
        self.input_is_open = True
        self.is_fed = False  # all of the input went out
        self.header = b""
        self.left = 0  # bytes of the frame at hand
        self.target = 1

    def run(self) -> bool:
        """Whether all of the input was carried."""
        poller = select.poll()
        poller.register(self.box.wake_r, select.POLLIN)
        poller.register(self.stream, select.POLLIN | (select.POLLOUT if self.input_is_open else 0))
        while True:
            for fd, event in poller.poll():
                if fd == self.box.wake_r:
                    os.read(self.box.wake_r, BLOCK)
                    if self.box.asked_to_stop:
                        self.box.pass_stop_on()
                    continue
                if event & select.POLLOUT and self.input_is_open and not self.feed():
                    poller.modify(self.stream, select.POLLIN)
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and not self.take():
                    return self.is_fed

    def feed(self) -> bool:
        """Whether there is more to feed."""
        if not self.waiting:
            self.waiting = os.read(0, BLOCK)
        try:
            if self.waiting:
                self.waiting = self.waiting[self.stream.send(self.waiting) :]
                return True
            self.is_fed = True
            self.stream.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return True
        except OSError:
            pass  # it does not read any more, or is over
        self.input_is_open = False
        return False

    def take(self) -> bool:
        """Whether there may be more to come."""
        try:
            block = self.stream.recv(BLOCK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.sort_out(block)
        return bool(block)

    def sort_out(self, block: bytes) -> None:
        """Frames: which stream, how long, that many bytes."""
        while block:
            if self.left == 0:
                need = 8 - len(self.header)
                self.header, block = self.header + block[:need], block[need:]
                if len(self.header) == 8:
                    self.target = 2 if self.header[0] == 2 else 1
                    self.left, self.header = int.from_bytes(self.header[4:], "big"), b""
                continue
            piece, block = block[: self.left], block[self.left :]
            self.left -= len(piece)
            while piece:
                piece = piece[os.write(self.target, piece) :]


def end_as(code: int) -> int:
    """End as the agent ended: by the signal that ended it, where that says more than a number would."""
    number = code - 128
    if number in CRASHES:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    return code


# -- end -----------------------------------------------------------------------------------------------------------


def end(path: str, container: str) -> int:
    """Kill it if it runs, and see that it does not. One that never ran goes: a start that the engine has not come to
    yet would find nothing to start, while a container that does not run would run behind our back."""
    deadline = time.monotonic() + KILL_PATIENCE
    pause = 0.01
    while True:
        state = state_of(path, container)
        if state is None:
            return ENDED
        is_new = state.get("Status") in NEVER_RAN
        if not is_running(state) and not is_new:
            return ENDED_OUT_OF_MEMORY if state.get("OOMKilled") else ENDED
        if time.monotonic() > deadline:
            return UNKNOWN
        if is_new:
            ask(path, "DELETE", f"/containers/{container}?force=1&v=1")
            continue
        if state.get("Paused"):
            ask(path, "POST", f"/containers/{container}/unpause")
        ask(path, "POST", f"/containers/{container}/kill?signal=SIGKILL")
        time.sleep(pause)
        pause = min(0.5, pause * 2)


def main(what: str, path: str, container: str) -> int:
    try:
        return end_as(Box(path, container).run()) if what == "run" else end(path, container)
    except (EngineLost, Refused, OSError, http.client.HTTPException, KeyError, ValueError) as problem:
        print(f"holdfast: container {container[:12]} at {path}: {problem}", file=sys.stderr, flush=True)
        if isinstance(problem, EngineLost):
            os.kill(os.getpid(), ENGINE_LOST)
        return COULD_NOT_START if what == "run" else UNKNOWN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
