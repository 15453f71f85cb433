"""What a stage left behind: shown, exported, and told to later stages."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_TEXT = 64 * 1024  # characters of an answer that are kept: its end, where the conclusion is
MOST_GATE = 16 * 1024  # of what a gate printed: its end, where the failure is
MOST_FILES = 500  # names of changed files


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """How a stage's gate ended."""

    command: str
    passed: bool
    how: str  # in words: "exited with 1", "timed out after 10 m"
    output: str = ""  # the end of what it printed, both streams


@dataclass(frozen=True, kw_only=True, slots=True)
class Touched:
    """What is not as it was at the task's base."""

    files: tuple[str, ...] = ()
    count: int = 0  # more than `files`, where there are too many
    commit: str | None = None  # where the workspace's HEAD is; None: not known


NOTHING_TOUCHED = Touched()


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one run of a stage (or of a member of one) came to."""

    stage: int
    name: str  # of the stage
    visit: int = 0
    attempt: int = 1  # of this visit: 2 after the first failed try
    member: str = ""  # of a parallel stage
    run_id: str | None = None  # None: its agent never started
    agent: str = ""
    outcome: str = ""
    reason: str = ""
    ruling: str = ""  # of a reviewing stage: approve | changes
    passed: bool = True  # whether it counts as done: the outcome, its gate and its ruling together
    text: str = ""  # its agent's last answer
    files: tuple[str, ...] = ()  # that changed since the task's base
    commit: str | None = None  # where the workspace's HEAD was
    gate: GateResult | None = None
    started_at: float | None = None
    ended_at: float | None = None
    number: int = field(default=0, compare=False)  # within its task, in order; 0: not recorded yet
