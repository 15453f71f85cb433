"""Whole supervisors without a process: the real services, store, policy and attempts over agents that only say how they
ended, under a clock that only the test moves.

What is left out is what takes time and has suites of its own (processes, workspaces, the sweep). What is in is every
decision about what happens next: that is what must come to an end, whatever the agents, the clock and the operators do.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents.port import NO_EDITS, Account, AgentCommand, Capabilities, EndedRun, HostFacts, WorkOrder
from holdfast.base.ids import new_id
from holdfast.base.instant import Instant
from holdfast.core.agents.events import AgentEvent
from holdfast.core.agents.stream import Stream
from holdfast.core.dispatch.holds import ProbeSight
from holdfast.core.dispatch.workers import WorkerList
from holdfast.core.health.signs import Sign
from holdfast.core.model import StopWhy, Strategy, TaskSpec
from holdfast.core.runs.outcome import Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.workflows.result import GateResult
from holdfast.processes.port import LaunchSpec, ReportBatch
from holdfast.store.port.transaction import Host, Transaction
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor.context import Context, Ports
from holdfast.supervisor.daemon import Supervisor
from holdfast.supervisor.ports import NoHealthWatch, ScheduleSource, WatchedRun
from holdfast.supervisor.runs.attempt import Attempt
from holdfast.supervisor.runs.attempts import recover
from holdfast.supervisor.runs.run import RunDriver
from holdfast.supervisor.settings import RetentionTimes, SupervisorSettings
from holdfast.workspaces.strategies.none import NoneStrategy

PATIENCE = 60.0  # real seconds for what takes milliseconds
START = Instant(wall=1_800_000_000.0, boottime=1_000.0, boot_id="boot-0")
FOR_EVER = RetentionTimes(events=float("inf"), runs=float("inf"), tasks=float("inf"), salvages=float("inf"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a played agent ends: by its own words, by something outside, or because its health was judged."""

    name: str
    said: Outcome = Outcome.CRASHED  # its words: it said nothing that we know
    cause: Cause = Cause.EXITED
    signal: int | None = None
    resets_in: float | None = None
    judged: StopWhy | None = None
    answer: str = ""  # its last words
    has_answer: bool = True  # False: its first request was refused


class PlayedRun:
    """A LiveRun whose agent ends when the test says so. It outlives supervisors, as a keeper's would."""

    keeper = None
    agent = None

    def __init__(self) -> None:
        self._over: asyncio.Future[ProcessEnd] = asyncio.get_running_loop().create_future()
        self.words = Verdict(outcome=Outcome.CRASHED, reason="it said nothing")

    @property
    def lives(self) -> bool:
        return not self._over.done()

    def end(self, ending: Ending, now: float) -> None:
        resets_at = None if ending.resets_in is None else now + ending.resets_in
        self.words = Verdict(
            outcome=ending.said,
            reason=f"it ended as {ending.name}",
            resets_at=resets_at,
            session_id="its-session",
            has_answer=ending.has_answer,
        )
        self._over.set_result(ProcessEnd(cause=ending.cause, code=1, signal=ending.signal))

    async def wait_started(self) -> int | None:
        return 4711

    async def wait_ended(self) -> ProcessEnd:
        return await asyncio.shield(self._over)

    def stop(self, *, fast: bool) -> None:
        if self.lives:
            self._over.set_result(ProcessEnd(cause=Cause.STOPPED))

    def beat(self, incarnation: str) -> None:
        return

    def output(self, stream: Stream = Stream.OUT) -> Iterator[str]:
        if stream is Stream.OUT:
            yield json.dumps([str(self.words.outcome), self.words.resets_at, self.words.has_answer])

    def error_tail(self) -> str:
        return "played"

    def left(self, name: str) -> str:
        return ""

    def note(self) -> str:
        return ""

    def channel(self, offset: int) -> NoReports:
        return NoReports(offset)

    def close(self) -> None:
        return


class NoReports:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def changed(self) -> bool:
        return False

    def read(self, *, last: bool = False) -> ReportBatch:
        return ReportBatch(offset=self._offset)


class PlayedProcesses:
    """The Processes port as far as attempts use it."""

    def __init__(self) -> None:
        self.runs: dict[str, PlayedRun] = {}

    def launch(self, spec: LaunchSpec) -> PlayedRun:
        self.runs[spec.run_id] = PlayedRun()
        return self.runs[spec.run_id]

    def find(self, run_id: str) -> PlayedRun:
        if run_id not in self.runs:  # intended, and its supervisor died before the launch
            self.runs[run_id] = PlayedRun()
            self.runs[run_id].end(Ending(name="never started", cause=Cause.NEVER_STARTED), 0.0)
        return self.runs[run_id]

    def is_held(self, run_id: str) -> bool:
        return run_id in self.runs and self.runs[run_id].lives

    def forget(self, run_id: str) -> None:
        return

    def sweep(self, open_runs: Iterable[str]) -> int:
        return 0


