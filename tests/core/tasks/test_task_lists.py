"""Lists of tasks, read: what is a task, what is said of it, and every mistake with its line."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.base.errors import UsageError
from holdfast.core.tasks.task_lists import (
    TaskList,
    key_from_text,
    order_by_needs,
    parse_checklist,
    parse_jsonl,
    parse_prompt_file,
    split_unique,
)

LIST = """\
# Tasks

- [ ] Fix the lexer <!-- holdfast: key=lexer priority=5 label.area=core -->
      It reads too far.

      - [ ] also in strings
      ```
- [ ] not a task: within a fence of the lexer's
      ```
- [x] Long done
      with a note
* [ ] Fix the parser
  <!-- holdfast: after=lexer timeout=30m model="gpt 5" -->
1. [ ] Plain
   <!-- a remark of the author's -->

```
- [ ] an example
```
"""


def brief(listed: TaskList) -> list[tuple[Any, ...]]:
    return [(item.where, item.prompt, item.key, item.after, dict(item.said)) for item in listed.items]


def test_a_checklist_has_a_task_for_each_open_box_with_what_is_below_it() -> None:
    listed = parse_checklist(LIST)
    lexer = (
        "Fix the lexer It reads too far. - [ ] also in strings ``` - [ ] not a task: within a fence of the lexer's ```"
    )
    assert listed.problems == []
    assert (listed.skipped, listed.loose) == (1, 1)  # the fence at the end is text of its own
    found = brief(listed)
    assert found[0][2:] == ("lexer", (), {"priority": 5, "labels": {"area": "core"}})
    assert found[0][1].split() == lexer.split()
    assert found[0][1].startswith("Fix the lexer\n")
    assert found[1] == ("line 12", "Fix the parser", key_from_text("Fix  the\nparser"), ("lexer",),
                        {"timeout": "30m", "model": "gpt 5"})  # fmt: skip
    assert found[2][1] == "Plain\n<!-- a remark of the author's -->"
    assert len(found) == 3


def test_every_mistake_is_told_with_its_line() -> None:
    told = [str(problem) for problem in parse_checklist(
        "- [ ] a <!-- holdfast: agnet=claude priority=high rubbish -->\n- [ ]\n- [ ] b <!-- holdfast: key=x key=y -->\n"
    ).problems]  # fmt: skip
    assert told == [
        "line 1: 'rubbish' is not understood; write name=value, or name=\"several words\"",
        "line 2: the prompt is empty",
        "line 3: 'key' is given twice",
    ]
    told = [str(problem) for problem in parse_jsonl(
        '{"prompt": "a", "agnet": "claude"}\n\n[1]\n{"prompt": 1}\n{"prompt": "b", "priority": "high", "after": []}\n'
        '{"prompt": "b", "prompt": "c"}\n{"prompt": "d", "labels": {"a": 1}, "key": "sha256:1"}\n{"prompt": "e"\n'
        '{"key": "k"}\n' + "[" * 100_000
    ).problems]  # fmt: skip
    assert [line.partition(":")[0] for line in told] == [f"line {n}" for n in (1, 3, 4, 5, 5, 6, 7, 7, 8, 9, 10)]
    for wanted in (
        "Did you mean 'agent'?",
        "must be text",
        "whole number",
        "twice",
        "begins with 'sha256:'",
        "not JSON",
    ):
        assert any(wanted in line for line in told), wanted
    assert parse_prompt_file("fix-it.md", "Do it\n<!-- holdfast: agent=codex -->\n").items[0].key == "fix-it"


def test_keys_are_unique_and_needs_come_first() -> None:
    listed = parse_jsonl('{"prompt": "c", "key": "c", "after": ["b"]}\n{"prompt": "a\\n a"}\n{"prompt": "a a"}\n'
                   '{"prompt": "b", "key": "b"}\n{"prompt": "x", "key": "b"}\n')  # fmt: skip
    items, repeated, problems = split_unique(listed.items)
    assert [item.where for item in repeated] == ["line 3"]
    assert [str(problem) for problem in problems] == ["line 5: its key 'b' is that of line 4 too"]
    ordered, circles = order_by_needs(items)
    assert ([item.where for item in ordered], circles) == (["line 2", "line 4", "line 1"], [])
    ring, circles = order_by_needs(
        parse_jsonl('{"prompt": "a", "key": "a", "after": "b"}\n{"prompt": "b", "key": "b", "after": "a"}').items
    )
    assert (ring, len(circles)) == ([], 1)
    assert "line 1, line 2" in str(circles[0])


WORDS = st.sampled_from(
    ["- [ ] a", "- [x] b", "  - [ ] c", "\t* [ ] d", "```", "~~~", "<!-- holdfast: ", "key=x", "-->", "<!--", '"', "{",
     "}", '{"prompt": "p", ', '"after": ["x"]', "# h", "\r", "\0", "\ud800", " "]
)  # fmt: skip


@given(st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=25), st.sampled_from(["\n", " ", ""]))
@settings(max_examples=120, deadline=None)
def test_no_list_whatsoever_raises(words: list[str], between: str) -> None:
    text = between.join(words)
    for listed in (parse_checklist(text), parse_jsonl(text), parse_prompt_file("a.md", text)):
        items, _repeated, _problems = split_unique(listed.items)
        ordered, circles = order_by_needs(items)
        assert circles or sorted(item.key for item in ordered) == sorted(item.key for item in items)
        assert all(item.prompt.strip() for item in items)


def test_a_hostile_list_is_read_in_no_time() -> None:
    began = time.process_time()
    for text in (
        "<!-- holdfast:" * 70_000,
        "- [ ] " * 150_000,
        "- [ ] a\n" * 20_000,
        " " * 10**6 + "- [ ] x",
        "{" * 10**6,
    ):
        parse_checklist(text)
        parse_jsonl(text)
        parse_prompt_file("a.md", text)
    assert time.process_time() - began < 20


def test_a_thousand_needs_that_nobody_has_are_told_in_no_time(tmp_path: Path) -> None:
    """A hint is a look at every key: there are a few. Nor are a million needs written in one transaction."""
    from holdfast.api.tasks.task_lists import _find_bad_needs, read_list

    items = parse_jsonl(
        "".join(f'{{"prompt": "p{n}", "key": "key-{n}", "after": ["kex-{n}"]}}\n' for n in range(1000))
    ).items
    began = time.process_time()
    problems = _find_bad_needs(items, {})
    assert time.process_time() - began < 4  # it was forty seconds
    assert (len(problems), problems[0].text.partition("Did you mean")[1]) == (1000, "Did you mean")
    path = tmp_path / "dense.jsonl"
    needs = ", ".join(f'"k{n}"' for n in range(200))
    path.write_text("".join(f'{{"prompt": "p{n}", "after": [{needs}]}}\n' for n in range(60)))
    with pytest.raises(UsageError, match="have more than 10000 keys together"):
        read_list(str(path), "jsonl")
