"""The client that stands for an agent in a container, as a real process, against an engine that goes away under it.

Each was found by the family `engine` of the fault campaign, with a real engine; here the engine is played, so that
every answer comes, or does not, at the instant that matters.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import LaunchError, Unavailable
from holdfast.containers import client as boxed
from holdfast.containers.container_run import Enclosure
from holdfast.containers.engine import ContainerSpec, Engine, Engines
from holdfast.core.model import Strategy, TaskSpec
from holdfast.core.task_settings import ContainerRules, RunLimits

CUT = object()  # the connection is closed without an answer
Answer = object


def state(status: str, **more: object) -> tuple[int, object]:
    return 200, {"State": {"Status": status, "Running": status == "running", **more}}


def frame(text: bytes) -> bytes:
    return b"\1\0\0\0" + len(text).to_bytes(4, "big") + text


def _request(line: socket.socket) -> bytes:
    """All of it: who is answered in the middle of a request may take that for a broken line."""
    got, head = b"", b""
    while not head or len(got) < len(head) + 4 + _length(head):
        if not (more := line.recv(65536)):
            return got
        got += more
        head = got.partition(b"\r\n\r\n")[0] if b"\r\n\r\n" in got else b""
    return got


def _length(head: bytes) -> int:
    lines = [text.lower().split(b":") for text in head.split(b"\r\n")]
    return next((int(words[1]) for words in lines if words[0] == b"content-length"), 0)


class PlayedEngine:
    """Answers in the order of its script: (word in the request, answer). A request that is not next is a failure."""

    def __init__(self, path: Path, script: Sequence[tuple[str, Answer]]) -> None:
        self.path = str(path)
        self.asked: list[str] = []
        self._script = list(script)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        streams = []
        for word, answer in self._script:
            line = self._listener.accept()[0]
            head = _request(line)
            first = head.split(b"\r\n")[0].decode()
            self.asked.append(first)
            if word not in first:
                self.asked.append(f"… but {word} was due")
                line.close()
                return
            if isinstance(answer, bytes):  # a stream: what the container says, then its end
                line.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n" + answer)
            elif isinstance(answer, tuple):
                body = json.dumps(answer[1]).encode()
                line.sendall(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n" % answer[0])
                line.sendall(b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            elif answer is None:  # a stream that stays until the next answer
                line.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n")
                streams.append(line)
                continue
            line.close()
            for stream in streams:
                while answer == (204, None) and stream.recv(65536):
                    pass  # it is started: until all of its input was carried
                stream.close()
            streams.clear()
        self._listener.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.close()


@pytest.fixture
def engine_path(tmp_path: Path) -> Path:
    return tmp_path / "e.sock"


def client(engine: PlayedEngine, what: str = "run") -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-I", "-S", boxed.__file__, what, engine.path, "c1"]
    return subprocess.run(words, input=b"the prompt", capture_output=True, timeout=60, check=False)


RUNNING, CREATED = state("running"), state("created")


def exited(code: int) -> tuple[int, object]:
    return state("exited", ExitCode=code)


@pytest.mark.parametrize(
    "script",
    [
        [("attach", CUT)],
        [("attach", (503, {"message": "shutting down"}))],
        [("attach", None), ("start", CUT)],
        [("attach", None), ("start", (500, {"message": "context canceled"}))],
    ],
)
def test_an_engine_that_goes_away_at_the_start_is_no_exit_code_of_the_agent(
    engine_path: Path, script: list[tuple[str, Answer]]
) -> None:
    """R-TERM-12, engine:container-success/engine/start:1:killed: the task failed with "exited with code 125"."""
    engine = PlayedEngine(engine_path, script)
    done = client(engine)
    assert done.returncode == -signal.SIGUSR2, (done, engine.asked)
    assert b"container c1" in done.stderr


def test_a_start_that_is_refused_for_good_says_so(engine_path: Path) -> None:
    engine = PlayedEngine(engine_path, [("attach", None), ("start", (400, {"message": "no such program"}))])
    done = client(engine)
    assert (done.returncode, b"no such program" in done.stderr) == (boxed.COULD_NOT_START, True), engine.asked


def attached_and_started(*rest: tuple[str, Answer]) -> list[tuple[str, Answer]]:
    return [("attach", None), ("start", (204, None)), *rest]


def test_an_end_that_the_engine_brought_about_is_not_the_agents_word(engine_path: Path) -> None:
    """engine:container-success/engine/at:2361:restart: an engine that is restarted ends its containers; an agent that
    handles TERM then has any code, zero too."""
    engine = PlayedEngine(engine_path, attached_and_started(("json", CUT), ("json", exited(0))))
    assert client(engine).returncode == -signal.SIGUSR2, engine.asked


def test_an_agent_that_outlives_its_engine_is_listened_to_again(engine_path: Path) -> None:
    """An engine with live-restore is replaced under its containers: what they say afterwards is heard, what is missing
    is said, and the exit code is the agent's."""
    again = [("json", CUT), *[("json", RUNNING)] * (boxed.CHECKS_AFTER_STREAM + 1), ("attach", frame(b"later\n"))]
    engine = PlayedEngine(engine_path, attached_and_started(*again, ("json", exited(4))))
    done = client(engine)
    assert (done.returncode, done.stdout) == (4, b"later\n"), engine.asked
    assert b"output may be missing" in done.stderr


