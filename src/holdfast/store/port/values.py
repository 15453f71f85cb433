"""Values that go into a store and come out of it, in addition to the nouns of core/model.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from holdfast.base.dataclass import dataclass
from holdfast.core.model import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One life of a supervisor process."""

    id: str
    boot_id: str
    pid: int
    start_ticks: int
    version: str
    agents: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Salvaged:
    """Work that was taken out of a workspace before it was removed."""

    id: str
    ref: str
    commit: str
    base: str | None
    files: int
    reason: str
    partial: bool = False  # some files could not be read: the others are here, and the workspace stays
    details: Mapping[str, object] = field(default_factory=dict)  # size, staged, unmerged, operation, …: for people


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRole:
    """The part that a run plays within its task."""

    stage: str | None = None  # None: the task has no workflow
    member: str = ""  # name of a member of a parallel stage
    agent: str | None = None  # None: the task's agent


NO_WORKFLOW_ROLE = RunRole()


def unsaved_alert(workspace_id: str) -> str:
    """Return the key of the alert that the work in a workspace could not be saved, so that the workspace stays."""
    return f"unsaved:{workspace_id}"


def vanished_alert(workspace_id: str) -> str:
    """Return the key of the alert that a workspace was gone when its agent ended."""
    return f"vanished:{workspace_id}"


def stuck_alert(run_id: str) -> str:
    """Return the key of the alert that a run is stuck or loops. The alert is closed when the run ends."""
    return f"stuck:{run_id}"


def unended_alert(run_id: str) -> str:
    """Return the key of the alert that a run should have ended but still has processes. The alert is closed when the
    run ends."""
    return f"unended:{run_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentReports:
    """Reports of an agent since the last reading, and the offset up to which its channel was read."""

    offset: int
    refused: int = 0  # lines that are not reports of this run
    refused_why: str = ""  # why the first of them was refused
    progress: Report | None = None  # only the newest
    claims: tuple[Report, ...] = ()  # in order


@dataclass(frozen=True, kw_only=True, slots=True)
class Ownership:
    """The right to write about a running task: the owner, and the fence of its claim or adoption."""

    task_id: str
    fence: int
    owner: str
