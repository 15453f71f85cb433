"""Commits that Holdfast makes for a task: their subject and trailer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.text import subject_line
from holdfast.core.tasks.messages import task_commit_message

LONG = "Name the flag --as-json, and let the report of a task without any stages print an empty list instead"


@pytest.mark.parametrize(
    ("prompt", "subject"),
    [
        ("Fix the door", "Fix the door"),
        ("\n\n  Fix   the\tdoor.  \n\nIt squeaks.", "Fix the door"),
        ("## Fix the door", "Fix the door"),
        ("- [ ] Fix the door", "Fix the door"),
        ("--as-json is broken", "--as-json is broken"),
        ("Wait for it...", "Wait for it..."),
        ("\x1b[31mred\x1b[0m", "red"),
        (LONG, "Name the flag --as-json, and let the report of a task without any…"),
        ("x" * 100, "x" * 71 + "…"),
        ("# ", "#"),
        (" \n", ""),
    ],
)
def test_the_subject_of_a_commit_is_the_first_line_of_the_prompt(prompt: str, subject: str) -> None:
    """F12: cut between two words, without marks of Markdown."""
    assert subject_line(prompt) == subject


@given(st.text(max_size=200))
def test_any_prompt_makes_a_message_with_one_subject_and_the_trailer(prompt: str) -> None:
    """Whatever the prompt holds, it adds no line and no trailer."""
    subject, *rest = task_commit_message("7f3a", prompt, "Body.").split("\n")
    assert 0 < len(subject) <= 72
    assert rest == ["", "Body.", "", "Holdfast-Task: 7f3a", ""]
