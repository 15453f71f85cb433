"""A report holds other people's words: whatever they are, they stay in their place."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from holdfast.api.tasks.report import render_markdown
from holdfast.api.tasks.results import describe_members

Row = dict[str, Any]
HOSTILE = "```\n# Broken out\n````\n~~~\n</details></blockquote><h1>Out</h1>\n<!-- \n[x]: /y\n===\n---\n| a | b |"

TAGS = "</blockquote><b>\n\n<!-- x"


def stage(name: str = "review", **more: Any) -> Row:
    return {
        "name": name, "visit": 0, "attempt": 1, "member": None, "agent": "claude", "outcome": "completed",
        "reason": "it said so", "ruling": None, "passed": True, "text": "fine", "files": [], "commit": None,
        "gate": None, "started_at": 1.0, "ended_at": 61.0, "run": "r1",
    } | more  # fmt: skip


def found(stages: list[Row], **more: Any) -> Any:
    return {
        "task": "7f3a", "state": "completed", "workflow": "plan-build-review", "stages": stages, "members": [],
        "prompt": "Do it", "reason": "done", "repo": "/r", "agent": "claude", "labels": {}, "base_ref": "main",
        "base_commit": "0" * 40, "branch": "holdfast/7f3a", "created_at": 0.0, "ended_at": 90.0, "runs": 2,
        "usage": {"input": 1000, "output": 20, "cached": 0, "cost_usd": 0.5, "turns": 3, "model": "m"},
        "files": ["a.py"], "commit": "1" * 40, "messages": [], "decisions": [],
    } | more  # fmt: skip


def headings(text: str) -> list[str]:
    """Of the document itself, as a reader of Markdown sees it; and that nothing in it is HTML."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert not [token for token in (*tokens, *inline) if token.type.startswith("html")], text
    return [after.content for token, after in pairwise(tokens)
            if token.type == "heading_open" and token.level == 0]  # fmt: skip


ANY = st.one_of(
    st.text(alphabet=st.sampled_from("`~<>!-#|[]()\\\n \t*_=+1.a/\x1b\0&;"), max_size=60),
    st.text(max_size=60),
    st.sampled_from([HOSTILE, TAGS]),
)


@given(words=ANY, output=ANY, name=ANY, prompt=ANY)
@example(words=TAGS, output=TAGS, name=TAGS, prompt=TAGS)
@example(words=HOSTILE, output=HOSTILE, name=HOSTILE, prompt=HOSTILE)
@settings(max_examples=60, deadline=None)
def test_nothing_that_an_agent_or_a_gate_wrote_gets_out_of_its_place(
    words: str, output: str, name: str, prompt: str
) -> None:
    gate = {"command": name, "passed": False, "how": f"exited with 1 {name}", "output": output}
    text = render_markdown(
        found(
            [stage(text=words, gate=gate, reason=words, passed=False, agent=name), stage("work", text="", member=name)],
            prompt=prompt,
            reason=words,
            files=[name or "a"],
            branch=name or None,
            decisions=[{"at": 99.0, "by": name, "stage": words, "changes": words, "to": name}],
        )
    )
    assert not {"\x1b", "\0"} & set(text)
    seen = headings(text)
    assert [seen[1], *seen[-2:]] == ["The prompt", "Changed files (1)", "More"]
    assert len(seen) == 7, seen


def test_commands_in_a_sentence_are_code_and_names_are_readable() -> None:
    """No backslash stands before a backquote that has a partner, nor before `_` within a word."""
    text = render_markdown(found([stage()], prompt="Fix `make_total()` `", reason="run `a | b` and call x_y"))
    assert "# Fix `make_total()` \\`\n" in text
    assert "is **completed** by the workflow **plan-build-review**: run `a | b` and call x_y." in text


def test_a_report_reads_well() -> None:
    swarm = {"name": "review", "visit": 1, "total": 3, "outcomes": {"completed": 1, "timeout": 1, "crashed": 1}}
    members = [stage(member=name, visit=3, outcome=how, passed=how == "completed") for name, how in
               (("a", "completed"), ("b", "timeout"), ("c", "crashed"))]  # fmt: skip
    gate = {"command": "make test", "passed": True, "how": "exited with 0", "output": "ok ```\n"}
    sent_back = stage(visit=1, ruling="changes", passed=False)
    failed = stage("build", visit=2, passed=False, gate=gate | {"passed": False, "how": "exited with 1"})
    build = stage("build", gate=gate, attempt=2, text="Done.\n\n- one")
    text = render_markdown(found([build, sent_back, failed, *members], members=[swarm]))
    for wanted in (
        "Task `7f3a` is **completed** by the workflow **plan-build-review**: done.",
        "2 runs, 1m 30s from the time it was added to its end, 1 000 tokens in, 20 out, $0.5000, 3 turns",
        "| 1 | build, try 2 | claude | ✓ completed | ✓ exited with 0 | 1m |",
        "| 5 | review (member b), again (2) | claude | ✗ timeout |  | 1m |",
        "Members of review: 1 of 3 completed: 1 timeout, 1 crashed.",
        "## 2. review\n\nIt did not pass: it asked for changes.",
        "## 3. build, again (2)\n\nIt did not pass: its gate failed.",
        "> Done.\n>\n> - one",
        "````\nok ```\n````",
        "- `a.py`",
        "holdfast diff 7f3a",
    ):
        assert wanted in text, f"{wanted!r} is not in\n{text}"
    assert describe_members({"name": "-", "visit": 1, "total": 2, "outcomes": {"completed": 2}}) == "2 of 2 completed"
