"""docs/howto/add-an-agent.md, followed to the letter in a copy of the package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "howto" / "add-an-agent.md"
_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> Iterator[tuple[str, str, str]]:
    """(language, file or nothing, text), in the order of the page."""
    yield from _BLOCK.findall(PAGE.read_text())


@pytest.fixture
def checkout(fleet: Fleet) -> Path:
    """What the page works on: the package, its golden tests and a way to run them."""
    root = fleet.root / "checkout"
    unwanted = shutil.ignore_patterns("__pycache__")
    for part in ("src", "tests/agents", "tests/fuzz", "tests/golden", "tests/harness"):
        shutil.copytree(ROOT / part, root / part, ignore=unwanted)
    for file in (ROOT / "pyproject.toml", *(ROOT / "tests").glob("*.py")):
        shutil.copy(file, root / file.relative_to(ROOT))
    (root / ".venv").symlink_to(sys.prefix)
    fleet.env |= {
        "PYTHONPATH": str(root / "src"),
        "PATH": f"{root}:{Path(sys.prefix, 'bin')}:{os.environ['PATH']}",
        "HOLDFAST_FUZZ_COUNT": "150",
        "PYTEST_DEBUG_TEMPROOT": str(fleet.root),  # away from the directories that other runs of pytest delete
    }
    return root


def patched(text: str, change: str) -> str:
    """With the lines of `change` that begin with + put between those that do not, which must be there, once."""
    lines = change.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] == " ")
    after = "".join(line[1:] for line in lines if line[0] in " +")
    assert text.count(before) == 1, f"this is not there, or not only once:\n{before}"
    return text.replace(before, after)


def shell(fleet: Fleet, script: str, cwd: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=fleet.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_page_adds_an_agent(fleet: Fleet, checkout: Path) -> None:
    """One file, one registry line, its recordings: then it is golden-checked, spoilt, and does a task."""
    said = []
    for language, file, text in blocks():
        if language == "python":
            (checkout / file).write_text(text)
        elif language == "diff":
            (checkout / file).write_text(patched((checkout / file).read_text(), text))
        else:
            assert language == "sh"
            said.append(shell(fleet, text, fleet.repo if "holdfast run" in text else checkout))
    events = [json.loads(line) for line in said[2].splitlines() if line.startswith("{")]
    kinds = [event["event"] for line in events for event in line["events"]]
    assert kinds == [
        *("SessionStarted", "Failure"),
        *("SessionStarted", "ToolStarted", "ToolFinished", "Text", "Usage", "Result"),
    ]
    assert re.search(r"\d+ passed", said[2]), said[2]
    [task] = fleet.json("ps", "--all")
    branch = fleet.branches()[0]
    fleet.cli("down")
    assert (task["state"], task["agent"]) == ("completed", "toy")
    assert fleet.file_on_branch(branch, "out.txt") == "Write the file"
