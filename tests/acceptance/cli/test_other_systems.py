"""Not Linux (tests/darwin.py): everything imports, adding and looking work, the rest is refused in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.fleet import Fleet

DARWIN = Path(__file__).parents[2] / "darwin.py"
SOURCE = Path(__file__).parents[3] / "src" / "holdfast"


def elsewhere(fleet: Fleet, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, str(DARWIN), *map(str, arguments)],
        cwd=fleet.repo,
        env=fleet.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, f"{arguments} → {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def test_every_module_imports(fleet: Fleet) -> None:
    """Issue 4, 8: no module needs a Linux-only attribute just to be imported."""
    modules = [path for path in SOURCE.rglob("*.py") if path.name != "__main__.py" and path.parent != SOURCE]
    modules += [path for path in SOURCE.glob("*.py") if path.name not in ("__main__.py", "__init__.py")]
    assert int(elsewhere(fleet, "--import-everything").stdout) == len(modules)


def test_adding_and_looking_work(fleet: Fleet) -> None:
    task = json.loads(elsewhere(fleet, "add", "later, elsewhere", "--agent", "command", "--json", "--", "true").stdout)
    assert (task["state"], task["supervisor"]) == ("queued", False)
    assert "later, elsewhere" in elsewhere(fleet, "ps").stdout
    assert "No supervisor is running" in elsewhere(fleet, "why", task["id"]).stdout
    assert "task.queued" in elsewhere(fleet, "events").stdout
    elsewhere(fleet, "stats")
    elsewhere(fleet, "show", task["id"], "--json")
    elsewhere(fleet, "config", "show")
    elsewhere(fleet, "cancel", task["id"])
    assert fleet.show(task["id"])["state"] == "cancelled"


def test_the_doctor_says_what_is_not_supported(fleet: Fleet) -> None:
    """With and without a store: no stack trace, no false "all well"."""
    for _ in range(2):
        said = elsewhere(fleet, "doctor", code=1).stdout
        assert "agents cannot be supervised here: darwin has no child subreapers, pidfds and /proc" in said
        assert "not supported here: `up`, `run`, `rehearse`" in said
        assert "All well" not in said
        elsewhere(fleet, "add", "x", "--", "true")
    assert "leftover processes cannot be detected on this system" in said


REFUSED = [
    ("up",),
    ("up", "--detach"),
    ("run", "x", "--", "true"),
    ("rehearse", "nowhere.toml"),
    ("backup",),
    ("restore", "nowhere.tar"),
    ("purge", "--yes"),
    ("doctor", "--invariants"),
    ("alerts", "test"),
]


def test_what_needs_linux_is_refused_before_it_begins(fleet: Fleet) -> None:
    fleet.add("before", command=("true",))
    for arguments in REFUSED:
        done = elsewhere(fleet, *arguments, code=69)
        assert done.stdout == "", arguments
        (line,) = done.stderr.splitlines()
        assert "is not supported here: darwin has no child subreapers" in line, arguments
    assert [row["prompt"] for row in fleet.json("ps", "--all")] == ["before"]
    assert "usage:" in elsewhere(fleet, "up", "--help").stdout