def test_a_container_that_is_stopped_from_outside_was_ended_by_a_signal(engine_path: Path) -> None:
    engine = PlayedEngine(engine_path, attached_and_started(("json", exited(128 + signal.SIGTERM))))
    assert client(engine).returncode == -signal.SIGTERM, engine.asked


def test_a_container_that_never_ran_is_removed_before_it_is_said_to_be_over(engine_path: Path) -> None:
    """A start whose client died may still be on its way through the engine: it must find nothing to start."""
    engine = PlayedEngine(engine_path, [("json", CREATED), ("DELETE", (204, None)), ("json", (404, {"message": "no"}))])
    assert (client(engine, "end").returncode, len(engine.asked)) == (boxed.ENDED, 3)


@pytest.mark.parametrize(("status", "expected"), [(500, Unavailable), (400, LaunchError)])
def test_only_a_refusal_for_good_fails_a_task(engine_path: Path, status: int, expected: type[Exception]) -> None:
    """engine:container-success/engine/create:1:error: an engine that is being ended says 500, and the task failed."""
    script: list[tuple[str, Answer]] = [
        ("version", (200, {"ApiVersion": "1.41"})),
        ("containers/json", (200, [])),
        ("info", (200, {"SecurityOptions": []})),
        ("create", (status, {"message": "what it says"})),
    ]
    engine = PlayedEngine(engine_path, script)
    order = ContainerSpec(
        name="n", argv=["true"], env={}, workspace="/w", channel="/c", labels={"dev.holdfast.workspace": "w"},
        rules=ContainerRules(image="i"), limits=RunLimits(),
    )  # fmt: skip
    with pytest.raises(expected, match="what it says"):
        Engine(engine.path).create(order)


def test_a_proof_removes_what_never_ran(engine_path: Path) -> None:
    """The supervisor's own proof, for a keeper that died: likewise."""
    one = {"Id": "c1", "State": "created"}
    script: list[tuple[str, Answer]] = [
        ("version", (200, {"ApiVersion": "1.41"})),
        ("containers/json", (200, [one])),
        ("DELETE", (204, None)),
        ("containers/json", (200, [])),
    ]
    engine = PlayedEngine(engine_path, script)
    Engine(engine.path).end({"dev.holdfast.workspace": "w"})
    assert [line.split()[0] for line in engine.asked] == ["GET", "GET", "DELETE", "GET"]


def test_an_engine_that_hangs_holds_up_nobody_else(engine_path: Path, tmp_path: Path) -> None:
    """R-TERM-10: found with a real engine under SIGSTOP: eight tasks waited for it on the threads of all others, which
    stood still. Here everybody else has one thread, and two wait for the engine."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(engine_path))
    listener.listen(8)  # it accepts, and never answers
    spec = TaskSpec(
        id="t", prompt="x", repo_id="r", base_ref="main", agent="command", strategy=Strategy.CONTAINER,
        container=ContainerRules(image="i", engine=str(engine_path)),
    )  # fmt: skip
    engines = Engines(str(tmp_path))
    enclosure = Enclosure(str(tmp_path), engines)

    async def work() -> tuple[str, Mapping[str, str]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = [asyncio.create_task(enclosure.check(spec)) for _ in range(2)]
        await asyncio.sleep(0)  # each has its thread by now
        async with asyncio.timeout(20):
            done = await run_in_thread(lambda: "done")
            engines.note(str(engine_path))
            silent = await enclosure.silent([spec], [])
        listener.close()  # what waits is refused now
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in told] == [Unavailable, Unavailable]
        return done, silent

    done, silent = asyncio.run(work())
    assert done == "done"
    assert silent == {str(engine_path): "no answer within 3 s"}
