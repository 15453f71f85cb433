"""A long history slows nothing down: each statement does as much work beside 6,000 finished tasks as beside 1,200.

The work is SQLite's own count of its steps, so the load of a machine is no matter, and a scan of a table, of an index
or of a subquery is found alike. The supervisor that starts and stops also plays one task from its claim to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

import apsw
import pytest
from bench.history import fill_long
from tests.fleet import Fleet
from tests.harness import statement_steps
from tests.harness.statement_steps import Steps

SHORT, LONG = 1_200, 6_000  # finished tasks; both more than one piece of retention
SLACK = 400  # steps that differ for other reasons
# Statements that read a whole table, and why they may.
KNOWN = {
    "SELECT state, count(*) AS n FROM tasks GROUP BY state": "`top` counts finished tasks rarely (view.TaskCounter)",
    "PRAGMA integrity_check(1)": "`backup` proves that its copy is sound",
    "PRAGMA foreign_key_check": "`backup` proves that its copy is sound",
    "SELECT state, count(*) FROM tasks GROUP BY state": "`backup` writes into the file what is in it",
}
COMMANDS = {
    "ps": ("ps", "--json"),
    "add": ("add", "more", "--json", "--", "true"),
    "show": ("show", "old000000100", "--json"),
    "why": ("why", "old000000100", "--json"),
    "top": ("top",),
    "backup": ("backup", "copy.holdfast", "--json"),
    "start and stop": ("up", "--idle-exit", "0s"),
    "retention": ("retention",),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, dict[str, Steps]]]:
    """All commands in both homes, in the same order."""
    found: dict[int, dict[str, Steps]] = {}
    fleets = []
    for count in (SHORT, LONG):
        fleet = Fleet(tmp_path_factory.mktemp(f"history{count}"))
        fleets.append(fleet)
        fleet.add("x", "--priority", "1", command=("true",))
        store = apsw.Connection(str(fleet.home / "holdfast.db"))
        repo, settings = (str(value) for value in store.execute("SELECT repo_id, settings FROM tasks").fetchall()[0])
        store.execute("UPDATE tasks SET seq = 10000000")  # the newest
        store.close()
        fill_long(str(fleet.home / "holdfast.db"), repo, settings, count, time.time() - 60, 4)
        found[count] = {name: _count(fleet, name, words) for name, words in COMMANDS.items()}
    yield found
    for fleet in fleets:
        fleet.close()


def _count(fleet: Fleet, name: str, words: tuple[str, ...]) -> Steps:
    path = fleet.root / f"{name.replace(' ', '-')}.json"
    done = subprocess.run(
        [sys.executable, statement_steps.__file__, str(path), *words],
        cwd=fleet.repo,
        env=fleet.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return {words: (steps, walked) for words, (steps, walked) in json.loads(path.read_text()).items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_statement_does_more_work(counted: dict[int, dict[str, Steps]], name: str) -> None:
    short, long = (counted[count][name] for count in (SHORT, LONG))
    assert len(long) > 2
    worse = {
        words: (short.get(words, (0, 0))[0], steps)
        for words, (steps, _walked) in long.items()
        if steps > 2 * short.get(words, (0, 0))[0] + SLACK and words not in KNOWN
    }
    assert not worse, "\n".join(f"{before} → {now}: {words[:300]}" for words, (before, now) in worse.items())
