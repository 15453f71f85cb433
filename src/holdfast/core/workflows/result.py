"""The stored result of a stage: shown, exported, and given to later stages."""

from __future__ import annotations

from dataclasses import field

from holdfast.base.dataclass import dataclass

MOST_TEXT = 64 * 1024  # characters of an answer that are kept: its end, where the conclusion is
MOST_GATE = 16 * 1024  # characters of a gate's output that are kept: its end, where the failure is
MOST_FILES = 500  # names of changed files


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """The end of a stage's gate."""

    command: str
    passed: bool
    how: str  # as text: "exited with 1", "timed out after 10 m"
    was_run: bool = True  # False: the command itself could not be run, so it says nothing about the work
    output: str = ""  # the end of its output, both streams


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangedFiles:
    """The files that differ from the task's base."""

    files: tuple[str, ...] = ()
    count: int | None = None  # larger than the length of `files`, if there are too many; None: unknown
    commit: str | None = None  # the workspace's HEAD; None: unknown


NO_CHANGED_FILES = ChangedFiles()


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """The result of one run of a stage, or of one of its members."""

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
    passed: bool = True  # True: it counts as done, from the outcome, its gate and its ruling together
    text: str = ""  # its agent's last answer
    files: tuple[str, ...] = ()  # files that changed since the task's base
    changed: int | None = None  # how many files; None: unknown
    commit: str | None = None  # the workspace's HEAD when the run ended
    gate: GateResult | None = None
    started_at: float | None = None
    ended_at: float | None = None
    number: int = field(default=0, compare=False)  # within its task, in order; 0: not recorded yet
