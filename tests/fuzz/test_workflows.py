"""Fuzzed templates and workflows: a good one, or problems with places; no traceback, and nothing reaches a shell.

HOLDFAST_FUZZ_COUNT=10000 plays the number that was promised; HOLDFAST_FUZZ_SEED plays the same cases again.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.sampling import amount

from holdfast import config
from holdfast.agents.port import WorkOrder
from holdfast.agents.registry import AGENTS
from holdfast.base.errors import HoldfastError
from holdfast.config.read_file import read_settings_file
from holdfast.config.tables.workflow_keys import MEMBER_KEYS, STAGE_KEYS
from holdfast.config.tables.workflows import workflow_values_needing_trust
from holdfast.core.workflows import template as templates
from holdfast.core.workflows.draft import WorkflowDraft, find_flaws, prompts_of_draft
from holdfast.intake.new_task import NewTask
from holdfast.intake.workflow import ResolvedAgents, resolve_agents

SEED = os.environ.get("HOLDFAST_FUZZ_SEED", "7")
COUNT = int(os.environ.get("HOLDFAST_FUZZ_COUNT", amount(300, in_all=10_000)))
HOSTILE = "$(touch PWNED) `touch PWNED`; touch PWNED && {{ task.id }} {{{{ | > ' \" \\ \n\x1b[2J é 日本 %s {0} ${HOME}"
STAGES = ("plan", "build", "re-view", "_x", "")
PIECES = (
    *("{{", "}}", "{{{{", "}}}}", "{", "}", " ", "\n", "\t", "\r\n", "\0", "é", "日本", "x", "."),
    *("{{ task.prompt }}", "{{feedback}}", "{{ member }}", "{{ stages.plan.text }}", "{{ stages.build.members }}"),
    *("{{ stages.re-view.ruling }}", "{{ task.labels.a.b }}", "{{ task.range }}", "{{ task.promt }}", "{{ a b }}"),
    *("{{ $(id) }}", "{% if %}", "${x}", "$(touch PWNED)", "`touch PWNED`", "; touch PWNED", "VERDICT: approve"),
    *(
        "{{ " + "n" * 500 + " }}",
        "{{ stages..text }}",
        "{{ stages.plan }}",
        "{{\n\n}}",
        "{{ {{ turn }} }}",
        '"""',
        "\\",
    ),
)


def written(chance: random.Random, longest: int = 12) -> str:
    return "".join(chance.choice(PIECES) for _ in range(chance.randrange(longest)))


def simple(text: str, values: dict[str, str]) -> str:
    """What a good template comes to, by another way than the code's."""
    out, at = "", 0
    while at < len(text):
        if text.startswith(("{{{{", "}}}}"), at):
            out, at = out + text[at : at + 2], at + 4
        elif text.startswith("{{", at):
            end = text.index("}}", at)
            out, at = out + values.get(text[at + 2 : end].strip(), ""), end + 2
        else:
            out, at = out + text[at], at + 1
    return out


def test_templates() -> None:
    """Every text is a template or has mistakes inside it; what is put in is put in once."""
    chance = random.Random(f"templates {SEED}")
    values = dict.fromkeys((*templates.VARIABLES, "stages.plan.text", "task.labels.a.b"), HOSTILE)
    good = 0
    for number in range(COUNT):
        text = written(chance) + chance.choice(["", "\ud800"])
        try:
            template = templates.parse(text)
        except templates.TemplateError as error:
            rows = text.split("\n")
            for mistake in error.mistakes:
                assert text.split("\n")[mistake.line - 1 :], (SEED, number, text)
                assert 1 <= mistake.column <= len(rows[mistake.line - 1]) + 1, (SEED, number, text)
                assert "\n" not in str(mistake)
        else:
            good += 1
            assert templates.render(template, values) == simple(text, values), (SEED, number, text)
            assert len(templates.render(template, values, most=200).encode(errors="surrogatepass")) <= max(
                200, len(text.encode(errors="surrogatepass"))
            )
    assert COUNT // 10 < good < COUNT, "else the fuzz means nothing"


# -- whole files -------------------------------------------------------------------------------------------------------