class PlayedGates:
    """The part of the Furnishing port that stages use: gates that pass or fail as the test says."""

    def __init__(self) -> None:
        self.verdicts: Iterator[bool] = itertools.repeat(True)

    async def gate(
        self, _workspace: object, _kind: str, command: str, _env: object, _timeout: float, _runner: object
    ) -> GateResult:
        passed = next(self.verdicts)
        return GateResult(command=command, passed=passed, how=f"exited with {0 if passed else 1}", output="played")

    def cut_short(self, task_id: str) -> None:
        return


class PlayedAgent:
    """An adapter that believes what the played run says."""

    name = "played"
    reads_events = False
    reads_errors = False
    result_files: Sequence[str] = ()
    login_variables: Sequence[str] = ()
    litter: Sequence[str] = ()
    own_edits: Mapping[str, str] = NO_EDITS
    longest_quiet_answer = 0.0
    capabilities = Capabilities(tokens=False)

    def provider(self, options: Mapping[str, object]) -> str:
        return ""

    def problem(self, options: Mapping[str, object], surroundings: HostFacts) -> str | None:
        return None

    def build(self, order: WorkOrder) -> AgentCommand:
        return AgentCommand(argv=["played"])

    def parse(self, line: str, stream: Stream) -> Sequence[AgentEvent]:
        return ()

    def signs(self, line: str, stream: Stream) -> Sequence[Sign]:
        return ()

    def judge(self, ended: EndedRun) -> Verdict:
        outcome, resets_at, has_answer = json.loads(next(iter(ended.output)))
        return Verdict(
            outcome=Outcome(outcome),
            reason=f"it said {outcome}",
            resets_at=resets_at,
            session_id="its-session",
            has_answer=has_answer,
        )


class PlayedWatch:
    """Agents live without trouble for as long as they live."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[str, Instant] = {}

    def began(self, patient: WatchedRun) -> None:
        self._since[patient.run_id] = self._world.now

    def ending(self, run_id: str, grace: float) -> None:
        return

    def over(self, run_id: str) -> None:
        self._since.pop(run_id, None)

    def probe_sight(self, run_id: str) -> ProbeSight:
        since = self._since.get(run_id)
        return ProbeSight() if since is None else ProbeSight(lived=self._world.now.since(since))


class TwoAccounts:
    """The user's own login and another one."""

    def names(self, _agent: str) -> Sequence[str]:
        return ("default", "work")

    choosable = names

    def look_up(self, _agent: str, name: str) -> Account:
        return Account(name=name)


