"""The list of the fleet (R-CRASH-10): read by its events it is what reading all would give; `top --once` prints it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.clis import fake_cli, recorded
from tests.fleet import Fleet, wait_until

from holdfast.api.commands import Commands, pause
from holdfast.api.fleet.filter import ORDERS, ListFilter, SortedRows, build_word_test
from holdfast.api.fleet.models import FleetRow
from holdfast.api.fleet.view import FleetReader, FleetSnapshot, TaskCounter
from holdfast.api.queries import Queries
from holdfast.api.tasks.live_cost import LiveCost, LiveCosts
from holdfast.api.tasks.why.reason import SupervisorFacts
from holdfast.base.errors import HoldfastError, Unavailable

Row = dict[str, Any]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ended stays listed for as long as a slow machine needs."""
    monkeypatch.setattr("holdfast.api.fleet.filter.LINGER", 3600.0)
    monkeypatch.setattr("holdfast.api.fleet.view.LINGER", 3600.0)


def seen(picture: FleetSnapshot) -> list[tuple[FleetRow, str]]:
    """With the reasons that there would be if a supervisor ran, at one moment."""
    around = replace(picture.around, supervisor=SupervisorFacts(pid=1, agents=1, held=None))
    return [(row, around.why(row, 1e9)) for row in picture.rows]


def test_reading_by_events_is_reading_all(fleet: Fleet) -> None:
    """R-CRASH-10: whatever happens, in every order and with a filter."""
    chance = random.Random(9)
    commands, home = Commands(str(fleet.home)), str(fleet.home)
    tasks = [fleet.queue("true", prompt=f"number {n}", priority=n % 3) for n in range(6)]
    queries = Queries(home)
    wishes = [ListFilter(order=order) for order in ORDERS] + [
        ListFilter(words="number", everything=True),
        ListFilter(backwards=True),
    ]
    readers = [FleetReader(wish) for wish in wishes]
    for reader in readers:
        reader.read(queries)
    states: set[str] = set()
    for step in range(40):
        task = chance.choice(tasks)
        with fleet.as_its_user():
            deed = chance.choice((0, 0, 1, 1, 1, 2, 2, 3, 4, 5))
            try:
                if deed == 0:
                    tasks.append(
                        fleet.queue("true", prompt=f"later {step}", priority=chance.randrange(3), after=(task,))
                    )
                elif deed == 1:
                    pause(home, task, "because")
                elif deed == 2:
                    commands.resume(task)
                elif deed == 3:
                    commands.cancel(task, "because")
                elif deed == 4:
                    commands.retry(task, fresh=False)
                else:
                    tasks.append(fleet.queue("true", prompt=f"number {step}", parent=task))
            except HoldfastError:
                continue  # not in that state
        for wish, reader in zip(wishes, readers, strict=True):
            assert seen(reader.read(queries)) == seen(FleetReader(wish).read(Queries(home))), (step, wish)
        states |= {row["state"] for row in readers[0].read(queries).rows}
    assert states == {"queued", "paused", "cancelled"}, "the steps reach what they should"


def test_nothing_new_is_told_as_such(fleet: Fleet) -> None:
    """R-CRASH-10: what did not change is not drawn again; what did, is."""
    task = fleet.queue("true")
    queries, reader = Queries(str(fleet.home)), FleetReader()
    first = reader.read(queries)
    assert reader.read(queries).is_like(first)
    with fleet.as_its_user():
        pause(str(fleet.home), task, "because")
    second = reader.read(queries)
    assert not second.is_like(first)
    assert [row["state"] for row in first.rows] == ["queued"], "a picture never changes"
    assert (len(first.around.queue), len(second.around.queue)) == (1, 0)
    assert [row["state"] for row in second.rows] == ["paused"]


class Failing(Queries):
    """A store that cannot be read at its n-th view from now."""

    left = 0

    def view(self, name: str, **parameters: Any) -> list[Row]:
        self.left -= 1
        if self.left == 0:
            raise Unavailable("the disk is gone for a moment")
        return super().view(name, **parameters)


def test_a_reading_that_failed_halfway_loses_nothing(fleet: Fleet) -> None:
    """R-CRASH-10: whatever it was at, the next one is whole."""
    home, tasks = str(fleet.home), [fleet.queue("true") for _ in range(10)]
    queries, reader = Failing(home), FleetReader()
    reader.read(queries)
    failures = 0
    for step in range(1, 10):
        with fleet.as_its_user():
            pause(home, tasks[step], "because")
        queries.left = step
        try:
            reader.read(queries)
        except Unavailable:
            failures += 1
        queries.left = 0
        assert seen(reader.read(queries)) == seen(FleetReader().read(Queries(home))), step
    assert failures >= 5, "it is made to fail at every view of a reading"


