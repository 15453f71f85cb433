"""A task in several steps: the stages of its workflow, and its progress through them. Pure.

A workflow is resolved when its task is added, like every other setting, and stored with the task. A changed file
affects only tasks that are added later. A task without a workflow has no stages: its one step is the task itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, replace
from enum import StrEnum
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.core.dispatch.spending_caps import SpendingCap

WORK = "work"  # the name of the only step of a task without a workflow


class OnFailure(StrEnum):
    """The step that follows when a stage failed and its tries are used up."""

    FAIL = "fail"  # the task fails
    CONTINUE = "continue"  # the next stage begins; the result records that this one failed
    PAUSE = "pause"  # a person decides: `holdfast approve` continues, `holdfast cancel` ends the task
    BACK = "back"  # back to the stage `back_to`, as often as `max_turns` allows


class Ruling(StrEnum):
    """The ruling of a reviewing stage, in the last line of its answer."""

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
    """One step of a workflow, with everything that its run needs: no setting is looked up later."""

    name: str
    agent: str
    agent_options: Mapping[str, object] = field(default_factory=dict)
    provider: str = ""
    prompt: str = "{{ task.prompt }}"  # a template: core/workflows/template.py
    timeout: float = 3600.0  # seconds of one run; of a parallel stage: of the whole stage, and 10 s more to collect
    budget: SpendingCap = field(
        default_factory=SpendingCap
    )  # what the runs of one visit may use; beyond it the stage has failed
    retry: int = 0  # further tries after one that failed, or whose gate failed
    gate: str = ""  # a command whose exit code decides, run in the workspace by /bin/sh; empty: none
    gate_timeout: float = 600.0
    on_failure: OnFailure = OnFailure.FAIL
    approval: bool = False  # a person has to approve the result before the next stage begins
    reviews: bool = False  # its last line is a ruling: back to `back_to`, or on
    back_to: str = ""  # the earlier stage that it sends back to
    max_turns: int = 3  # how often it may send back
    members: tuple[Member, ...] = ()  # of a parallel stage: they run at the same time
    apart: bool = False  # True: each member has its own workspace. False: all use the task's
    at_once: int = 0  # how many members run at a time; 0: as many as there is room for
    least: int = 1  # how many members have to complete

    @property
    def is_parallel(self) -> bool:
        return bool(self.members)


Stages = tuple[Stage, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The position of a task in its workflow. It is durable, and changes in the transaction that settles a run."""

    stage: int = 0  # index of the stage that is under way, or comes next
    visit: int = 0  # rises whenever a stage is entered: results of one visit belong together
    tries: int = 0  # failed tries in this visit
    turns: Mapping[str, int] = field(default_factory=dict)  # stage → how often it sent back
    feedback: str = ""  # text for the next run: why it is back, or the output of its gate
    awaits: bool = False  # the task is paused until a person approves the result of the last stage
    began: Mapping[str, object] = field(default_factory=dict)  # a parallel stage under way: when it began (an Instant)
    since: int = 0  # the number of the task's last run before this stage was entered
    paid: int = 0  # the number of the last run that does not count for the stage's budget, if it is higher
    checks: str = ""  # the completed run whose gate was cut short: only the gate still has to run
    asked: int = 0  # how often its gate was started without a known end: it runs, or the supervisor died
    asked_at: float = 0.0  # wall time of the last of these starts


START = Progress()


def stage_of(stages: Stages, progress: Progress) -> Stage | None:
    """Return the stage that is under way. None: the task has no workflow."""
    return stages[min(progress.stage, len(stages) - 1)] if stages else None


def name_of(stages: Stages, progress: Progress) -> str:
    stage = stage_of(stages, progress)
    return WORK if stage is None else stage.name


def index_of(stages: Stages, name: str) -> int:
    return next(index for index, stage in enumerate(stages) if stage.name == name)


# -- for the store: only values that differ from the default -------------------------------------------------------


def stage_to_json(stage: Stage) -> dict[str, Any]:
    kept = _differences(stage)
    if stage.budget:
        kept["budget"] = {"usd": stage.budget.usd, "tokens": stage.budget.tokens}
    if stage.members:
        kept["members"] = [_differences(member) for member in stage.members]
    return kept


def stage_from(kept: Mapping[str, Any]) -> Stage:
    values = dict(kept)
    if "members" in values:
        values["members"] = tuple(Member(**member) for member in values["members"])
    if "budget" in values:
        values["budget"] = SpendingCap(**values["budget"])
    if "on_failure" in values:
        values["on_failure"] = OnFailure(values["on_failure"])
    return Stage(**values)


def progress_to_json(progress: Progress) -> dict[str, Any]:
    return _differences(progress)


def progress_from(kept: Mapping[str, Any]) -> Progress:
    return Progress(**kept)


def enter_stage(progress: Progress, stage: int, feedback: str = "") -> Progress:
    """Return the progress at the beginning of a stage, whatever the progress was before."""
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
        asked_at=0.0,
    )


def _differences(thing: Stage | Member | Progress) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for each in fields(thing):
        value = getattr(thing, each.name)
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        if value != default:
            kept[each.name] = str(value) if isinstance(value, StrEnum) else value
    return kept
