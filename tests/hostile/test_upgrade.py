"""`down --keep-agents`, a new version, `up`: agents of the old one continue, though its files are gone or garbled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.fleet import Fleet, lives, wait_until

import holdfast

ENDS_WITH = 7
ROOT = Path(__file__).resolve().parents[2]
BEFORE_THE_ROOMS = "d2d23223"  # the last commit with the old layout of modules (issue 17)


def installed(fleet: Fleet, version: str) -> Path:
    """A copy of the package with that version, to be put on PYTHONPATH."""
    place = fleet.root / f"version-{version}"
    shutil.copytree(Path(holdfast.__file__).parent, place / "holdfast", ignore=shutil.ignore_patterns("__pycache__"))
    init = place / "holdfast" / "__init__.py"
    text = init.read_text().replace(f'"{holdfast.__version__}"', f'"{version}"')
    assert version in text
    init.write_text(text)
    return place


def of_history(fleet: Fleet, commit: str, version: str) -> Path:
    """Return a copy of the package as it was at `commit`, with that version, to be put on PYTHONPATH."""
    words = ["git", "-C", str(ROOT), "archive", commit, "src/holdfast"]
    archive = subprocess.run(words, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"NOT RUN: this clone has no commit {commit}: {archive.stderr.decode().strip()}")
    place = fleet.root / f"version-{version}"
    place.mkdir()
    subprocess.run(["tar", "-x", "-C", str(place)], input=archive.stdout, check=True)
    (place / "src" / "holdfast").rename(place / "holdfast")
    init = place / "holdfast" / "__init__.py"
    init.write_text(init.read_text().replace('__version__ = "0.1.0"', f'__version__ = "{version}"'))
    return place


def use(fleet: Fleet, place: Path) -> None:
    fleet.env["PYTHONPATH"] = str(place)
    fleet.has_our_schemas = (place / "holdfast" / "cli" / "output" / "schemas.json").exists()
    assert place.name.removeprefix("version-") in fleet.cli("--version").stdout


def garble(place: Path) -> None:
    """What an upgrade leaves of the old files, at its worst: other content, and nothing."""
    (place / "holdfast" / "processes" / "keeper.py").write_text("raise SystemExit('not the keeper you knew')\n")
    shutil.rmtree(place / "holdfast" / "core")


@pytest.mark.parametrize("layout", ["this one", "before the rooms"])
def test_agents_of_the_old_version_are_adopted_by_the_new(fleet: Fleet, layout: str) -> None:
    """R-TERM-10: the keeper has everything in memory. One agent lives on, one ends between the versions: output
    complete, exit status right, nothing run again. Also when the modules of the old version lay elsewhere."""
    old = installed(fleet, "7.0.1") if layout == "this one" else of_history(fleet, BEFORE_THE_ROOMS, "7.0.1")
    new = installed(fleet, "8.0.0")
    use(fleet, old)
    supervisor = fleet.up()
    tasks = {}
    for name in ("early", "late"):
        go = fleet.root / f"go-{name}"
        script = f"echo before; touch {fleet.root}/at-{name}; until test -e {go}; do sleep 0.1; done; echo after"
        tasks[name] = fleet.add(
            name, "--workspace", "directory", command=("sh", "-c", f"{script}; echo loud >&2; exit {ENDS_WITH}")
        )
    for name in tasks:
        wait_until((fleet.root / f"at-{name}").exists, f"the agent {name} is at work")
    pids = {name: started(fleet, task_id) for name, task_id in tasks.items()}
    fleet.cli("down", "--keep-agents")
    assert supervisor.wait(timeout=60) == 0
    garble(old)
    (fleet.root / "go-early").touch()
    wait_until(lambda: not lives(pids["early"]), "one agent ends while there is no supervisor at all")
    use(fleet, new)
    fleet.up()
    assert [event["message"] for event in fleet.events() if event["kind"] == "host.started"]
    wait_until(lambda: "task.adopted" in fleet.kinds(tasks["late"]), "the other one is adopted")
    assert lives(pids["late"])
    (fleet.root / "go-late").touch()
    for name, task_id in tasks.items():
        task = fleet.wait_state(task_id, "failed")
        assert [(run["outcome"], run["pid"]) for run in task["runs"]] == [("failed", pids[name])], name
        assert f"code {ENDS_WITH}" in task["reason"], name
        said = fleet.cli("logs", task_id).stdout.split()
        assert (said.count("before"), said.count("after")) == (1, 1), name
        assert "run.stopping" not in fleet.kinds(task_id), name
    fresh = fleet.add("fresh", "--workspace", "none", command=("true",))
    fleet.wait_state(fresh, "completed")  # and the new version's own keeper works


def started(fleet: Fleet, task_id: str) -> int:
    return int(
        wait_until(
            lambda: [run["pid"] for run in fleet.shown(task_id)["runs"] if run["state"] == "started"], "the run started"
        )[0]
    )
