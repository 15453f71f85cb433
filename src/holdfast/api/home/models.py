"""Read models of the home: events, requests of operators, repositories, trust, and findings of a sweep.

Each model is a TypedDict: a plain dict at run time, with the field names of docs/reference/json.md. Modules import
this file for type checks only, so that `holdfast ps` does not pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject


class RepoRow(TypedDict):
    id: str
    path: str
    common_dir: str


class TrustRow(TypedDict):
    """A repository whose settings a person trusted."""

    repo: str
    state: str  # trusted, changed since, or unused
    keys: list[str] | None
    by: str | None
    at: float | None


class SweepFinding(TypedDict):
    """Something that a sweep would change, or would not touch."""

    text: str
    what: str
    where: str
    why: str
    action: str
    foreign: bool


class EventRow(TypedDict):
    """A decision or change. [Events](events.md) has the kinds and their data."""

    seq: int
    at: float
    level: str
    component: str
    kind: str
    task: str | None
    run: str | None
    message: str
    reason: str | None
    data: JsonObject


class RequestRow(TypedDict):
    """An operator's request. The last two fields exist only if the request was read by its id."""

    id: int
    kind: str
    task: str | None
    by: str
    at: float
    why: str
    answered_at: NotRequired[float | None]
    answer: NotRequired[str | None]


class AgentLoginRow(TypedDict):
    """A login, as far as its files show it."""

    account: str
    is_seen: bool | None
    text: str


class AgentCliRow(TypedDict):
    """An agent CLI that this version can drive."""

    agent: str
    is_default: bool
    binary: str
    path: str | None  # None: not installed
    version: str | None
    tested: list[str]
    logins: list[AgentLoginRow]


class RevokedRow(TypedDict):
    """A repository that is not trusted any more."""

    repo: str
    was_trusted: bool


class TrustQuestionRow(TypedDict):
    """A repository's settings that need trust."""

    repo: str
    file: str
    values: JsonObject
    trusted: bool


class SweptRow(TypedDict):
    """A sweep: what it removed, corrected and left alone."""

    swept_count: int  # workspaces and their remains that are gone now
    failed_count: int
    root_owned_skipped: int
    prune_succeeded: bool  # our git entries agree with the ledger
    duration_ms: float
    backlog_count: int
    foreign: list[str]
    preserved: int
    healed: int  # markers, branches and rows that were corrected
    in_use: list[str]  # removed when they are free
    odd: int  # names that Holdfast does not give
    processes_ended: int
    containers_removed: int
    cgroups_removed: int
    reported: list[str]  # for a person: perhaps ours, but without proof
    failed: list[str]
    skipped: list[str]  # for lack of permission; each with the command that fixes it


class BackupRow(TypedDict):
    """A backup that was made and verified."""

    path: str
    size: int  # bytes
    tasks: int
    salvages: int
    store_only: bool


class FindingRow(TypedDict):
    """A finding of `doctor`."""

    level: str  # ok, note or problem
    what: str
    text: str
    data: JsonObject | None


class ViolationRow(TypedDict):
    """A promise that does not hold, found by the independent checker."""

    promise: str
    rule: str
    text: str


class SettingRow(TypedDict):
    """A setting in force. `per_agent.AGENT.KEY` is the value of a single agent."""

    key: str
    value: Any  # durations in seconds, sizes in bytes; secrets are masked without --reveal
    origin: str  # default, FILE:LINE or `NAME in the environment`


class SettingMistakeRow(TypedDict):
    """A mistake in the settings."""

    level: str  # problem or warning
    place: str | None
    line: int | None
    text: str


class SettingsFileRow(TypedDict):
    """A file of settings that is read."""

    path: str
    role: str  # user or repository
    exists: bool


class ServiceRow(TypedDict):
    """The systemd unit as it is, and as it would be written."""

    path: str
    state: str  # absent, same, older, other, changed or foreign
    system: bool
    text: str


class ServiceChangeRow(TypedDict):
    """A change of the systemd unit."""

    path: str
    did: list[str]
    dry_run: bool


class InitRow(TypedDict):
    """A repository that Holdfast knows, and the settings for it."""

    repo: str
    home: str
    agent: str | None  # the default agent; None: not chosen yet
    permission: str
    gate: str | None  # None: no gate
    trusted: bool  # the values of the repository's file are in force
    notes: list[str]  # what was recorded where, and what is left to do


class StartedRow(TypedDict):
    """The supervisor that runs now."""

    pid: int | None
    started: bool  # false: it ran already
    note: str | None  # what changed about one that ran already
    log: str
    workers: list[str]
    holds: list[str]  # what keeps tasks from starting


class StoppedRow(TypedDict):
    """A supervisor that was stopped."""

    stopped: bool  # false: no supervisor was running
    pid: int | None
    mode: str  # graceful, now or keep-agents


class RestoredRow(TypedDict):
    """A backup that was restored."""

    path: str
    made_at: float | None
    tasks: dict[str, int]  # state → how many
    salvages: int
    kept_at: str | None  # where the old store is kept
    left_alone: list[str]  # files of the home that were there already


class PurgedRow(TypedDict):
    """A purge: what it removed, or with --dry-run would remove."""

    home: str
    repo: str | None  # None: the whole home
    dry_run: bool
    found: list[str]
    exported: list[str]  # bundles with saved work
    kept: list[str]  # what could not be removed


class ErrorRow(TypedDict):
    """An error of a command with `--json`: the last line of standard error."""

    error: str  # the class of the error, such as NotFound or Conflict
    message: str
    kept: str  # what was kept, in words
    next: str | None  # the command to type
    exit_code: int
