"""Workflows in files: what is read, and every mistake with its line."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast.config.read_file import Layer, read_settings_file
from holdfast.config.tables import builtin_workflows
from holdfast.config.tables.workflow_keys import NOT_OF_A_STAGE, STAGE_KEYS
from holdfast.core.tasks.task_lists import NAMES
from holdfast.core.workflows.draft import AgentChoice, DraftFlaw, MemberDraft, WorkflowDraft, find_flaws
from holdfast.core.workflows.workflow import OnFailure
from holdfast.intake.new_task import NewTask

GOOD = """\
[workflow.careful]
about = "Build, look, sum up."

[[workflow.careful.stage]]
name = "build"
agent = "claude"
model = "opus"
permission = "edit"
timeout = "30m"
retry = 2
gate = "make test"
gate_timeout = "5m"
prompt_file = "prompts/build.md"

[[workflow.careful.stage]]
name = "look"
members = ["one", { name = "two", agent = "codex", prompt = "{{ member }}: {{ stages.build.text }}" }]
permission = "read"
at_once = 1
least = 2
prompt = "Look at {{ task.range }}, {{ member }}."

[[workflow.careful.stage]]
name = "try"
apart = true
[[workflow.careful.stage.member]]
name = "a"
command = ["my-agent", "--fast"]
[[workflow.careful.stage.member]]
name = "b"
scenario = [{ print = "hello" }, { exit = 1 }]

[[workflow.careful.stage]]
name = "review"
approval = true
reviews = true
back_to = "build"
max_turns = 2
on_failure = "pause"
gate = true

