"""The values that `holdfast.Client` returns: frozen dataclasses.

A field has the name and the value that it has in `--json` (docs/reference/json.md). Moments are seconds since the
epoch. None: there is no such value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict

from holdfast.base.dataclass import dataclass

if TYPE_CHECKING:
    from os import PathLike

    from holdfast.api.home.models import EventRow
    from holdfast.api.tasks.models import AgentEventRow, GateRow, RunRow, StageResultRow, TaskDetails, TaskRow

TaskState = Literal["queued", "running", "paused", "completed", "failed", "cancelled"]
Ids = list[str] | tuple[str, ...]  # several tasks; every method that acts takes one id, or these
ENDED = ("completed", "failed", "cancelled")


class TaskOptions(TypedDict, total=False):
    """The options of `Client.add` and `Client.run`. Without an option, your settings decide."""

    repo: str | PathLike[str]  # a directory in the repository; without it: the working directory
    agent: str  # which agent; `holdfast agents` lists them
    command: Sequence[str]  # a program to run instead of an agent
    workflow: str  # several stages; `holdfast workflows` lists them
    gate: str  # the task is done only if this command passes; "": no gate
    tries: int  # how often the agent may try until the gate passes
    model: str  # the agent's model
    permission: Literal["read", "edit", "full"]  # what the agent may do unasked
    account: str  # one of the agent's accounts
    base: str  # the branch or commit to start from
    ref: str  # start here; then the task is about the commits base..ref
    workspace: str  # worktree, clone, container, directory, directory:copy or none
    priority: int  # higher first
    labels: Mapping[str, str]
    parent: str  # the task that this one is a subtask of
    after: Sequence[str]  # start after these tasks completed
    delay: float  # seconds before which the task is not started
    timeout: float  # seconds after which a run is ended
    budget_usd: float  # pause the task when its runs cost so many dollars
    budget_tokens: int  # pause the task when its runs used so many tokens
    max_turns: int  # end a run after so many turns of its agent
    max_resumes: int  # how often the task may be resumed after a pause
    keep_workspace: bool  # keep the workspace whatever the outcome


class TaskChanges(TypedDict, total=False):
    """The changes of a task that `Client.set`, `Client.retry` and `Client.resume` make. Absent keys stay unchanged."""

    prompt: str
    agent: str  # another agent, which starts with a hand-over
    model: str
    account: str
    permission: str  # read, edit or full
    max_turns: int  # end a run after so many turns of its agent
    priority: int
    gate: str  # "": no gate
    tries: int
    timeout: float  # seconds after which a run is ended
    budget_usd: float
    budget_tokens: int
    max_resumes: int
    labels: Mapping[str, str]  # "": the label goes


@dataclass(frozen=True, kw_only=True, slots=True)
class GateResult:
    """The answer of a gate: a command that checks the work."""

    command: str
    passed: bool
    how: str  # how the command ended, in words
    output: str  # the end of what the command printed; empty in `Task.gate`

    @classmethod
    def _from_row(cls, row: GateRow | None) -> Self | None:
        return None if row is None else cls(**{"output": "", **_known(cls, row)})


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A task at the moment of the read. Read it again with `Client.task`."""

    id: str
    state: TaskState
    reason: str | None  # why the task is in this state, in words
    outcome: str | None  # how the newest run ended, as one word
    failure_reason: str | None  # why the task failed, as one word
    pause_reason: str | None  # why the task is paused, as one word
    resume_after: float | None  # when a paused task continues by itself
    prompt: str
    agent: str
    repo: str
    branch: str | None  # the branch with the work
    base_commit: str | None  # the commit that the work began from
    labels: Mapping[str, str]
    priority: int
    parent_id: str | None
    gate: GateResult | None  # the newest answer of the task's gate
    changed_files: int | None  # how many files an ended task changed; None: unknown
    refused_calls: int | None  # tool calls that the agent's CLI did not permit; None: unknown
    runs: int  # how many runs the task had
    tokens: int | None
    cost_usd: float | None
    created_at: float
    updated_at: float
    ended_at: float | None

    @property
    def ok(self) -> bool:
        """True if the task is completed."""
        return self.state == "completed"

    @property
    def ended(self) -> bool:
        """True if the task is completed, failed or cancelled."""
        return self.state in ENDED

    @classmethod
    def _from_row(cls, row: TaskRow) -> Self:
        return cls(**{**_known(cls, row), "gate": GateResult._from_row(row["gate"])})

    @classmethod
    def _from_details(cls, row: TaskDetails, tokens: int | None, cost_usd: float | None) -> Self:
        counted = {"runs": len(row["runs"]), "tokens": tokens, "cost_usd": cost_usd}
        return cls(**{**_known(cls, row), **counted, "gate": GateResult._from_row(row["gate"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a task's agent."""

    id: str
    number: int  # 1 is the task's first run
    state: str
    outcome: str | None
    reason: str | None
    agent: str | None
    account: str | None
    stage: str | None
    member: str | None
    session_id: str | None
    tokens: int | None
    cost_usd: float | None
    started_at: float | None
    ended_at: float | None

    @classmethod
    def _from_row(cls, row: RunRow) -> Self:
        return cls(**_known(cls, row))


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """The result of one stage. A task without a workflow has one stage, `work`."""

    name: str
    attempt: int
    member: str | None  # of a stage that several agents work on
    agent: str
    outcome: str
    reason: str
    passed: bool
    ruling: str | None  # approve or changes
    text: str  # the agent's last answer
    files: Sequence[str]  # the files that the stage changed
    commit: str | None
    gate: GateResult | None
    started_at: float | None
    ended_at: float | None

    @classmethod
    def _from_row(cls, row: StageResultRow) -> Self:
        return cls(**{**_known(cls, row), "gate": GateResult._from_row(row["gate"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """A decision of Holdfast, in the order of commits. The kinds are in docs/reference/events.md."""

    seq: int  # give it to `Client.events(after=…)` to continue from here
    at: float
    kind: str
    level: str
    component: str
    task: str | None
    run: str | None
    message: str
    reason: str | None
    data: Mapping[str, Any]

    @classmethod
    def _from_row(cls, row: EventRow) -> Self:
        return cls(**_known(cls, row))


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEntry:
    """An event of an agent's output. The names are those of `holdfast logs --json`."""

    event: str  # text, tool_started, tool_finished, error, result, raw, …
    run: int  # the number of the run
    stream: str  # out or err
    text: str  # the text of `text`, `result` and `raw`; empty for other events
    data: Mapping[str, Any]  # the other fields

    @classmethod
    def _from_row(cls, row: AgentEventRow) -> Self:
        data = {key: value for key, value in row.items() if key not in ("event", "run", "stream", "text")}
        text = str(row.get("text") or "")
        return cls(event=row["event"], run=row["run"], stream=row["stream"], text=text, data=data)


@dataclass(frozen=True, kw_only=True, slots=True)
class Merge:
    """A merge of a task's branch."""

    task: str
    branch: str
    into: str
    commit: str
    how: str  # fast-forward, merge commit, squash or already there


def _known(cls: type[Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the class that the row has."""
    return {field.name: row[field.name] for field in fields(cls) if field.name in row}
