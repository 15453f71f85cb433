"""What the supervisor may ask of processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.core.agents.events import Stream
from holdfast.core.cleanup.observed import Stray
from holdfast.core.health.signs import SignReader, Talk
from holdfast.core.model import Report
from holdfast.core.runs.liveness import Identity
from holdfast.core.runs.outcome import ProcessEnd
from holdfast.core.task_settings import DEFAULT_LIMITS, RunLimits


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchSpec:
    """Everything an agent process needs. Registered durably before it starts (R-TERM-02)."""

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
    ender: Sequence[str] = ()  # ends what the agent has outside of its process tree; exit code 0 proves that it did
    files: Mapping[str, str] = field(default_factory=dict)  # name → text: private to the run, there before it starts
    chosen: Sequence[str] = ()  # variables that its adapter or its account set: a container gets them too
    told: str = ""  # the prompt that it gets, where that is not its task's own: kept beside its output
    token: str = ""  # what this run's reports have to carry; kept, so that the next supervisor knows it too
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What was new in a run's channel. `offset` is how far it was read; `more` is waiting behind that."""

    offset: int
    reports: Sequence[Report] = ()
    refused: int = 0
    refused_why: str = ""  # of the first that was refused
    more: bool = False


class ReportChannel(Protocol):
    """What the agent of one run says of itself. Everything in it is a stranger's word."""

    def changed(self) -> bool:
        """Whether there may be something new; costs one stat."""
        ...

    def read(self, *, last: bool = False) -> Batch:
        """A bounded piece of what is new. `last`: nobody writes any more, so an unfinished line is all there is."""
        ...


class LiveRun(Protocol):
    """A run whose keeper lives, or has ended and left its records."""

    @property
    def keeper(self) -> Identity | None:
        """The root of its process tree; None while it is not known."""
        ...

    @property
    def agent(self) -> Identity | None:
        """The leader of its process tree, as recorded; None while it is not."""
        ...

    async def wait_started(self) -> int | None:
        """The agent's pid as soon as it is recorded; None when the keeper ended without starting it."""
        ...

    async def wait_over(self) -> ProcessEnd:
        """When the whole tree is proven empty; or with cause `unproven` when nobody can prove it."""
        ...

    def stop(self, *, fast: bool) -> None: ...
    def beat(self, incarnation: str) -> None: ...
    def output(self, stream: Stream = Stream.OUT) -> Iterator[str]: ...
    def error_tail(self) -> str: ...
    def left(self, name: str) -> str:
        """A file that the agent left beside its reports; empty without one."""
        ...

    def note(self) -> str:
        """What its keeper could not do for it, in words; mostly nothing."""
        ...

    def channel(self, offset: int) -> ReportChannel:
        """The agent's reports from there on."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """The processes of one run at one moment, the keeper aside."""

    cpu: float  # seconds that they and those before them have used
    newest_start: float  # when the youngest started, in seconds since boot
    resident: int  # bytes of memory
    pids: tuple[int, ...]


class Seen(Protocol):
    """What a look found to be new."""

    @property
    def output(self) -> bool: ...
    @property
    def channel(self) -> bool: ...
    @property
    def behind(self) -> bool:
        """There is more to read than one look reads: look again soon."""
        ...


class View(Protocol):
    """What can be seen of one run from outside. Moments are CLOCK_MONOTONIC."""

    started_at: float
    output_at: float | None
    channel_at: float | None
    talk: Talk
    told: str

    def look(self, now: float) -> Seen: ...
    def leader_ended(self) -> bool: ...
    def save(self) -> None:
        """For the next supervisor. May raise OSError; nothing is lost but time."""
        ...


class Observer(Protocol):
    """Watches runs without a timer or a poller of their own."""

    def watch(self, run_id: str, signs: SignReader | None, agent: Identity | None, now: float) -> View:
        """`agent` is given for a run of an earlier supervisor: it goes on from what that one kept."""
        ...

    def unwatch(self, run_id: str) -> None: ...
    def trees(self, roots: Mapping[str, Identity]) -> Mapping[str, Tree]:
        """The tree below each keeper, from one snapshot of all processes."""
        ...

    def close(self) -> None: ...


class Processes(Protocol):
    def launch(self, spec: LaunchSpec) -> LiveRun: ...
    def find(self, run_id: str) -> LiveRun:
        """A run of an earlier incarnation: its keeper, if it lives, or what it left."""
        ...

    def is_held(self, run_id: str) -> bool:
        """Whether a keeper of that run lives (or is about to)."""
        ...

    def forget(self, run_id: str) -> None:
        """Drop what a settled run does not need any more; its logs stay."""
        ...

    def sweep(self, open_runs: Iterable[str]) -> int:
        """Remove what killed keepers of other runs left in the kernel; how much."""
        ...

    def strays(self) -> Sequence[Stray]:
        """Every process with the marker of a run of this home, or at work in one of its workspaces; not our helpers."""
        ...

    def end_stray(self, stray: Stray) -> Awaitable[bool]:
        """End that very process, of which it is proven that it is ours; False: it is still there."""
        ...

    def observe(self, on_change: Callable[[str, bool], None]) -> Observer:
        """Call `on_change(run_id, is_output)`, on the loop's thread, when a watched run may have written something;
        `is_output`: to its logs, and nothing else."""
        ...