class World:
    """A home, a clock and one supervisor after the other. Use within one event loop."""

    def __init__(
        self, limits: RetryLimits, *, watched: bool = False, agents: int = 4, staff: WorkerList | None = None
    ) -> None:
        shm = "/dev/shm"
        self.home = tempfile.mkdtemp(prefix="holdfast-played-", dir=shm if os.path.isdir(shm) else None)
        self.now = START
        self.limits = limits
        self._watched = watched  # the agents are seen to live; otherwise nothing is seen of them
        self.agents = agents
        self.staff = staff or WorkerList()
        self.processes = PlayedProcesses()
        self.gates = PlayedGates()
        self.store = SqliteStore(self.home)
        self.repo = self.store.write(lambda tx: tx.workspaces.register_repo(self.home, self.home, self.now))
        self.schedule_files: ScheduleSource | None = None  # what a supervisor that starts will go by
        self.supervisor: Supervisor | None = None
        self._closing = contextlib.ExitStack()

    # -- supervisors ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """A new incarnation takes over, as after `kill -9` of the one before."""
        await self._leave()
        host = Host(id=new_id(), boot_id=self.now.boot_id, pid=1, start_ticks=1, version="played", agents=self.agents)
        self.store.write(lambda tx: tx.hosts.open(host, 30.0, self.now))
        writer = GroupWriter(self.home)
        self._closing.callback(writer.close)
        context = Context(
            home=self.home,
            host_id=host.id,
            clock=lambda: self.now,
            jitter=lambda: 0.5,
            store=self.store,
            writer=writer,
            limits=self.limits,
            settings=SupervisorSettings(agents=self.agents, keeping=FOR_EVER, staff=self.staff),
            ports=Ports(
                processes=self.processes,  # type: ignore[arg-type]  # as far as attempts use it
                strategy_of=lambda _spec: NoneStrategy(),
                agents={"played": PlayedAgent()},
                environment=lambda _wanted: {},
                accounts=TwoAccounts(),
                schedule_files=self.schedule_files,
                workspace_setup=self.gates,  # type: ignore[arg-type]  # as far as stages use it
            ),
        )
        self.supervisor = Supervisor(context)
        self.context = context
        context.services.health = (
            PlayedWatch(self) if self._watched else NoHealthWatch()
        )  # the real one's clock is the machine's
        self.supervisor._sweep.tick = _nothing  # type: ignore[method-assign]  # there is nothing on this disk
        await recover(context, self.supervisor._attempts)
        await self.look()

    async def _leave(self) -> None:
        if self.supervisor is None:
            return
        self.supervisor._attempts.abandon()
        await self.supervisor._attempts.wait_all()
        for background in (*self.supervisor._cleanup.tasks, *self.supervisor._retention.tasks):
            background.cancel()
            await asyncio.wait([background])
        self._closing.close()
        self.supervisor = None

    async def close(self) -> None:
        await self._leave()
        self.store.close()
        shutil.rmtree(self.home, ignore_errors=True)

    async def look(self) -> None:
        """One look of the supervisor, and everything that follows from it, until it waits for an agent or for time."""
        supervisor = self.supervisor
        assert supervisor is not None
        host = self.context.host_id
        await self.context.writer.write(lambda tx: tx.hosts.beat(host, 30.0, self.now))
        self.context.shared.places.changed()  # groups look at the clock
        for _ in range(3):  # what one service did, another may see only at its next look
            await supervisor._look()
            await self._settled(supervisor)

    async def _settled(self, supervisor: Supervisor) -> None:
        async with asyncio.timeout(PATIENCE):
            # polled: attempts are not ours to hang an event on
            while any(not self._waits(attempt) for attempt in self._driven(supervisor)):  # noqa: ASYNC110
                await asyncio.sleep(0.0005)

    def _driven(self, supervisor: Supervisor) -> list[Attempt | None]:
        return [supervisor._attempts.get(task_id) for task_id in supervisor._attempts._tasks]

    def _waits(self, attempt: Attempt | None) -> bool:
        """For its agent, or for those of all its members: it has seen them started, and they live."""
        return attempt is not None and bool(attempt.runs) and all(map(self._is_at_work, attempt.runs))

    def _is_at_work(self, driver: RunDriver) -> bool:
        if driver.run is None or driver.report_reader is None:
            return False
        run = self.processes.runs.get(driver.run.id)
        return run is not None and run.lives

    # -- what happens --------------------------------------------------------------------------------------------------

    @property
    def unfrozen(self) -> list[str]:
        """The runs whose agents live."""
        return [run_id for run_id, run in self.processes.runs.items() if run.lives]

    async def end(self, run_id: str, ending: Ending) -> None:
        run = self.processes.runs[run_id]
        if ending.judged is not None:
            assert self.supervisor is not None
            for attempt in self.supervisor._attempts.unfrozen:
                if any(driver.run is not None and driver.run.id == run_id for driver in attempt.runs):
                    await attempt.stop(ending.judged, fast=False, reason="judged")
        if run.lives:
            if ending.answer:
                os.makedirs(os.path.join(self.home, "runs", run_id), exist_ok=True)
                with open(os.path.join(self.home, "runs", run_id, "out.log"), "w", encoding="utf-8") as out:
                    out.write(ending.answer)
            run.end(ending, self.now.wall)
        await self.look()

    def pass_time(self, seconds: float) -> None:
        self.now = self.now._replace(wall=self.now.wall + seconds, boottime=self.now.boottime + seconds)

    def set_clock(self, by: float) -> None:
        """Somebody moves the wall clock; the machine's own clock continues."""
        self.now = self.now._replace(wall=max(0.0, self.now.wall + by))

    def reboot(self) -> None:
        """Nothing survives: keepers die with the machine, and the clock of the boot begins again."""
        for run in self.processes.runs.values():
            if run.lives:
                run.end(Ending(name="reboot", cause=Cause.KEEPER_DIED), self.now.wall)
        self.now = self.now._replace(boottime=1.0, boot_id=f"boot-{new_id()}")

    def write(self, operation: Callable[[Transaction], Any]) -> Any:
        return self.store.write(operation)

    def add(self, **changes: Any) -> str:
        spec = TaskSpec(
            **{
                "id": new_id(),
                "repo_id": self.repo.id,
                "prompt": "play",
                "agent": "played",
                "strategy": Strategy.DIRECTORY,  # in name: more than one may run at once
            }
            | changes
        )
        self.write(lambda tx: tx.tasks.add(spec, self.now))
        return spec.id

    def row(self, task_id: str) -> dict[str, Any]:
        [row] = self.store.view("task", id=task_id)
        return row


async def _nothing() -> None:
    return None