FIT: dict[str, list[Any]] = {
    "name": ["plan", "build", "re-view", "_x"[1:], "a1", "b2", "c3"],
    "agent": ["claude", "codex", "command", "scripted"],
    "model": ["opus"],
    "permission": ["read", "edit"],
    "account": ["default"],
    "command": [["true"], ["sh", "-c", HOSTILE.replace("\x1b", "")]],
    "scenario": [[{"print": HOSTILE.replace("\x1b", "")}], "scenario.toml"],
    "prompt": ["Do {{ task.prompt }}", "{{ feedback }}{{{{", HOSTILE.replace("\x1b", "").replace("{{{{", "")],
    "prompt_file": ["prompt.md"],
    "timeout": ["5m"],
    "gate_timeout": ["5m"],
    "gate": ["make test", True, False, "echo {{ task.prompt }}"],
    "on_failure": ["fail", "continue", "pause"],
    "back_to": ["plan", "build"],
    "members": [["a", "b"], [{"name": "a", "prompt": "{{ member }}"}, "b"]],
    "retry": [0, 2],
    "max_turns": [1, 9],
    "at_once": [0, 2],
    "least": [1],
    "approval": [True],
    "reviews": [False],
    "apart": [False],
    "about": ["what it is"],
}
UNFIT: dict[str, list[Any]] = {
    "name": ["a b", "x" * 41],
    "agent": ["cluade"],
    "permission": ["full", "write"],
    "account": ["nobody"],
    "command": [[], "make", [""]],
    "scenario": [[{"prnit": 1}], "nowhere.toml", []],
    "prompt_file": ["../outside.md", "nowhere.md", ".git/config", "link.md", "."],
    "timeout": ["0s", "5", "ever"],
    "on_failure": ["back", "retry"],
    "back_to": list(STAGES),
    "members": [["a", "A"], 3],
    "least": [0, 3],
    "reviews": [True],
    "apart": [True],
}
ODD = [0, -1, 3, 2**70, 1.5, True, "", "x", [], ["a", 1], {"a": "b"}, [{"x": {}}]]
TOGETHER = ("prompt", "prompt_file"), ("command", "scenario", "agent", "account"), ("members", "member"), ("back_to",)


class Author:
    """Writes workflows; a careless one with many mistakes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.slips = chance.choice([0.0, 0.02, 0.3])

    def slip(self) -> bool:
        return self.chance.random() < self.slips

    def value(self, key: str) -> Any:
        if key == "member":
            return [self.table(MEMBER_KEYS) | {"name": f"m{n}"} for n in range(self.chance.randrange(1, 4))]
        if self.slip():
            return self.chance.choice([*UNFIT.get(key, []), *ODD, written(self.chance)])
        return self.chance.choice(FIT[key])

    def table(self, keys: tuple[str, ...]) -> dict[str, Any]:
        chosen = [key for key in keys if key != "name" and self.chance.random() < 0.15]
        for alternatives in () if self.slip() else TOGETHER:
            one = self.chance.choice([*alternatives, ""])
            chosen = [key for key in chosen if key not in alternatives or key == one != "back_to"]
        if self.slip():
            chosen.append(self.chance.choice(["promt", "back-to", "é", ""]))
        wanted = chosen if self.slip() else ["name", *chosen]
        return {key: self.value(key) if key in FIT or key == "member" else 1 for key in wanted}

    def document(self) -> Iterator[str]:
        for name in self.chance.sample(["one", "work", "t-3", *(["a b"] if self.slip() else [])], 1 + self.slip()):
            yield f"[workflow.{json.dumps(name)}]"
            for key in ("about", "prompt"):
                if self.chance.random() < 0.2:
                    yield f"{key} = {toml(self.value(key))}"
            for number in range(self.chance.randrange(4)):
                yield f"[[workflow.{json.dumps(name)}.stage]]"
                table = self.table(STAGE_KEYS)
                if "name" in table and not self.slip():
                    table["name"] = ("plan", "build", "re-view")[number]
                for key, entry in table.items():
                    yield f"{json.dumps(key)} = {toml(entry)}"


def toml(thing: Any) -> str:
    if isinstance(thing, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(entry)}" for key, entry in thing.items()) + " }"
    if isinstance(thing, list):
        return "[" + ", ".join(toml(entry) for entry in thing) + "]"
    if isinstance(thing, str):
        return "".join(f"\\u{ord(c):04x}" if ord(c) in (0, 127) else c for c in json.dumps(thing)).replace("\\/", "/")
    return str(thing).lower()


def mangled(chance: random.Random, text: str) -> str:
    """Now and then, what an editor's slip or a broken disk does."""
    if chance.random() > 0.1:
        return text
    at = chance.randrange(len(text) + 1)
    return (
        text[:at]
        + chance.choice(["", "=", "[[", '"', "\x00", "\n", written(chance)])
        + text[at + chance.randrange(5) :]
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "prompt.md").write_text("Do {{ task.prompt }}.")
    (tmp_path / "scenario.toml").write_text('[[step]]\nprint = "x"\n')
    (tmp_path / "link.md").symlink_to("/etc/hostname")
    return tmp_path


