"""The processes port: everything that the supervisor can ask of runs' processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from holdfast.base.dataclass import dataclass
from holdfast.core.agents.stream import Stream
from holdfast.core.cleanup.observed import StrayProcess
from holdfast.core.health.signs import AgentActivity, SignReader
from holdfast.core.model import Report
from holdfast.core.runs.liveness import ProcessIdentity
from holdfast.core.runs.outcome import ProcessEnd
from holdfast.core.task_settings import DEFAULT_LIMITS, RunLimits


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """Everything that is needed to start an agent process. Written to disk before the start (R-TERM-02)."""

    run_id: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdin: str
    timeout: float
    grace: float
    fast_grace: float
    orphan_grace: float
    limits: RunLimits = DEFAULT_LIMITS
    ender: Sequence[str] = ()  # command that ends the agent's container; exit code 0 proves that the container ended
    files: Mapping[str, str] = field(default_factory=dict)  # name → text: private to the run, written before the start
    chosen: Sequence[str] = ()  # names of variables that adapter or account set; a container gets them too
    told: str = ""  # the agent's prompt, if that is not its task's own prompt; kept in the run directory
    token: str = ""  # the token that this run's reports must carry; kept on disk for the next supervisor
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportBatch:
    """The new reports in a run's channel. They were read up to `offset`. `more`: there is unread data after that."""

    offset: int
    reports: Sequence[Report] = ()
    refused: int = 0
    refused_why: str = ""  # the reason of the first refusal
    more: bool = False


class ReportChannel(Protocol):
    """The reports of one run's agent. Their content is not trusted."""

    def changed(self) -> bool:
        """True if there may be new reports. Costs one stat call."""
        ...

    def read(self, *, last: bool = False) -> ReportBatch:
        """Return a bounded piece of the new reports.

        `last`: the agent has ended, so an unfinished line will not be completed and is read as it is.
        """
        ...


class LiveRun(Protocol):
    """A run whose keeper lives, or has ended and left its records."""

    @property
    def keeper(self) -> ProcessIdentity | None:
        """The keeper, which is the root of the run's process tree. None while it is not known."""
        ...

    @property
    def agent(self) -> ProcessIdentity | None:
        """The agent's first process (the leader of the tree), as recorded. None while it is not recorded."""
        ...

    async def wait_started(self) -> int | None:
        """Return the agent's pid as soon as it is recorded. None: the keeper ended without starting the agent."""
        ...

    async def wait_ended(self) -> ProcessEnd:
        """Wait until the whole tree is proven empty. Return cause `unproven` if that cannot be proven."""
        ...

    def stop(self, *, fast: bool) -> None: ...
    def beat(self, incarnation: str) -> None: ...
    def output(self, stream: Stream = Stream.OUT) -> Iterator[str]: ...
    def error_tail(self) -> str: ...
    def left(self, name: str) -> str:
        """Return a file that the agent left in the folder of its reports, or "" without one."""
        ...

    def note(self) -> str:
        """Return what the keeper could not do for this run, as text. Usually empty."""
        ...

    def channel(self, offset: int) -> ReportChannel:
        """Return the channel of the agent's reports, from `offset` on."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessTree:
    """The processes of one run at one moment, without the keeper."""

    cpu: float  # seconds used by these processes and by those that ended before
    newest_start: float  # when the youngest process started, in seconds since boot
    resident: int  # bytes of memory
    pids: tuple[int, ...]


class ViewChanges(Protocol):
    """The kinds of change that one look at a run found."""

    @property
    def output(self) -> bool: ...
    @property
    def channel(self) -> bool: ...
    @property
    def behind(self) -> bool:
        """True if there is more to read than one look reads: look again soon."""
        ...


class RunViewPort(Protocol):
    """One run as seen from outside. All times are CLOCK_MONOTONIC."""

    started_at: float
    output_at: float | None
    channel_at: float | None
    talk: AgentActivity
    told: str

    def look(self, now: float) -> ViewChanges: ...
    def leader_ended(self) -> bool: ...
    def save(self) -> None:
        """Save the view for the next supervisor. May raise OSError, which costs only time: the logs are read again."""
        ...


class Observer(Protocol):
    """A watcher of runs, without a timer or a poller per run."""

    def watch(self, run_id: str, signs: SignReader | None, agent: ProcessIdentity | None, now: float) -> RunViewPort:
        """Begin to watch a run.

        `agent` is given for a run of an earlier supervisor: the view continues from what that supervisor saved.
        """
        ...

    def unwatch(self, run_id: str) -> None: ...
    def trees(self, roots: Mapping[str, ProcessIdentity]) -> Mapping[str, ProcessTree]:
        """Return the process tree below each keeper, from one snapshot of all processes."""
        ...

    def close(self) -> None: ...


class Processes(Protocol):
    """The port itself: launches runs, finds them again, and removes what they left."""

    def launch(self, spec: LaunchSpec) -> LiveRun: ...
    def find(self, run_id: str) -> LiveRun:
        """Return a run of an earlier supervisor: its keeper, if that lives, or the records that it left."""
        ...

    def is_held(self, run_id: str) -> bool:
        """True if a keeper of that run lives (or is about to be started)."""
        ...

    def forget(self, run_id: str) -> None:
        """Delete what a settled run does not need any more. Its logs stay."""
        ...

    def sweep(self, open_runs: Iterable[str]) -> int:
        """Remove the cgroups that killed keepers of other runs left. Return how many."""
        ...

    def strays(self) -> Sequence[StrayProcess]:
        """Return every process that carries the marker of a run of this home, or works in one of its workspaces.

        Helpers of this supervisor are left out.
        """
        ...

    def end_stray(self, stray: StrayProcess) -> Awaitable[bool]:
        """End exactly this process, which is proven to be ours. False: the process is still alive."""
        ...

    def observe(self, on_change: Callable[[str, bool], None]) -> Observer:
        """Call `on_change(run_id, is_output)`, on the loop's thread, when a watched run may have written something.

        `is_output`: the run wrote to its logs and nothing else.
        """
        ...
