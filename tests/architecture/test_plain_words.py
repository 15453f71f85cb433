"""Plain words: a docstring starts with a verb or its subject, and private words do not come back."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "holdfast"
MODULES = sorted(SOURCE.rglob("*.py"))
FIRST = re.compile(
    r"^(What|Whether|Who|Whom|Whose|Those|Of|And|In|It|Its|That|Which|Where|How|Not|With|On|For|From|As|At|But|Nobody"
    r"|Somebody|Whoever|Nothing)\b"
)
METAPHORS = re.compile(r"\b(cradle|nursery|plight|purse|errand|deeds|scribe|whoever|mended|heed)\b", re.IGNORECASE)
# Names of fault points and of files that existed before stay as they are: they are published.
PUBLISHED = re.compile(r"(cradle|nursery)\.[a-z_]+|0014-cradle|\"plight\"")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_docstrings_begin_with_a_verb_or_a_subject(path: Path) -> None:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node) or ""
            if FIRST.match(text):
                found.append(f"{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    assert found == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_metaphors(path: Path) -> None:
    text = PUBLISHED.sub("", path.read_text())
    assert sorted({match[0] for match in METAPHORS.finditer(text)}) == []
