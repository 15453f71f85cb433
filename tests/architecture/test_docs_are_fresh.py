"""The generated pages say what the code says: a stale page is a failing test."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import Budget
from holdfast.core.states import RUN_MOVES, TASK_MOVES, WORKSPACE_MOVES

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))
PATHS = cast("Callable[[], list[str]]", SCRIPT["paths"])()
text_of = cache(cast("Callable[[str], str]", SCRIPT["text_of"]))  # when a test asks: not by all who collect tests
write_pages = cast("Callable[[Path], None]", SCRIPT["main"])


@pytest.mark.parametrize("path", PATHS)
def test_the_page_is_fresh(path: str) -> None:
    page = ROOT / path
    assert page.is_file(), f"{path} is missing: run `make docs`"
    assert page.read_text(encoding="utf-8") == text_of(path), f"{path} is stale: run `make docs`"


def test_make_docs_writes_every_page(tmp_path: Path) -> None:
    """`make docs` is the remedy that the test above names, so it has to work, and twice the same."""
    for _ in range(2):
        write_pages(tmp_path)
        written = {str(file.relative_to(tmp_path)): file for file in tmp_path.rglob("*") if file.is_file()}
        assert {path: file.read_text(encoding="utf-8") for path, file in written.items()} == {
            path: text_of(path) for path in PATHS
        }


def test_the_states_page_leaves_nothing_out() -> None:
    """Every move is in a diagram and, with its words, in a table; every outcome and every budget has its place."""
    text = text_of("docs/states.md")
    moves = [
        (str(before), str(after), words)
        for table in (TASK_MOVES, RUN_MOVES, WORKSPACE_MOVES)
        for before, targets in table.items()
        for after, words in targets.items()
    ]
    lines = text.splitlines()
    missing = [f"{before} --> {after}" for before, after, _ in moves if f"    {before} --> {after}" not in lines]
    missing += [words for before, after, words in moves if f"| `{before}` | `{after}` | {words} |" not in lines]
    missing += [name for name in (*Outcome, *Budget) if f"`{name}`" not in text]
    assert missing == []
