"""A workflow as it was written, before agents and settings are resolved, and the check for its mistakes. Pure.

Files and the built-in workflows become drafts. `intake/workflow.py` turns a draft into the stages of a task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from holdfast.base.dataclass import dataclass
from holdfast.core.workflows import template
from holdfast.core.workflows.workflow import OnFailure

MOST_STAGES = 50
MOST_MEMBERS = 32
MOST_FLAWS = 100  # about so many are reported at once: a file from outside must not keep us busy
NAMES = "only letters, digits, '_' and '-', begins with a letter or digit, and has at most 40 characters"
THE_PROMPT = "{{ task.prompt }}"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentChoice:
    """The choice of an agent and its options. An empty field means that of the task."""

    agent: str = ""
    model: str = ""
    permission: str = ""  # read | edit | full
    account: str = ""
    command: tuple[str, ...] = ()  # for the agent `command`
    scenario: tuple[Mapping[str, object], ...] = ()  # steps for the agent `scripted`

    @property
    def is_own(self) -> bool:
        """True if the choice names another agent than the task's."""
        return bool(self.agent or self.command or self.scenario)


TASK_AGENT = AgentChoice()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberDraft:
    name: str
    chosen: AgentChoice = TASK_AGENT  # an empty field means that of the stage
    prompt: str = ""  # empty: the stage's


@dataclass(frozen=True, kw_only=True, slots=True)
class StageDraft:
    """One stage of a draft. `core.workflows.workflow.Stage` explains the fields."""

    name: str
    chosen: AgentChoice = TASK_AGENT
    prompt: str = THE_PROMPT
    timeout: float | None = None  # None: the task's
    budget_usd: float | None = None
    budget_tokens: int | None = None
    retry: int = 0
    gate: str = ""
    has_set_gate: bool = False  # its gate is the command of the setting `gate.command`
    gate_timeout: float = 600.0
    on_failure: OnFailure = OnFailure.FAIL
    approval: bool = False
    reviews: bool = False
    back_to: str = ""
    max_turns: int = 3
    members: tuple[MemberDraft, ...] = ()
    apart: bool = False
    at_once: int = 0
    least: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowDraft:
    """One workflow."""

    name: str
    stages: tuple[StageDraft, ...]
    about: str = ""  # one sentence for people
    prompt: str = ""  # the prompt of a task that has none itself
    preserve_on_failure: bool | None = None  # of its tasks. None: the settings decide
    keep_workspace: bool = False  # of its tasks, whatever their outcome
    origin: str = field(default="built-in", compare=False)  # built-in | user | repository
    place: str = field(default="", compare=False)  # file and line

    @property
    def wants_range(self) -> bool:
        """True if a prompt of the workflow refers to a range of commits."""
        return any("task.range" in _names(text) for text in prompts_of_draft(self))

    @property
    def wants_prompt(self) -> bool:
        """True if the workflow needs a prompt from the task."""
        return not self.prompt and any("task.prompt" in _names(text) for text in prompts_of_draft(self))


def prompts_of_draft(draft: WorkflowDraft) -> Iterator[str]:
    for stage in draft.stages:
        yield stage.prompt
        for member in stage.members:
            if member.prompt:
                yield member.prompt


@dataclass(frozen=True, slots=True)
class DraftFlaw:
    """One mistake of a draft: the stage and the member that have it (numbers from 0), and its key."""

    stage: int | None
    member: int | None
    key: str
    text: str
    line: int | None = None  # within the value at `key`, if that is a template


def find_flaws(draft: WorkflowDraft) -> list[DraftFlaw]:
    """Return the mistakes of the draft as a whole. The reader of the file checks single values."""
    if not draft.stages:
        return [DraftFlaw(None, None, "", "it has no stages: begin each with a line [[workflow.NAME.stage]]")]
    if len(draft.stages) > MOST_STAGES:
        return [
            DraftFlaw(None, None, "stage", f"it has {len(draft.stages)} stages, but at most {MOST_STAGES} are allowed")
        ]
    names = [stage.name for stage in draft.stages]
    found: list[DraftFlaw] = []
    for number, stage in enumerate(draft.stages):
        if stage.name in names[:number]:
            found.append(DraftFlaw(number, None, "name", f"there is a stage '{stage.name}' above already"))
        found += _sending_back(number, stage, names)
        found += _members(number, stage)
        found += _templates(number, draft)
        if len(found) >= MOST_FLAWS:
            break
    return found


