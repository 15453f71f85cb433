"""Statistics over a long history: right, and read from indexes alone."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.api.fleet.stats import read_reliability
from holdfast.api.queries import Queries
from holdfast.store.sqlite.engine.statements import statements
from holdfast.store.sqlite.engine.store import SqliteStore

DAY = 86400.0
START = 20_000 * DAY  # a midnight
RUNS = 3000


def history(home: Path) -> list[tuple[str, str, float, float | None, int]]:
    """(agent, outcome, ended, seconds, number) of many runs, written straight into the tables."""
    SqliteStore(str(home)).close()
    chance = random.Random(4)
    made = []
    connection = apsw.Connection(str(home / "holdfast.db"))
    with connection:
        connection.execute("INSERT INTO repos VALUES ('repo', '/r', '/r/.git', 0)")
        for n in range(RUNS):
            agent = chance.choice(["command", "scripted"])
            outcome = chance.choice(["completed", "completed", "failed", "timeout", "cancelled"])
            ended = START + chance.random() * 3 * DAY
            seconds = None if chance.random() < 0.1 else chance.expovariate(1 / 60)
            number = chance.choice([1, 1, 2])
            state = "completed" if outcome == "completed" else "failed"
            connection.execute(
                "INSERT INTO tasks (id, seq, repo_id, prompt, agent, base_ref, strategy, priority, settings, state,"
                " created_at, updated_at, ended_at) VALUES (?, ?, 'repo', 'p', ?, 'HEAD', 'none', 0, '{}', ?, 0, 0, ?)",
                (f"t{n}", n, agent, state, ended),
            )
            connection.execute(
                "INSERT INTO runs (id, task_id, number, fence, state, outcome, intended_at, started_at, ended_at,"
                " agent) VALUES (?, ?, ?, 1, 'settled', ?, 0, ?, ?, ?)",
                (f"r{n}", f"t{n}", number, outcome, None if seconds is None else ended - seconds, ended, agent),
            )
            made.append((agent, outcome, ended, seconds, number))
    connection.close()
    return made


def plan(home: Path, file: str, name: str, **bindings: Any) -> str:
    connection = apsw.Connection(str(home / "holdfast.db"))
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statements(file)[name]}", bindings).fetchall()
    connection.close()
    return "\n".join(str(row[3]) for row in rows)


def test_the_numbers_agree_with_a_plain_count(tmp_path: Path) -> None:
    """R-TERM-16: against the same history counted by hand, per agent and day."""
    made = history(tmp_path)
    rows = read_reliability(Queries(str(tmp_path)), by="day", after=START + DAY)
    expected_keys = {(run[0], math.floor(run[2] / DAY) * DAY) for run in made if run[2] >= START + DAY}
    assert {(row["agent"], row["since"]) for row in rows} == expected_keys
    assert len(rows) == 4
    for row in rows:
        since = row["since"]
        assert since is not None
        mine = [run for run in made if run[0] == row["agent"] and since <= run[2] < since + DAY]
        assert row["runs"] == len(mine)
        assert row["ends"] == {outcome: sum(run[1] == outcome for run in mine) for outcome in {run[1] for run in mine}}
        assert row["unexpected"] == sum(run[1] in ("failed", "timeout") for run in mine)
        assert row["restarts"] == sum(run[4] > 1 for run in mine)
        times = sorted(run[3] for run in mine if run[3] is not None)
        assert row["duration"]["mean"] == pytest.approx(sum(times) / len(times), abs=1e-4)
        assert row["duration"]["p50"] == pytest.approx(times[math.ceil(len(times) * 0.50) - 1], abs=1e-4)
        assert row["duration"]["p95"] == pytest.approx(times[math.ceil(len(times) * 0.95) - 1], abs=1e-4)


def test_a_long_history_is_read_from_indexes_alone(tmp_path: Path) -> None:
    """R-TERM-13, R-TERM-16: however many runs there are, no table is read row by row."""
    history(tmp_path)
    question = {"agent": None, "after": 0.0, "width": 86400}
    for name in ("ends", "percentiles"):
        words = plan(tmp_path, "views", name, **question)
        assert "SCAN runs USING COVERING INDEX runs_over" in words
    words = plan(tmp_path, "runs", "recent_durations", repo_id="repo", agent="command", limit=50)
    assert "SEARCH t USING INDEX tasks_completed (repo_id=? AND agent=?)" in words
    assert "TEMP B-TREE" not in words  # walked in order, so the limit ends it