def test_files(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file has good workflows, or problems with places; a good one becomes stages, or a refusal in words; what it
    runs is word for word what the file says."""
    monkeypatch.setenv("HOLDFAST_CONFIG", str(place / "none.toml"))
    settings = config.load(flags={"agent": "claude"})
    chance = random.Random(f"files {SEED}")
    good = bad = resolved = 0
    for number in range(COUNT):
        text = mangled(chance, "\n".join(Author(chance).document()))
        path = place / "holdfast.toml"
        path.write_text(text, errors="surrogatepass")
        layer = read_settings_file(str(path), of_repository=chance.random() < 0.5)
        case = f"seed {SEED}, case {number}:\n{text}\n{layer.problems}"
        assert layer.workflows or layer.problems or "stage" not in text, case
        for problem in layer.problems:
            assert problem.line is not None or "cannot be read" in problem.text, case
            assert problem.place, case
            assert "\n" not in str(problem), case
        bad += bool(layer.problems)
        for draft in layer.workflows.values():
            good += 1
            assert find_flaws(draft) == [], case
            workflow_values_needing_trust({draft.name: draft})
            crew = resolve(draft, settings, case)
            if crew is not None:
                resolved += 1
                nothing_is_put_in(draft, crew, case)
    assert good > COUNT // 20, "else the fuzz means nothing"
    assert bad > COUNT // 20
    assert resolved > COUNT // 40


def resolve(draft: WorkflowDraft, settings: config.Config, case: str) -> ResolvedAgents | None:
    try:
        return resolve_agents(NewTask(prompt=HOSTILE, directory="/", agent="claude", workflow=draft), settings)
    except HoldfastError as error:
        refusal = str(error)
    assert "\n" not in refusal, case
    return None


def nothing_is_put_in(draft: WorkflowDraft, crew: ResolvedAgents, case: str) -> None:
    """Gates and command lines are those of the file, and templates are still templates: nothing was put together."""
    for stage, made in zip(draft.stages, crew.stages, strict=True):
        assert made.gate == stage.gate, case
        choices = [
            (member.chosen, each.agent_options) for member, each in zip(stage.members, made.members, strict=True)
        ]
        for chosen, options in choices or [(stage.chosen, made.agent_options)]:
            argv = options.get("argv")
            wanted = chosen.command or (stage.chosen.command if not chosen.is_own else ())
            assert argv is None or tuple(argv) == wanted, case  # type: ignore[arg-type]
    for text in prompts_of_draft(draft):
        values = dict.fromkeys(templates.parse(text).names, HOSTILE)
        assert templates.render(templates.parse(text), values) == simple(text, values), case


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("session", [None, "0f8fad5b-d9cb-469f-a165-70867728950e"])
def test_no_prompt_is_an_argument_or_a_variable(name: str, session: str | None) -> None:
    """What was rendered goes to an agent by its standard input or a private file: no shell and no option parser sees
    it, in a first run, a later one and one that takes over."""
    steps = [{"do": "print", "with": "x", "run": None}]
    for hand_over in (None, f"hand-over {HOSTILE}"):
        order = WorkOrder(
            prompt=f"--yolo {HOSTILE}",
            run_number=1,
            session_id=session,
            options={"argv": ["true"], "steps": steps, "permission": "read"},
            files_directory="/files",
            hand_over=hand_over,
        )
        command = AGENTS[name].build(order)
        for word in (*command.argv, *command.env.values()):
            assert "PWNED" not in word
            assert "--yolo " not in word
        assert "PWNED" in command.stdin + "".join(command.files.values())