def test_what_ended_leaves_the_list_in_time(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-10: seen to have ended, then gone; with finished ones it stays until it is forgotten."""
    task, stays = fleet.queue("true"), fleet.queue("true")
    queries = Queries(str(fleet.home))
    reader, all_of_them = FleetReader(), FleetReader(ListFilter(everything=True))
    with fleet.as_its_user():
        Commands(str(fleet.home)).cancel(task, "because")
    assert [row["id"] for row in reader.read(queries).rows] == [stays, task]
    monkeypatch.setattr("holdfast.api.fleet.filter.LINGER", -1.0)
    monkeypatch.setattr("holdfast.api.fleet.view.LISTED_HOLD", 0.0)
    assert [row["id"] for row in reader.read(queries).rows] == [stays]
    assert [row["id"] for row in all_of_them.read(queries).rows] == [stays, task]
    with fleet.as_its_user():
        Commands(str(fleet.home)).cancel(stays, "because")
    fleet.cli("purge", "--repo", fleet.repo, "--yes")
    assert all_of_them.read(queries).rows == []


def test_counting_is_counting_all(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.api.fleet.view.RECOUNT_FACTOR", 0.0)
    home, counts = str(fleet.home), TaskCounter()
    fleet.queue("true")
    queries = Queries(home)
    for is_paused in (True, False):
        task = fleet.queue("true")
        with fleet.as_its_user():
            if is_paused:
                pause(home, task, "-")
            else:
                Commands(home).cancel(task, "-")
        assert counts.read(queries) == queries.counts()
    assert set(queries.counts()) == {"queued", "paused", "cancelled"}


def test_rows_are_put_in_their_place() -> None:
    chance = random.Random(3)
    rows: dict[int, Any] = {n: {"id": str(n), "seq": n, "priority": chance.randrange(9)} for n in range(50)}
    listed = SortedRows(rows.values(), lambda row: (row["priority"], row["seq"]))
    for _ in range(300):
        n = chance.randrange(50)
        if chance.random() < 0.3:
            listed.drop(str(n))
            rows.pop(n, None)
        else:
            rows[n] = {"id": str(n), "seq": n, "priority": chance.randrange(9)}
            listed.put(rows[n])
    assert len(listed.rows) == len(rows)
    assert all((a["priority"], a["seq"]) < (b["priority"], b["seq"]) for a, b in pairwise(listed.rows))
    assert all(rows[row["seq"]] is row for row in listed.rows)


@pytest.mark.parametrize(
    ("words", "is_found"),
    [
        ("", True),
        ("FIX", True),
        ("fix state:paused", True),
        ("state:queued", False),
        ("label:team=web", True),
        ("!web", False),
        ("!docs parked", True),
        ("!", True),
    ],
)
def test_words_find_tasks(words: str, is_found: bool) -> None:
    row: Any = {
        "id": "abc",
        "state": "paused",
        "agent": "claude",
        "worker": None,
        "repo": "/src",
        "stage": None,
        "workflow": None,
        "labels": {"team": "web"},
        "prompt": "Fix the test",
    }
    assert build_word_test(words)(row, "the account is parked") is is_found


def test_once_prints_what_the_screen_shows(fleet: Fleet) -> None:
    """R-CRASH-10: for scripts; no escape sequence reaches them, and finished tasks only when asked for."""
    task = fleet.queue("true", prompt="\x1b[31mpaint\x1b[0m it")
    over = fleet.queue("true", prompt="over")
    fleet.cli("cancel", over)
    plain = fleet.cli("top", "--once").stdout
    assert "no supervisor is running (`holdfast up`); 1 queued; 1 cancelled" in plain
    assert f"{task}  queued" in plain
    assert "\x1b" not in plain
    found = json.loads(fleet.cli("top", "--once", "--all", "--json").stdout)
    assert {row["id"]: row["why"].split(":")[0] for row in found["tasks"]}[task] == "no supervisor is running"
    assert {row["id"] for row in found["tasks"]} == {task, over}
    assert set(found) >= {"supervisor", "counts", "holds", "machine", "alerts", "workers", "schedules", "left_out"}
    assert abs(found["at"] - time.time()) < 3600
    assert "need `--once`" in fleet.cli("top", "--json", code=2).stderr
    assert "`holdfast top --once`" in fleet.cli("top", code=2).stderr


def test_once_starts_fast(fleet: Fleet) -> None:
    """R-CRASH-10: a script that asks every second pays for no screen."""
    fleet.queue("true")
    code = (
        "import sys; from holdfast.cli.main import run; run(['top', '--once']); "
        "print(sorted({'asyncio', 'rich', 'textual', 'importlib.metadata'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=fleet.env, cwd=fleet.repo, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_what_a_running_agent_took_is_told_before_it_ends(fleet: Fleet) -> None:
    """R-CRASH-10: an agent at work for hours is not free of charge until it ends."""
    lines = recorded("codex", "tool")
    binary = fake_cli(fleet.root / "bin", "codex", lines=lines, hold=len(lines), then="echo hello > out.txt")
    fleet.env["HOLDFAST_CODEX_BINARY"] = str(binary)
    fleet.up()
    task = fleet.add("write it", "--agent", "codex")
    fleet.wait_started(task)
    queries, reader, costs = Queries(str(fleet.home)), FleetReader(), LiveCosts()
    told = wait_until(lambda: costs.look(queries, reader.read(queries).rows), "its agent told of tokens")
    assert told == {task: LiveCost(284, None)}
    assert costs.look(queries, reader.read(queries).rows) == told, "nothing is counted twice"
    (fleet.root / "bin" / "codex.go").touch()
    fleet.wait_state(task, "completed")
    rows = reader.read(queries).rows
    assert [(row["tokens"], row["cost_usd"]) for row in rows] == [(284, None)]
    assert costs.look(queries, rows) == {}
