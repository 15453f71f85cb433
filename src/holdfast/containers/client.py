"""The container client: runs the agent of one run in its container, and ends that container.

Run as `client.py run|end SOCKET CONTAINER`. Standard library only, one file, nothing imported later.

A keeper starts `run` in place of the agent when the agent itself is in a container (ADR 0016). `run` starts the
container, copies standard input in and output out, passes TERM on, and ends as the container's main process ended.

The keeper starts `end` after that, whatever the reason was. `end` kills the container through the engine. Exit code 0
means that the engine reports "not running". Exit code 3 means the same, and that the kernel killed a process in the
container because of its memory limit. Any other code means that the state is unknown.

`run` ends by SIGUSR2 when the engine goes away before it has confirmed the start, or while the container ends. An
engine that is stopped stops its containers too, so the agent's exit code is then not its own.
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
KILL_PATIENCE = 8.0  # seconds for a container to end once it was killed
BLOCK = 65536
CHECKS_AFTER_STREAM = 5  # the stream ends a moment before the engine knows that the container ended
NEVER_RAN = ("created", "initialized")
CRASHES = frozenset(
    {signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
)


class EngineLost(Exception):
    """An engine that does not answer, or cannot do the request at the moment."""


class EngineRefused(Exception):
    """A refusal of the engine that would be repeated."""


class EngineConnection(http.client.HTTPConnection):
    """The engine's HTTP API on its unix socket."""

    def __init__(self, path: str, patience: float = PATIENCE) -> None:
        super().__init__("engine", timeout=patience)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def send_request(path: str, method: str, target: str, patience: float = PATIENCE) -> tuple[int, Any]:
    """Send a request and return (status, answer). Raises OSError or HTTPException when the engine does not answer."""
    engine = EngineConnection(path, patience)
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
    """Return the container's state according to the engine, or None if there is no such container."""
    status, answer = send_request(path, "GET", f"/containers/{container}/json")
    if status == 404:
        return None
    if status != 200:
        raise OSError(f"the engine answered {status}: {answer}")
    state: dict[str, Any] = answer["State"]
    return state


def is_running(state: dict[str, Any]) -> bool:
    return bool(state.get("Running") or state.get("Paused") or state.get("Restarting"))


# -- run -----------------------------------------------------------------------------------------------------------


class ContainerSession:
    """One container and the stream of its input and output."""

    def __init__(self, path: str, container: str) -> None:
        self.path = path
        self.container = container
        self.asked_to_stop = False
        self.was_reattached = False  # attached again without any output: an agent may close its output and live on
        self.wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self.record_stop_signal)

    def record_stop_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked_to_stop = True

    def run(self) -> int:
        """Start the container and return the exit code of its main process."""
        try:
            stream = self.attach()  # before the start, so that no output is lost
            if self.asked_to_stop:
                return 128 + signal.SIGTERM
            # Only one start: if its answer was lost, a second one could run the agent twice in one run.
            status, answer = send_request(self.path, "POST", f"/containers/{self.container}/start")
        except (OSError, http.client.HTTPException) as problem:
            raise EngineLost(problem) from problem
        if status not in (204, 304):
            words = answer.get("message", answer) if isinstance(answer, dict) else answer
            refusal = f"the engine could not start it: {words}"
            raise EngineLost(refusal) if status >= 500 else EngineRefused(refusal)
        whole = Pump(stream, self).run()
        while (code := self.wait()) is None:
            if not whole:
                raise EngineLost("the connection broke before all of the agent's input was sent")
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
            byte = stream.recv(1)  # byte by byte: what follows the header is the container's output
            if not byte:
                raise OSError("the engine closed the connection")
            head += byte
        status = head.split()[1]
        if status not in (b"101", b"200"):
            refusal = f"the engine would not attach: {head.decode(errors='replace').splitlines()[0]}"
            raise EngineLost(refusal) if status.startswith(b"5") else EngineRefused(refusal)
        return stream

    def forward_stop(self) -> None:
        """Send TERM to the agent in the container. The keeper decides how long the agent may take."""
        self.asked_to_stop = False
        try:
            send_request(self.path, "POST", f"/containers/{self.container}/kill?signal=SIGTERM")
        except (OSError, http.client.HTTPException):
            return

    def wait(self) -> int | None:
        """Return the container's exit code after the stream ended, or None if the container still runs: attach again.

        An engine that does not answer is asked again, because the agent may live. If the engine was away when the
        container ended, the exit code is not known: EngineLost.
        """
        pause, looks, was_away = 0.01, 0, False
        while True:
            try:
                state = state_of(self.path, self.container)
                looks += 1
            except TimeoutError:
                state = {"Running": True}  # the engine hangs, and will know the state afterwards
            except (OSError, http.client.HTTPException):
                state, was_away = {"Running": True}, True
            if state is None:
                return 128 + signal.SIGKILL  # the container was removed by another program
            if not is_running(state):
                if was_away:
                    raise EngineLost("the engine was away when its container ended")
                return int(state.get("ExitCode", 0))
            if looks > CHECKS_AFTER_STREAM and (was_away or not self.was_reattached):
                self.was_reattached = not was_away
                return None
            if self.asked_to_stop:
                self.forward_stop()
            time.sleep(pause)
            pause = min(1.0, pause * 1.5)

    def attach_again(self) -> None:
        """Attach to the running container again, for example after the engine was replaced.

        Output printed meanwhile is lost, so a line on standard error marks the gap.
        """
        try:
            stream = self.attach(with_input=False)
        except (OSError, http.client.HTTPException, EngineLost, EngineRefused):
            return  # wait() finds out the state
        words = f"holdfast: the connection to container {self.container[:12]} broke; output may be missing here\n"
        os.write(2, words.encode())
        pump = Pump(stream, self)
        pump.input_is_open = False
        pump.run()


