"""Templates of prompts: what is in them, what is wrong with them, what comes out."""

from __future__ import annotations

import pytest

from holdfast.core.workflows import template as templates
from holdfast.core.workflows.template import TemplateScope, parse, render

HERE = TemplateScope(
    stages=("plan", "swarm", "review", "later"),
    reachable=frozenset({"plan", "swarm", "review"}),
    parallel=frozenset({"swarm"}),
    reviewing=frozenset({"review"}),
)


def wrong(text: str, here: TemplateScope = HERE) -> list[str]:
    return [str(mistake) for mistake in templates.find_mistakes(text, here)]


def test_values_are_put_in_as_they_are() -> None:
    template = parse("Do {{task.prompt}} on {{ task.branch }}.\n{{ task.labels.area.sub }}|{{ stages.plan.text }}")
    assert template.names == {"task.prompt", "task.branch", "task.labels.area.sub", "stages.plan.text"}
    values = {"task.prompt": "{{ task.id }} $(reboot) `x` }}}}", "task.branch": "holdfast/a", "task.id": "never"}
    assert render(template, values) == "Do {{ task.id }} $(reboot) `x` }}}} on holdfast/a.\n|"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", ""),
        ("plain { braces } and { { more } }", "plain { braces } and { { more } }"),
        ("{{{{ github.ref }}}}", "{{ github.ref }}"),
        ("{{{{{{ turn }}", "{{1"),
        ("{{ turn }}}}}}", "1}}"),
        ("${{\tturn\n}}", "$1"),
        ("{{{{{", "{{{"),
    ],
)
def test_two_braces_are_written_as_four(text: str, result: str) -> None:
    assert wrong(text) == []
    assert render(parse(text), {"turn": "1"}) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb {{ task.promt }}", "line 2, column 3: there is no variable 'task.promt'; did you mean 'task.prompt'?"),
        ("{{ prompt }}", "line 1, column 1: there is no variable 'prompt'; did you mean 'task.prompt'?"),
        ("x {{ task.prompt", "line 1, column 3: '{{' is never closed by '}}'; write '{{{{' for two braces"),
        ('{"a": {"b": 1}}', "line 1, column 14: '}}' closes nothing; write '}}}}' for two braces"),
        ("{{ }}", "line 1, column 1: there is no variable's name between '{{' and '}}'"),
        ("{{ turn + 1 }}", "'turn + 1' is not the name of a variable; a template has no expressions"),
        ("{{ $(id) }}", "'$(id)' is not the name of a variable"),
        ("{{ stages.plam.text }}", "there is no stage 'plam'; did you mean 'stages.plan.text'?"),
        ("{{ stages.plan }}", "'stages.plan' is a stage; say what of it: stages.plan.text, "),
        ("{{ stages.plan.txt }}", "there is no variable 'stages.plan.txt'; did you mean 'stages.plan.text'?"),
        ("{{ stages.later.text }}", "the stage 'later' does not run before this one"),
        ("{{ stages.plan.members }}", "the stage 'plan' has no members; its answer is 'stages.plan.text'"),
        ("{{ stages.plan.ruling }}", "the stage 'plan' rules nothing: it has no `reviews = true`"),
        ("{{ member }}", "'member' is only known in a stage with members"),
        ("{{ task.labels. }}", "there is no variable 'task.labels.'"),
        ("{{ env.HOME }}", "there is no variable 'env.HOME'"),
    ],
)
def test_a_mistake_has_a_place_and_a_remedy(text: str, message: str) -> None:
    assert len(wrong(text)) == 1
    assert message in wrong(text)[0]


def test_all_mistakes_are_told_at_once_and_not_without_end() -> None:
    assert [word[:17] for word in wrong("{{ nope }}\n}}\n{{ c d }}")] == [
        "line 1, column 1:",
        "line 2, column 1:",
        "line 3, column 1:",
    ]
    assert len(wrong("}} " * 40_000)) == templates.MOST_MISTAKES
    assert "more than 500 variables" in wrong("{{ turn }}" * 12_000)[0]
    assert "longer than 128 KiB" in wrong("x" * (templates.LONGEST + 1))[0]
    assert len(wrong("{{ " * 40_000)) == templates.MOST_MISTAKES


def test_every_variable_of_the_list_may_be_used_somewhere() -> None:
    """The reference page is made of the same list."""
    here = TemplateScope(
        stages=("NAME",),
        reachable=frozenset({"NAME"}),
        parallel=frozenset({"NAME"}),
        reviewing=frozenset({"NAME"}),
        is_member=True,
    )
    for name in templates.VARIABLES:
        assert wrong(f"{{{{ {name} }}}}", here) == []


def test_what_is_too_long_is_cut_in_the_middle_of_the_longest_values() -> None:
    template = parse("{{ task.prompt }}|{{ feedback }}|{{ turn }}")
    values = {"task.prompt": "a" * 5000 + "END", "feedback": "BEGIN" + "é" * 5000, "turn": "short"}
    text = render(template, values, most=2000)
    assert len(text.encode()) <= 2000
    prompt, feedback, turn = text.split("|")
    assert turn == "short"
    assert prompt.endswith("END")
    assert feedback.startswith("BEGIN")
    assert all("characters were left out here" in each for each in (prompt, feedback))
    assert render(template, values) == "|".join(values.values())
