"""A task in several steps: what its workflow asks for, and where it stands in that. Pure.

A workflow is resolved when its task is added, like every other setting, and kept with the task: a changed file changes
tasks that are added later. A task without a workflow has no stages: then the one step is the task itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

WORK = "work"  # the name of the one step of a task without a workflow


class OnFailure(StrEnum):
    """What follows when a stage failed and its tries are used up."""

    FAIL = "fail"  # the task fails
    CONTINUE = "continue"  # the next stage begins; the result says that this one failed
    PAUSE = "pause"  # a person decides: `holdfast approve` goes on, `holdfast cancel` ends it
    BACK = "back"  # back to the stage `back_to`, as often as `max_turns` allows


class Ruling(StrEnum):
    """What a reviewing stage says, in the last line of its answer."""

    APPROVE = "approve"
    CHANGES = "changes"  # back to the stage `back_to`


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """One agent of a parallel stage."""

    name: str
    agent: str
    agent_options: Mapping[str, object] = field(default_factory=dict)
    provider: str = ""
    prompt: str = ""  # a template; empty: the stage's


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One step, with everything that its run needs: no setting is looked up later."""

    name: str
    agent: str
    agent_options: Mapping[str, object] = field(default_factory=dict)
    provider: str = ""
    prompt: str = "{{ task.prompt }}"  # a template: core/workflows/template.py
    timeout: float = 3600.0  # of one run; of a parallel stage: of all of it, and 10 s more to collect
    retry: int = 0  # further tries after one that failed, or whose gate did
    gate: str = ""  # a command whose exit decides, run in the workspace by /bin/sh; empty: none
    gate_timeout: float = 600.0
    on_failure: OnFailure = OnFailure.FAIL
    approval: bool = False  # a person has to approve what it did before the next one begins
    reviews: bool = False  # its last line is a ruling: back to `back_to`, or on
    back_to: str = ""  # the earlier stage that it sends back to
    max_turns: int = 3  # how often it may send back
    members: tuple[Member, ...] = ()  # a parallel stage: these run at the same time
    apart: bool = False  # each of them in a workspace of its own; else all in the task's
    at_once: int = 0  # how many of them at a time; 0: as many as there is room for
    least: int = 1  # how many of them have to complete

    @property
    def is_parallel(self) -> bool:
        return bool(self.members)


Stages = tuple[Stage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a task stands in its workflow; durable, moved in the transaction that settles a run."""

    stage: int = 0  # index of the stage that is under way, or comes next
    visit: int = 0  # rises whenever a stage is entered: results of one visit belong together
    tries: int = 0  # that failed in this visit
    turns: Mapping[str, int] = field(default_factory=dict)  # stage → how often it sent back
    feedback: str = ""  # what the next run is told: why it is back, or what its gate printed
    awaits: bool = False  # it is paused until a person approves what the last stage did
    began: Mapping[str, object] = field(default_factory=dict)  # a parallel stage under way: when it began (an Instant)
    since: int = 0  # the number of the task's last run before this stage was entered
    checks: str = ""  # the run that completed, and whose gate was cut short: only the gate is still to be asked
    asked: int = 0  # how often its gate was begun and nobody knows how it ended, because the supervisor died


START = Progress()


def stage_of(stages: Stages, progress: Progress) -> Stage | None:
    """The stage that is under way; None: the task has no workflow."""
    return stages[min(progress.stage, len(stages) - 1)] if stages else None


def name_of(stages: Stages, progress: Progress) -> str:
    stage = stage_of(stages, progress)
    return WORK if stage is None else stage.name


def index_of(stages: Stages, name: str) -> int:
    return next(index for index, stage in enumerate(stages) if stage.name == name)


# -- for the store: only what is not the default is kept -----------------------------------------------------------


def plain_stage(stage: Stage) -> dict[str, Any]:
    kept = _differences(stage)
    if stage.members:
        kept["members"] = [_differences(member) for member in stage.members]
    return kept


def stage_from(kept: Mapping[str, Any]) -> Stage:
    values = dict(kept)
    if "members" in values:
        values["members"] = tuple(Member(**member) for member in values["members"])
    if "on_failure" in values:
        values["on_failure"] = OnFailure(values["on_failure"])
    return Stage(**values)


def plain_progress(progress: Progress) -> dict[str, Any]:
    return _differences(progress)


def progress_from(kept: Mapping[str, Any]) -> Progress:
    return Progress(**kept)


def entered(progress: Progress, stage: int, feedback: str = "") -> Progress:
    """At the beginning of a stage, whatever came before."""
    return replace(
        progress,
        stage=stage,
        visit=progress.visit + 1,
        tries=0,
        feedback=feedback,
        awaits=False,
        began={},
        checks="",
        asked=0,
    )


def _differences(thing: Stage | Member | Progress) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for each in fields(thing):
        value = getattr(thing, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if value != default:
            kept[each.name] = str(value) if isinstance(value, StrEnum) else value
    return kept
