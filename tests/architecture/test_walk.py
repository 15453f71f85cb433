"""The walk of docs/architecture.md is true: a task's way from the claim to the removed worktree passes its modules."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.fleet import Fleet

ROOT = Path(__file__).resolve().parents[2]
MOST = 15  # modules, issue 17

# Runs a supervisor and prints every module of ours in the order of its first call, of the loop's thread.
TRACER = """
import os, sys
import holdfast
source = os.path.dirname(holdfast.__file__) + os.sep
seen = {}
def note(frame, event, _value):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(source):
        seen.setdefault(name.removeprefix(source))
from holdfast.cli.main import run
sys.setprofile(note)
try:
    run(sys.argv[2:])
except SystemExit:
    pass
finally:
    sys.setprofile(None)
    with open(sys.argv[1], "w") as file:
        file.write("\\n".join(seen))
"""


def walk() -> list[str]:
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.split("## A walk")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([a-z_/]+\.py)`", section, re.M)


def traced(fleet: Fleet, *words: object) -> list[str]:
    """Return the modules that a command calls, in the order of their first call."""
    out = fleet.root / f"trace-{words[0]}"
    script = fleet.root / "tracer.py"
    script.write_text(TRACER)
    command = [sys.executable, str(script), str(out), *map(str, words)]
    subprocess.run(command, cwd=fleet.repo, env=fleet.env, capture_output=True, check=True, timeout=120)
    return out.read_text().split("\n")


def test_the_walk_is_true(fleet: Fleet) -> None:
    """A module of the walk that is not called, or called out of order, is a stale page."""
    named = walk()
    assert len(named) <= MOST
    called = traced(fleet, "add", "fix it", "--", "true")
    called += traced(fleet, "up", "--idle-exit", "200ms")
    assert [name for name in named if name not in called] == []
    order = [called.index(name) for name in named]
    supervisor = [called.index(name) for name in named if name.startswith("supervisor/runs/")]
    assert supervisor == sorted(supervisor), [called[place] for place in order]