def _sending_back(number: int, stage: StageDraft, names: Sequence[str]) -> Iterator[DraftFlaw]:
    sends = stage.reviews or stage.on_failure is OnFailure.BACK
    if stage.back_to:
        if stage.back_to not in names:
            text = f"there is no stage '{stage.back_to[:60]}'{_meant(stage.back_to, names[:number])}"
            yield DraftFlaw(number, None, "back_to", text)
        elif stage.back_to not in names[:number]:
            yield DraftFlaw(number, None, "back_to", f"the stage '{stage.back_to}' does not come before this one")
        elif not sends:
            text = 'nothing sends back from here: it needs `reviews = true` or `on_failure = "back"`'
            yield DraftFlaw(number, None, "back_to", text)
    elif stage.reviews:
        text = "a reviewing stage has to say which stage it sends back to: `back_to` is missing"
        yield DraftFlaw(number, None, "reviews", text)
    elif sends:
        yield DraftFlaw(number, None, "on_failure", 'on_failure = "back" needs `back_to`, the stage to go back to')
    if stage.max_turns < 1:
        yield DraftFlaw(number, None, "max_turns", "at least 1 turn is needed to send anything back")


def _members(number: int, stage: StageDraft) -> Iterator[DraftFlaw]:
    if not stage.members:
        if stage.apart:
            yield DraftFlaw(number, None, "apart", "`apart` is about members, and this stage has none")
        if stage.at_once:
            yield DraftFlaw(number, None, "at_once", "`at_once` is about members, and this stage has none")
        if stage.least != 1:
            yield DraftFlaw(number, None, "least", "`least` is about members, and this stage has none")
        return
    if len(stage.members) > MOST_MEMBERS:
        yield DraftFlaw(
            number, None, "members", f"it has {len(stage.members)} members, but at most {MOST_MEMBERS} are allowed"
        )
    if stage.reviews:
        text = "a stage with members cannot rule (`reviews`): let a stage after it sum up and rule"
        yield DraftFlaw(number, None, "reviews", text)
    for key in ("budget_usd", "budget_tokens"):
        if getattr(stage, key) is not None:
            text = "members have no budget of their stage: give the task one (`--budget-usd`), which they share"
            yield DraftFlaw(number, None, key, text)
    if not 1 <= stage.least <= len(stage.members):
        text = f"{stage.least} of {len(stage.members)} members cannot be asked for; write 1 to {len(stage.members)}"
        yield DraftFlaw(number, None, "least", text)
    seen: set[str] = set()
    for index, member in enumerate(stage.members):
        if member.name.lower() in seen:  # branches and directories are named after members
            yield DraftFlaw(number, index, "name", f"there is a member '{member.name}' above already")
        seen.add(member.name.lower())


def _templates(number: int, draft: WorkflowDraft) -> Iterator[DraftFlaw]:
    stage = draft.stages[number]
    here = template_scope(draft, number)
    everybody_has_one = bool(stage.members) and all(member.prompt for member in stage.members)
    if not stage.prompt.strip() and not everybody_has_one:
        yield DraftFlaw(number, None, "prompt", "the prompt is empty: say what the agent should do, or leave it out")
    for mistake in template.find_mistakes(stage.prompt, here):
        yield DraftFlaw(number, None, "prompt", str(mistake), mistake.line)
    for index, member in enumerate(stage.members[:MOST_MEMBERS]):
        for mistake in template.find_mistakes(member.prompt, here):
            yield DraftFlaw(number, index, "prompt", str(mistake), mistake.line)


def template_scope(draft: WorkflowDraft, number: int) -> template.TemplateScope:
    """Return the names that the prompts of stage `number` may use: the names of the stages before it, and of the stages
    in a loop that contains it."""
    names = [stage.name for stage in draft.stages]
    end = number
    for index, stage in enumerate(draft.stages):
        if stage.back_to in names and names.index(stage.back_to) <= number <= index:
            end = max(end, index + 1)
    return template.TemplateScope(
        stages=names,
        reachable=frozenset(names[:end]),
        parallel=frozenset(stage.name for stage in draft.stages if stage.members),
        reviewing=frozenset(stage.name for stage in draft.stages if stage.reviews),
        is_member=bool(draft.stages[number].members),
    )


def _names(text: str) -> frozenset[str]:
    try:
        return template.parse(text).names
    except template.TemplateError:
        return frozenset()


def _meant(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word[:200], known, n=1)
    return f"; did you mean '{close[0]}'?" if close else ""
