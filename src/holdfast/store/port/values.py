"""What goes into a store and comes out of it, besides the nouns of core/model.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast.core.model import Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One supervisor incarnation."""

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
    partial: bool = False  # something could not be read: what could is here, the workspace stays
    details: Mapping[str, object] = field(default_factory=dict)  # size, staged, unmerged, operation, …: for people


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """What a run is for, within its task."""

    stage: str | None = None  # None: the task has no workflow
    member: str = ""  # of a parallel stage
    agent: str | None = None  # None: the task's


ALONE = Role()


def unsaved_alert(workspace_id: str) -> str:
    """The key of the alert that what is in a workspace could not be saved, so that it stays."""
    return f"unsaved:{workspace_id}"


def stuck_alert(run_id: str) -> str:
    """The key of the alert that a run is stuck or loops; it is closed when the run ends."""
    return f"stuck:{run_id}"


def unended_alert(run_id: str) -> str:
    """The key of the alert that a run outlives its end; it is closed when the run ends."""
    return f"unended:{run_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentNews:
    """What an agent reported since the last time: how far its channel was read, and what was in it."""

    offset: int
    refused: int = 0  # lines that were no reports of this run
    refused_why: str = ""  # of the first of them
    progress: Report | None = None  # only the newest
    claims: tuple[Report, ...] = ()  # in order


@dataclass(frozen=True, kw_only=True, slots=True)
class Grip:
    """The right to write about a running task: whose, and under which fence."""

    task_id: str
    fence: int
    owner: str
