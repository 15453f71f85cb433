"""Workflows: `[workflow.NAME]` tables with their stages, in the user's file and in a repository's file.

[workflow.careful]
about = "Build, test, review."
preserve_on_failure = true    # of its tasks

[[workflow.careful.stage]]
name = "build"
retry = 2
gate = "make test"            # a command; `true`: the command of the setting `gate.command`

[[workflow.careful.stage]]
name = "review"
permission = "read"
reviews = true
back_to = "build"
prompt = "Review the changes on {{ task.branch }}."
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.config.problems import TEXT, SettingProblem, format_place
from holdfast.config.settings import CLI_AGENTS
from holdfast.config.tables import workflow_keys as keys
from holdfast.config.tables.workflow_keys import WorkflowFiles
from holdfast.config.values import meant, quote_wrong_value
from holdfast.core.workflows.draft import (
    MOST_STAGES,
    NAME,
    NAMES,
    THE_PROMPT,
    AgentChoice,
    DraftFlaw,
    MemberDraft,
    StageDraft,
    WorkflowDraft,
    find_flaws,
)

if TYPE_CHECKING:
    from holdfast.config.read_file import Layer

SECTION = "workflow"
MOST = 100
Table = Mapping[str, Any]


def read_workflows(tables: object, layer: Layer, *, of_repository: bool) -> dict[str, WorkflowDraft]:
    """Return every workflow in the value of `workflow` that has no mistakes. All mistakes are recorded in the layer."""
    if not isinstance(tables, dict):
        layer.add_problem(SECTION, f"'{SECTION}' is a section of workflows, such as [{SECTION}.careful]")
        return {}
    if len(tables) > MOST:
        layer.add_problem(SECTION, f"there are {len(tables)} workflows, but at most {MOST} are allowed")
        return {}
    files = WorkflowFiles(os.path.dirname(layer.place), inside=of_repository)
    found: dict[str, WorkflowDraft] = {}
    told_before = len(layer.problems)
    for name, table in tables.items():
        draft = _Reader(name, layer, files, "repository" if of_repository else "user").read(table)
        if draft is not None:
            found[name] = draft
    layer.problems[told_before:] = sorted(layer.problems[told_before:], key=lambda problem: problem.line or 0)
    return found


def workflows_to_show(drafts: Mapping[str, WorkflowDraft]) -> list[tuple[str, Any, str]]:
    """Return full key, value and origin for `config show`. `holdfast workflows` shows the rest."""
    return [
        (f"{SECTION}.{name}.stages", [stage.name for stage in draft.stages], draft.place)
        for name, draft in drafts.items()
    ]


def workflow_values_needing_trust(drafts: Mapping[str, WorkflowDraft]) -> dict[str, Any]:
    """Return the values of a repository's workflows that need trust: full key → value.

    These values could run commands or show secrets, or are settings of workspaces, which no untrusted file may set.
    """
    found: dict[str, Any] = {}
    for draft in drafts.values():
        if draft.preserve_on_failure is not None:
            found[f"{SECTION}.{draft.name}.preserve_on_failure"] = draft.preserve_on_failure
        if draft.keep_workspace:
            found[f"{SECTION}.{draft.name}.keep_workspace"] = True
        for stage in draft.stages:
            place = f"{SECTION}.{draft.name}.{stage.name}"
            if stage.gate:
                found[f"{place}.gate"] = stage.gate
            found |= _dangerous_choices(place, stage.chosen)
            for member in stage.members:
                found |= _dangerous_choices(f"{place}.{member.name}", member.chosen)
    return found


def _dangerous_choices(place: str, chosen: AgentChoice) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if chosen.permission not in ("", "read"):  # may be more than the user permits
        found[f"{place}.permission"] = chosen.permission
    if chosen.account:
        found[f"{place}.account"] = chosen.account
    if chosen.command:
        found[f"{place}.command"] = list(chosen.command)
    if chosen.scenario:
        import json

        found[f"{place}.scenario"] = [json.dumps(step, sort_keys=True) for step in chosen.scenario]
    return found


@dataclass(slots=True)
class _Part:
    """The part of a stage or of a member that could be read."""

    place: str  # key of its table: workflow.careful.stage[1]
    words: str  # its name in messages
    values: dict[str, Any] = field(default_factory=dict)
    bad: set[str] = field(default_factory=set)
    prompt_file: str | None = None


class _Reader:
    """A reader for one workflow."""

    def __init__(self, name: str, layer: Layer, files: WorkflowFiles, origin: str) -> None:
        self._name = name
        self._layer = layer
        self._files = files
        self._origin = origin
        self._place = f"{SECTION}.{name}"
        self._parts: dict[tuple[int, int | None], _Part] = {}
        self._is_good = True

    def read(self, table: object) -> WorkflowDraft | None:
        if not NAME.fullmatch(self._name):
            self._complain(
                self._place, f"'{quote_wrong_value(self._name)}' cannot be a workflow's name: a name has {NAMES}"
            )
            return None
        if not isinstance(table, dict):
            self._complain(self._place, f"'{self._place}' is a workflow, a table with stages: [[{self._place}.stage]]")
            return None
        whole = _Part(self._place, self._place)
        self._values(whole, table, keys.WORKFLOW, keys.WORKFLOW_KEYS)
        stages = table.get("stage", [])
        if not isinstance(stages, list) or not all(isinstance(stage, dict) for stage in stages):
            text = f"'{self._place}.stage' is a list of stages: begin each with a line [[{self._place}.stage]]"
            self._complain(f"{self._place}.stage", text)
            return None
        if len(stages) > MOST_STAGES:
            self._complain(
                f"{self._place}.stage", f"it has {len(stages)} stages, but at most {MOST_STAGES} are allowed"
            )
            return None
        draft = WorkflowDraft(
            name=self._name,
            stages=tuple(self._stage(number, stage) for number, stage in enumerate(stages)),
            origin=self._origin,
            place=format_place(self._layer.place, self._layer.lines.get(self._place)),
            **whole.values,
        )
        for flaw in find_flaws(draft):
            self._report_flaw(flaw)
        return draft if self._is_good else None

    # -- stages and members ------------------------------------------------------------------------------------------

    def _stage(self, number: int, table: Table) -> StageDraft:
        place = f"{self._place}.stage[{number}]"
        part = self._part(number, None, place, f"{self._place}, stage {_called(table, number)}", table)
        self._values(part, table, keys.STAGE, keys.STAGE_KEYS)
        members = self._members(number, part, table)
        values = part.values
        gate = values.pop("gate", "")
        if isinstance(gate, bool):
            values["has_set_gate"] = gate
        else:
            values["gate"] = gate
        prompt = self._prompt(part, table)
        return StageDraft(
            name=values.pop("name", None) or f"#{number + 1}",
            chosen=self._choice(part, table),
            prompt=THE_PROMPT if prompt is None else prompt,
            members=members,
            **values,
        )

    def _members(self, number: int, stage: _Part, table: Table) -> tuple[MemberDraft, ...]:
        if "members" in table and "member" in table:
            self._refuse(stage, "members", "give either `members` or [[….member]] tables, not both")
        key = "member" if "member" in table else "members"
        entries = table.get(key, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict | str) for entry in entries):
            self._refuse(stage, key, 'it is not a list of members, like ["one", "two"], or tables with a `name`')
            return ()
        if key in table and not entries:
            self._refuse(stage, key, "it is empty; leave it out for a stage with one agent")
        found = []
        for index, entry in enumerate(entries):
            own: Table = {"name": entry} if isinstance(entry, str) else entry
            words = f"{stage.words}, member {_called(own, index)}"
            part = self._part(number, index, f"{stage.place}.{key}[{index}]", words, own)
            self._values(part, own, keys.MEMBER, keys.MEMBER_KEYS)
            chosen, prompt = self._choice(part, own), self._prompt(part, own)
            if prompt is not None and not prompt.strip():
                self._refuse(part, "prompt", "the prompt is empty: leave it out to use the prompt of the stage")
            found.append(MemberDraft(name=part.values.get("name") or f"#{index}", chosen=chosen, prompt=prompt or ""))
        return tuple(found)

    def _part(self, number: int, member: int | None, place: str, words: str, table: Table) -> _Part:
        part = self._parts[number, member] = _Part(place, words)
        if "name" not in table:
            self._refuse(part, "", "it needs a name: `name` is missing")
        return part

    def _values(self, part: _Part, table: Table, readers: Mapping[str, keys.Read], known: tuple[str, ...]) -> None:
        for key, value in table.items():
            if key not in known and key in keys.NOT_OF_A_STAGE and part.place != self._place:
                self._refuse(
                    part,
                    key,
                    f"a {'member' if readers is keys.MEMBER else 'stage'} has no `{key}`: {keys.NOT_OF_A_STAGE[key]}",
                )
            elif key not in known:
                self._refuse(part, key, f"there is no setting '{quote_wrong_value(key)}' here{meant(key, known)}")
            elif key in readers:
                try:
                    part.values[key] = readers[key](value)
                except ValueError as error:
                    self._refuse(part, key, str(error))

    def _choice(self, part: _Part, table: Table) -> AgentChoice:
        chosen = {key: part.values.pop(key) for key in keys.AGENT_CHOICE if key in part.values}
        if "scenario" in table:
            try:
                chosen["scenario"] = self._files.scenario(table["scenario"])
            except ValueError as error:
                self._refuse(part, "scenario", str(error))
        agent = chosen.get("agent")
        if "command" in chosen and "scenario" in chosen:
            self._refuse(part, "scenario", "give either `command` or `scenario`, not both")
        if "command" in chosen and agent not in (None, "command"):
            self._refuse(part, "command", f"the agent '{agent}' takes no command; leave `agent` out")
        if "scenario" in chosen and agent not in (None, "scripted"):
            self._refuse(part, "scenario", f"the agent '{agent}' takes no scenario; leave `agent` out")
        if "account" in chosen and agent is not None and agent not in CLI_AGENTS:
            self._refuse(part, "account", f"the agent '{agent}' has no accounts; they are for {', '.join(CLI_AGENTS)}")
        return AgentChoice(**chosen)

    def _prompt(self, part: _Part, table: Table) -> str | None:
        """Return the prompt of a stage or a member, or None if it has none."""
        if "prompt" in table and "prompt_file" in table:
            self._refuse(part, "prompt_file", "give either `prompt` or `prompt_file`, not both")
        try:
            if "prompt" in table:
                return keys.parse_prompt(table["prompt"])
            if "prompt_file" in table:
                part.prompt_file, text = self._files.prompt(table["prompt_file"])
                return text
        except ValueError as error:
            self._refuse(part, "prompt" if "prompt" in table else "prompt_file", str(error))
            return THE_PROMPT
        return None

    # -- mistakes ----------------------------------------------------------------------------------------------------

    def _refuse(self, part: _Part, key: str, text: str) -> None:
        part.bad.add(key)
        place = f"{part.place}.{key}" if key else part.place
        self._complain(place, f"{part.words}: {f'{key[:60]}: ' if key else ''}{text}")

    def _complain(self, place: str, text: str) -> None:
        self._is_good = False
        self._layer.add_nested_problem(place, text)

    def _report_flaw(self, flaw: DraftFlaw) -> None:
        if flaw.stage is None:
            self._complain(f"{self._place}.{flaw.key}", f"{self._place}: {flaw.text}")
            return
        part = self._parts[flaw.stage, flaw.member]
        if part.bad and (flaw.key not in ("name", "prompt") or {"name", "prompt", "prompt_file"} & part.bad):
            return  # the table has a recorded mistake, and this one may only follow from it
        if flaw.key != "prompt":
            self._record_flaw(part, flaw)
        elif part.prompt_file is not None:
            self._is_good = False
            problem = SettingProblem(part.prompt_file, flaw.line, f"{part.words}: prompt: {flaw.text}")
            self._layer.problems.append(problem)
        else:
            self._record_flaw(part, flaw)

    def _record_flaw(self, part: _Part, flaw: DraftFlaw) -> None:
        """Record a flaw without marking its key as bad, so that later flaws are recorded too.

        In a multi-line text of the file, the flaw gets its exact line.
        """
        self._is_good = False
        first = self._layer.lines.get(f"{part.place}.{flaw.key}.{TEXT}")
        text = f"{part.words}: {flaw.key}: {flaw.text}"
        if first is not None and flaw.line is not None:
            self._layer.problems.append(SettingProblem(self._layer.place, first + flaw.line - 1, text))
        else:
            self._layer.add_nested_problem(f"{part.place}.{flaw.key}", text)


def _called(table: Table, number: int) -> str:
    name = table.get("name")
    return f"'{quote_wrong_value(name)}'" if isinstance(name, str) and name else str(number + 1)