[workflow.work]
[[workflow.work.stage]]
name = "only"
"""


def read(tmp_path: Path, text: str, *, of_repository: bool = False) -> Layer:
    (tmp_path / "prompts").mkdir(exist_ok=True)
    (tmp_path / "prompts" / "build.md").write_text("Build {{ task.prompt }}.\n\n{{ feedback }}\n")
    path = tmp_path / "holdfast.toml"
    path.write_text(text)
    return read_settings_file(str(path), of_repository=of_repository)


def told(layer: Layer) -> list[str]:
    folder = os.path.dirname(layer.place) + os.sep
    return [str(problem).replace(folder, "") for problem in layer.problems]


def test_everything_that_may_be_said_is_read(tmp_path: Path) -> None:
    layer = read(tmp_path, GOOD)
    assert told(layer) == []
    assert list(layer.workflows) == ["careful", "work"]
    draft = layer.workflows["careful"]
    assert (draft.about, draft.origin) == ("Build, look, sum up.", "user")
    assert draft.place.endswith("holdfast.toml:1")
    assert draft.wants_range
    build, look, try_, review = draft.stages
    assert build.chosen == AgentChoice(agent="claude", model="opus", permission="edit")
    assert (build.timeout, build.retry, build.gate, build.gate_timeout) == (1800.0, 2, "make test", 300.0)
    assert build.prompt.startswith("Build {{ task.prompt }}.")
    assert look.members == (
        MemberDraft(name="one"),
        MemberDraft(name="two", chosen=AgentChoice(agent="codex"), prompt="{{ member }}: {{ stages.build.text }}"),
    )
    assert (look.at_once, look.least, look.apart) == (1, 2, False)
    assert try_.apart
    assert try_.members[0].chosen.command == ("my-agent", "--fast")
    assert try_.members[1].chosen.scenario[1] == {"do": "exit", "with": 1, "run": None}
    assert (review.reviews, review.back_to, review.max_turns, review.approval) == (True, "build", 2, True)
    assert review.on_failure is OnFailure.PAUSE
    assert review.has_set_gate
    assert layer.workflows["work"].stages[0].prompt == "{{ task.prompt }}"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("", (None, False)),
        ("preserve_on_failure = true", (True, False)),
        ("preserve_on_failure = false", (False, False)),
        ("keep_workspace = true", (None, True)),
    ],
)
def test_a_workflow_says_what_happens_to_the_workspaces_of_its_tasks(
    tmp_path: Path, line: str, value: tuple[bool | None, bool]
) -> None:
    """Issue 19, 12: a stage cannot, as all of them share the task's. A repository's file needs trust for it."""
    text = f'[workflow.w]\n{line}\n[[workflow.w.stage]]\nname = "a"\n'
    layer = read(tmp_path, text)
    assert told(layer) == []
    assert (layer.workflows["w"].preserve_on_failure, layer.workflows["w"].keep_workspace) == value
    needs = [f"workflow.w.{line.partition(' ')[0]}"] if line else []
    assert list(read(tmp_path, text, of_repository=True).needs_trust) == needs
    wrong = read(tmp_path, '[workflow.w]\nkeep_workspace = "maybe"\n[[workflow.w.stage]]\nname = "a"\n')
    assert "workflow.w: keep_workspace: " in told(wrong)[0]


def test_what_of_a_repositorys_workflows_needs_trust(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD).trusted_tables == {}
    assert list(read(tmp_path, GOOD, of_repository=True).needs_trust) == [
        "workflow.careful.build.gate",
        "workflow.careful.build.permission",
        "workflow.careful.try.a.command",
        "workflow.careful.try.b.scenario",
    ]


BAD = """\
[workflow.one]
abut = "x"
[[workflow.one.stage]]
name = "build"
agnet = "claude"
timeout = 30
retry = -1
[[workflow.one.stage]]
name = "build"
agent = "cluade"
[[workflow.one.stage]]
name = "review"
reviews = true
[[workflow.one.stage]]
name = "back"
reviews = true
back_to = "bild"
[[workflow.one.stage]]
name = "forth"
on_failure = "back"
back_to = "last"
prompt = '''
Look at {{ task.rnage }}
and {{ stages.last.text
'''
[[workflow.one.stage]]
name = "swarm"
members = ["a", "a"]
reviews = true
back_to = "build"
least = 3
[[workflow.one.stage]]
name = "last"
prompt = ""
least = 2
[[workflow.one.stage]]
prompt_file = "nowhere.md"
[[workflow.one.stage]]
name = "bad name"
prompt_file = "../outside.md"
[[workflow.one.stage]]
name = "file"
prompt_file = "prompts/bad.md"
[[workflow.one.stage]]
name = "who"
command = "make"
scenario = [{ prnit = "x" }]
[[workflow.one.stage]]
name = "members"
member = [{ name = "x", prompt = "" }, { prompt = "y", gate = "no" }]
[workflow."a b"]
[workflow.empty]
"""


EXPECTED = [
    "holdfast.toml:2: workflow.one: abut: there is no setting 'abut' here; did you mean 'about'?",
    "prompts/bad.md:2: workflow.one, stage 'file': prompt: line 2, column 1: there is no variable 'nope'",
    "holdfast.toml:5: workflow.one, stage 'build': agnet: there is no setting 'agnet' here; did you mean 'agent'?",
    "holdfast.toml:6: workflow.one, stage 'build': timeout: '30' is not a duration; write it with a unit, like 90s, "
    "5m, 1h30m or 250ms",
    "holdfast.toml:7: workflow.one, stage 'build': retry: '-1' is not a whole number of at least 0",
    "holdfast.toml:9: workflow.one, stage 'build': name: there is a stage 'build' above already",
    "holdfast.toml:10: workflow.one, stage 'build': agent: there is no agent 'cluade' (known: command, scripted, "
    "claude, codex, gemini, opencode, qwen, copilot, aider); did you mean 'claude'?",
    "holdfast.toml:13: workflow.one, stage 'review': reviews: a reviewing stage has to say which stage it sends back "
    "to: `back_to` is missing",
    "holdfast.toml:17: workflow.one, stage 'back': back_to: there is no stage 'bild'; did you mean 'build'?",
    "holdfast.toml:21: workflow.one, stage 'forth': back_to: the stage 'last' does not come before this one",
    "holdfast.toml:23: workflow.one, stage 'forth': prompt: line 1, column 9: there is no variable 'task.rnage'; did "
    "you mean 'task.range'?",
    "holdfast.toml:24: workflow.one, stage 'forth': prompt: line 2, column 5: '{{' is never closed by '}}'; write "
    "'{{{{' for two braces",
    "holdfast.toml:28: workflow.one, stage 'swarm', member 'a': name: there is a member 'a' above already",
    "holdfast.toml:29: workflow.one, stage 'swarm': reviews: a stage with members cannot rule (`reviews`): let a stage "
    "after it sum up and rule",
    "holdfast.toml:31: workflow.one, stage 'swarm': least: 3 of 2 members cannot be asked for; write 1 to 2",
    "holdfast.toml:34: workflow.one, stage 'last': prompt: the prompt is empty: say what the agent should do, or leave "
    "it out",
    "holdfast.toml:35: workflow.one, stage 'last': least: `least` is about members, and this stage has none",
    "holdfast.toml:36: workflow.one, stage 8: it needs a name: `name` is missing",
    "holdfast.toml:37: workflow.one, stage 8: prompt_file: there is no file nowhere.md",
    "holdfast.toml:39: workflow.one, stage 'bad name': name: 'bad name' cannot be a name here: a name has only "
    "letters, digits, '_' and '-', begins with a letter or digit, and has at most 40 characters",
    "holdfast.toml:40: workflow.one, stage 'bad name': prompt_file: '../outside.md' is not a file of this repository; "
    "name one inside it",
    "holdfast.toml:46: workflow.one, stage 'who': command: it is not a command as a list of words, like "
    '["my-agent", "--headless"]',
    "holdfast.toml:47: workflow.one, stage 'who': scenario: here, step 1: there is no action 'prnit'; did you mean "
    "'print'?",
    "holdfast.toml:50: workflow.one, stage 'members', member 'x': prompt: the prompt is empty: leave it out to use the "
    "prompt of the stage",
    "holdfast.toml:50: workflow.one, stage 'members', member 2: it needs a name: `name` is missing",
    "holdfast.toml:50: workflow.one, stage 'members', member 2: gate: there is no setting 'gate' here",
    "holdfast.toml:51: 'a b' cannot be a workflow's name: a name has only letters, digits, '_' and '-', begins with a "
    "letter or digit, and has at most 40 characters",
    "holdfast.toml:52: workflow.empty: it has no stages: begin each with a line [[workflow.NAME.stage]]",
]


def test_all_mistakes_are_told_at_once_each_on_its_line(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "bad.md").write_text("ok\n{{ nope }}\n")
    (tmp_path.parent / "outside.md").write_text("secret")
    layer = read(tmp_path, BAD, of_repository=True)
    assert layer.workflows == {}
    assert told(layer) == EXPECTED


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workflow = 3", "'workflow' is a section of workflows, such as [workflow.careful]"),
        ("[workflow]\nx = 3", "'workflow.x' is a workflow, a table with stages: [[workflow.x.stage]]"),
        ("[workflow.x]\nstage = 3", "'workflow.x.stage' is a list of stages"),
        ("[workflow.x.stage]\nname = 'a'", "begin each with a line [[workflow.x.stage]]"),
        ("[[workflow.x.stage]]\nname='a'\nmembers = 3", "it is not a list of members"),
        ("[[workflow.x.stage]]\nname='a'\nmembers = []", "it is empty; leave it out for a stage with one agent"),
        ("[[workflow.x.stage]]\nname='a'\ntimeout = '0s'", "it must be longer than 0"),
        ("[[workflow.x.stage]]\nname='a'\ngate = ' '", "it is empty; leave it out instead"),
        ("[[workflow.x.stage]]\nname='a'\non_failure = 'retry'", "'retry' is not one of fail, continue, pause, back"),
        ("[[workflow.x.stage]]\nname='a'\non_failure = 'back'", "needs `back_to`, the stage to go back to"),
        ("[[workflow.x.stage]]\nname='a'\nback_to = 'a'", "does not come before this one"),
        (
            "[[workflow.x.stage]]\nname='a'\n[[workflow.x.stage]]\nname='b'\nback_to = 'a'",
            "nothing sends back from here",
        ),
        ("[[workflow.x.stage]]\nname='a'\nreviews = 'yes'", "it is neither true nor false"),
        ("[[workflow.x.stage]]\nname='a'\nagent='command'\naccount='x'", "the agent 'command' has no accounts"),
        ("[[workflow.x.stage]]\nname='a'\nagent='claude'\ncommand=['x']", "the agent 'claude' takes no command"),
        ("[[workflow.x.stage]]\nname='a'\nprompt='x'\nprompt_file='y'", "either `prompt` or `prompt_file`, not both"),
        ("[[workflow.x.stage]]\nname='a'\nprompt_file='.git/config'", "is not a file of this repository"),
        ("[[workflow.x.stage]]\nname='a'\nprompt_file='/etc/passwd'", "is not a file of this repository"),
        ("[[workflow.x.stage]]\nname='a'\nprompt_file='link.md'", "is not a file of this repository"),
        ("[[workflow.x.stage]]\nname='a'\nprompt_file='pipe'", "cannot be read: it is not a regular file"),
        ("[[workflow.x.stage]]\nname='a'\nprompt_file='big'", "it is larger than 64 KiB"),
        ("[[workflow.x.stage]]\nname='a'\nprompt_file='binary'", "it is not UTF-8 text"),
        ("[[workflow.x.stage]]\nname='a'\nscenario='deep.toml'", "it is nested too deeply"),
        ("[[workflow.x.stage]]\nname='a'\nmodel='--yolo'", "'--yolo' cannot be the name of a model"),
        ("[[workflow.x.stage]]\nname='a'\nretry='2'", "is not a whole number"),
    ],
)
def test_a_mistake_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "link.md").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "big").write_bytes(b"x" * 70_000)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "deep.toml").write_text("a." * 30_000 + "a = 1")
    layer = read(tmp_path, text, of_repository=True)
    assert len(layer.problems) == 1
    assert message in str(layer.problems[0])
    assert layer.problems[0].line is not None
    assert "\n" not in str(layer.problems[0])


def test_the_built_in_ones_have_no_mistakes() -> None:
    for draft in builtin_workflows.BUILT_IN.values():
        assert find_flaws(draft) == []
    broken = builtin_workflows.PLAN_BUILD_REVIEW.stages[1:]
    assert DraftFlaw(0, None, "prompt", "line 9, column 1: there is no stage 'plan'", 9) in [
        DraftFlaw(flaw.stage, flaw.member, flaw.key, flaw.text.partition(";")[0], flaw.line)
        for flaw in find_flaws(WorkflowDraft(name="x", stages=broken))
    ]
    assert builtin_workflows.REVIEW_SWARM.wants_range
    assert not builtin_workflows.REVIEW_SWARM.wants_prompt
    assert builtin_workflows.PLAN_BUILD_REVIEW.wants_prompt


def test_the_examples_of_the_documentation_are_true(tmp_path: Path) -> None:
    """docs/howto/workflows.md: every example is read without a mistake, and its mistake is what is said of it."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "workflows.md").read_text()
    examples = [block.partition("```")[0] for block in page.split("```toml\n")[1:]]
    assert len(examples) == 4
    for example in examples:
        assert told(read(tmp_path, example)) == [], example
    careful = examples[1]
    shifted = careful.replace("They were made for this task:", "x").replace("{{ task.prompt }}", "  {{ task.promt }}")
    (problem,) = read(tmp_path, shifted).problems
    assert "prompt: line 3, column 3: there is no variable 'task.promt'; did you mean 'task.prompt'?" in str(problem)
    assert problem.line == 22
    for name in ("careful", "panel", "rehearsal"):
        assert f"[workflow.{name}]" in page


def test_each_option_of_a_task_is_a_key_of_a_stage_or_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A new option of tasks has to be decided on here, too; the refusal names what to write instead."""
    options = {field.name for field in fields(NewTask)} | NAMES
    assert sorted(options - set(STAGE_KEYS) - set(NOT_OF_A_STAGE)) == []
    assert not set(STAGE_KEYS) & set(NOT_OF_A_STAGE)
    path = tmp_path / "config.toml"
    lines = [f"{key} = 1" for key in NOT_OF_A_STAGE]
    path.write_text(
        "\n".join(["[[workflow.w.stage]]", 'name = "a"', *lines, 'members = [{ name = "m", priority = 1 }]'])
    )
    told = [problem.text for problem in read_settings_file(str(path), of_repository=False).problems]
    for key, why in NOT_OF_A_STAGE.items():
        assert any(f"stage 'a': {key}: a stage has no `{key}`: {why}" in text for text in told), key
    assert any("member 'm'" in text and "a member has no `priority`" in text for text in told)
    for key in ("preserve", "preserve_on_failure", "keep_workspace"):
        assert "before the first stage, in [workflow.NAME]" in NOT_OF_A_STAGE[key]