class Pump:
    """The copy loop: standard input into the container, standard output and error out of it, until the stream ends."""

    def __init__(self, stream: socket.socket, box: ContainerSession) -> None:
        stream.setblocking(False)
        self.stream = stream
        self.box = box
        self.waiting = b""  # input that is not sent to the container yet
        self.input_is_open = True
        self.is_input_sent = False  # all of the input was sent
        self.header = b""
        self.left = 0  # bytes left of the current frame
        self.target = 1

    def run(self) -> bool:
        """Copy until the stream ends. True if all of the input was sent."""
        poller = select.poll()
        poller.register(self.box.wake_r, select.POLLIN)
        poller.register(self.stream, select.POLLIN | (select.POLLOUT if self.input_is_open else 0))
        while True:
            for fd, event in poller.poll():
                if fd == self.box.wake_r:
                    os.read(self.box.wake_r, BLOCK)
                    if self.box.asked_to_stop:
                        self.box.forward_stop()
                    continue
                if event & select.POLLOUT and self.input_is_open and not self.feed():
                    poller.modify(self.stream, select.POLLIN)
                if event & (select.POLLIN | select.POLLHUP | select.POLLERR) and not self.take():
                    return self.is_input_sent

    def feed(self) -> bool:
        """Send a piece of the input. True if there is more to send."""
        if not self.waiting:
            self.waiting = os.read(0, BLOCK)
        try:
            if self.waiting:
                self.waiting = self.waiting[self.stream.send(self.waiting) :]
                return True
            self.is_input_sent = True
            self.stream.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            return True
        except OSError:
            pass  # the container does not read any more, or has ended
        self.input_is_open = False
        return False

    def take(self) -> bool:
        """Copy a piece of the output. True if there may be more."""
        try:
            block = self.stream.recv(BLOCK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.write_frames(block)
        return bool(block)

    def write_frames(self, block: bytes) -> None:
        """Write the content of frames to standard output or error. A frame has a stream, a length, and the bytes."""
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


def exit_like_agent(code: int) -> int:
    """End as the agent ended: by the same signal if a signal ended the agent, else return the exit code."""
    number = code - 128
    if number in CRASHES:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
        os.kill(os.getpid(), number)
    return code


# -- end -----------------------------------------------------------------------------------------------------------


def end_container(path: str, container: str) -> int:
    """Kill the container if it runs, and wait until it does not.

    A container that never ran is removed. Otherwise a start that the engine has not processed yet could still run it
    after we reported that it does not run.
    """
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
            send_request(path, "DELETE", f"/containers/{container}?force=1&v=1")
            continue
        if state.get("Paused"):
            send_request(path, "POST", f"/containers/{container}/unpause")
        send_request(path, "POST", f"/containers/{container}/kill?signal=SIGKILL")
        time.sleep(pause)
        pause = min(0.5, pause * 2)


def main(what: str, path: str, container: str) -> int:
    try:
        return (
            exit_like_agent(ContainerSession(path, container).run())
            if what == "run"
            else end_container(path, container)
        )
    except (EngineLost, EngineRefused, OSError, http.client.HTTPException, KeyError, ValueError) as problem:
        print(f"holdfast: container {container[:12]} at {path}: {problem}", file=sys.stderr, flush=True)
        if isinstance(problem, EngineLost):
            os.kill(os.getpid(), ENGINE_LOST)
        return COULD_NOT_START if what == "run" else UNKNOWN


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
