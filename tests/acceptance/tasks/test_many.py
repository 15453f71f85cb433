"""Many tasks at once: by several ids or by a filter, one line for each, few transactions, nothing left behind."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.acceptance.cli.test_cli_contract import on_terminal
from tests.fleet import STRICT, Fleet, processes_of, wait_until

from holdfast.api.commands import Commands
from holdfast.api.tasks.batches import MOST
from holdfast.store.port.transaction import Transaction


def states(fleet: Fleet, *ids: str) -> list[str]:
    return [str(fleet.show(task)["state"]) for task in ids]


def test_several_ids_each_get_a_line(fleet: Fleet) -> None:
    """F5: what happened to each task or why not; the exit code is the worst; one of them does not hold back others."""
    first, second, third = (fleet.queue("true", delay=9999.0) for _ in range(3))
    fleet.cli("pause", second)
    said = fleet.cli("pause", first, second, third, code=4)
    assert [line.split(" ")[1].rstrip(".") for line in said.stdout.splitlines()] == [first, second, third]
    assert f"Paused {first}." in said.stdout
    assert f"Task {second} is paused already; nothing was changed. `holdfast why {second}`" in said.stdout
    assert "1 of 3 tasks were not changed." in said.stderr
    assert states(fleet, first, second, third) == ["paused"] * 3
    told = [json.loads(line) for line in fleet.cli("resume", first, second, "--json").stdout.splitlines()]
    assert [(row["id"], row["done"], row["state"]) for row in told] == [
        (first, True, "queued"),
        (second, True, "queued"),
    ]
    fleet.cli("set", first, second, third, "priority=4", "label.kind=test")
    assert {(fleet.show(task)["priority"], fleet.show(task)["labels"]["kind"]) for task in (first, second, third)} == {
        (4, "test")
    }
    assert "Cancelled" in fleet.cli("cancel", first, second, third, first).stdout
    fleet.cli("retry", first, second, "--prompt", "again")
    assert states(fleet, first, second, third) == ["queued", "queued", "cancelled"]
    assert {fleet.show(task)["prompt"] for task in (first, second)} == {"again"}
    assert "Task not found" in fleet.cli("cancel", first, "zzzzzz", code=3).stderr
    assert states(fleet, first) == ["queued"]


def test_a_filter_chooses_by_what_tasks_are(fleet: Fleet) -> None:
    """The options mean all of them together; states and words as in top's filter; ended tasks are left out."""
    core = [fleet.queue("true", labels={"area": "core"}, delay=9999.0) for _ in range(3)]
    docs = fleet.queue("true", labels={"area": "core2"}, delay=9999.0)
    other = fleet.make_repo(fleet.root / "other")
    away = fleet.queue("true", labels={"area": "core"}, directory=other, delay=9999.0)
    fleet.cli("cancel", core[2])
    fleet.cli("pause", "--label", "area=core", "--repo", ".", "--yes")
    assert states(fleet, *core, docs, away) == ["paused", "paused", "cancelled", "queued", "queued"]
    fleet.cli("resume", "state:paused", "repo:.", "--yes")
    fleet.cli("pause", "--agent", "command", "--label", "area", "--state", "queued", "--repo", other, "--yes")
    assert states(fleet, *core, docs, away) == ["queued", "queued", "cancelled", "queued", "paused"]
    for words, code, why in (
        (("cancel", "--label", "nosuch", "--yes"), 3, "No task to cancel matches."),
        (
            ("retry", "--state", "queued", "--yes"),
            3,
            "3 tasks (3 queued) match, but `retry` is for failed and cancelled",
        ),
        (("approve", "--state", "queued", "--yes"), 3, "but none of them waits for your approval"),
        (("cancel", "--state", "quueued", "--yes"), 2, "There is no state 'quueued'"),
        (("cancel", "stat:x", "--yes"), 2, "There is no filter 'stat:'"),
        (("cancel", core[0], "--all", "--yes"), 2, "Give ids or a filter"),
        (("cancel", "--repo", "/nowhere", "--yes"), 3, "Repositories: "),
        (("cancel",), 2, "Which task?"),
    ):
        assert why in fleet.cli(*words, code=code).stderr
    fleet.cli("cancel", "--all", "--yes")
    assert set(states(fleet, *core, docs, away)) == {"cancelled"}


def test_a_filter_asks_before(fleet: Fleet) -> None:
    """Without a terminal it is refused with the command to type; on one, anything but yes changes nothing."""
    tasks = [fleet.queue("true", labels={"area": "a b"}, delay=9999.0) for _ in range(2)]
    fleet.cli("pause", tasks[1])
    refused = fleet.cli("cancel", "--label", "area=a b", code=1).stderr
    assert "This affects 2 tasks (1 queued, 1 paused). Nothing was changed." in refused
    assert "`holdfast cancel --label 'area=a b' --yes`" in refused
    for answer, after in (("n", ["queued", "paused"]), ("", ["queued", "paused"]), ("y", ["cancelled", "cancelled"])):
        with on_terminal(fleet, "cancel", "--all") as terminal:
            wait_until(lambda: "[y/N]" in terminal.text, "it asks")
            assert "Cancel 2 tasks (1 queued, 1 paused)?" in terminal.text
            terminal.type(f"{answer}\n")
            terminal.wait()
        assert states(fleet, *tasks) == after


def test_wait_for_a_label_counts_what_failed_before(fleet: Fleet) -> None:
    """A task that failed before the wait began counts as failed; the same words choose."""
    bad = fleet.queue("exit 3", labels={"night": "1"})
    fleet.up()
    fleet.wait_state(bad, "failed")
    good = fleet.queue("true", labels={"night": "1"})
    said = fleet.cli("wait", "--label", "night", code=1).stdout
    assert {line.split()[0] for line in said.splitlines()} == {bad, good}
    fleet.cli("wait", "--label", "night=1", "--state", "completed")
    assert "No task to wait matches." in fleet.cli("wait", "--label", "day", code=3).stderr


def test_running_tasks_are_cancelled_together(fleet: Fleet) -> None:
    """Waiting and running ones, a parent with its subtask, and one that has ended: every tree is gone."""
    hang = "(setsid sleep 1000 &) ; touch working-$HOLDFAST_TASK_ID; exec sleep 1000"
    running = [fleet.queue(hang, labels={"x": "1"}) for _ in range(2)]
    done = fleet.queue("true")
    fleet.up("--agents", "4")
    for task in running:
        fleet.wait_started(task)
    fleet.wait_state(done, "completed")
    parent = fleet.queue("true", labels={"x": "1"}, delay=9999.0)
    child = fleet.queue("true", labels={"x": "1"}, parent=parent, delay=9999.0)
    refused = fleet.cli("set", done, parent, "prompt=other", code=4).stdout
    assert f"`holdfast send {done} TEXT`" in refused
    assert (fleet.show(done)["prompt"], fleet.show(parent)["prompt"]) == ("work", "other")
    refused = fleet.cli("set", "--label", "x", "--state", "running", "priority=1", "--yes", code=3).stderr
    assert "2 tasks (2 running) match, but `set` changes only tasks that do not run" in refused
    assert "`holdfast pause --label x --state running`" in refused
    said = fleet.cli("cancel", "--label", "x", "--yes")
    for task in (*running, parent, child):
        assert f"Cancelled {task}." in said.stdout
    assert states(fleet, *running, parent, child, done) == ["cancelled"] * 4 + ["completed"]
    assert [process for process in processes_of(fleet.root).values() if "sleep" in process] == []
    assert "there is nothing to cancel" in fleet.cli("cancel", done, running[0], code=4).stdout


def test_send_tells_ids_from_words(fleet: Fleet) -> None:
    """The last word is the message unless an option gives it, and no word is taken for an id by chance."""
    one, two = (fleet.queue("true", delay=9999.0) for _ in range(2))
    fleet.cli("send", one, two, "mind the tests")
    assert [fleet.show(task)["messages"][-1]["text"] for task in (one, two)] == ["mind the tests"] * 2
    fleet.cli("send", "--state", "queued", "note: all of you", "--yes")
    words = fleet.root / "words"
    words.write_text("from a file")
    fleet.cli("send", one, two, "--file", words)
    assert [one["text"] for one in fleet.show(two)["messages"]] == ["mind the tests", "note: all of you", "from a file"]
    for typed, why in (
        ((one, "also", "add tests"), f"`holdfast send {one} 'also add tests'`"),
        ((one, two[0], "--file", words), f"'{two[0]}' is not a task"),
        ((one[0], "--file", words), f"'{one[0]}' is not a task"),
        ((one,), f"`holdfast send {one} TEXT`"),
        (("now also add tests",), "Which task? `holdfast send ID 'now also add tests'`"),
        (("tests",), "Which task? `holdfast send ID tests`"),
        (("--rebase",), "Which task? `holdfast send ID --rebase`"),
        ((), "Which task?"),
        ((one, "--all", "x", "--yes"), "was given in addition to a filter"),
    ):
        assert why in fleet.cli("send", *typed, code=2).stderr
    assert len(fleet.show(one)["messages"]) == len(fleet.show(two)["messages"]) == 3


def test_merge_of_a_filter_leaves_out_what_has_nothing_to_merge(fleet: Fleet) -> None:
    """Merged tasks and tasks without changes are left out; a conflict holds back only its own task."""
    write = "echo $HOLDFAST_TASK_ID > {}; git add -A; git commit -qm work"
    clean, clash = (fleet.queue(write.format(name), labels={"m": "1"}) for name in ("one.txt", "two.txt"))
    again = fleet.queue(write.format("two.txt"), labels={"m": "1"})
    idle = fleet.queue("true", labels={"m": "1"})
    fleet.up()
    fleet.cli("wait", "--label", "m")
    fleet.wait_clean()
    fleet.cli("merge", clean)
    told = fleet.cli("merge", "--label", "m", "--yes", code=1).stdout.splitlines()
    assert len(told) == 2
    assert f"holdfast/{clash} is merged into main" in told[0]
    assert "two.txt" in told[1]
    assert again in told[1]
    assert idle not in "".join(told)
    assert fleet.git("show", "main:two.txt") == clash
    assert "There" in fleet.cli("merge", "--label", "m", "--into", "nosuch", "--yes", code=None).stdout
    left = fleet.cli("merge", "--label", "m", code=1).stderr
    assert "affects 1 task (1 completed)" in left


@pytest.mark.parametrize("count", [1000 if STRICT else MOST + 20])
def test_a_batch_is_one_transaction(fleet: Fleet, count: int) -> None:
    """Of many tasks, half are cancelled: one transaction for each batch, and every tree is proven empty.

    `make test-strict`: 500 of 1,000 tasks in less than 2 seconds of CPU.
    """
    with fleet.as_its_user():
        fleet.queue("true", labels={"x": "0"}, delay=9999.0)
        copy_tasks(fleet, [{"x": str(1 - number % 2)} for number in range(count - 1)])
    running = [fleet.queue("(setsid sleep 1000 &); exec sleep 1000", labels={"x": "1"}, priority=9) for _ in range(2)]
    fleet.up("--agents", "2")
    for task in running:
        fleet.wait_started(task)
    trace = fleet.root / "trace"
    fleet.may_be_warm = False  # a child of ours, whose CPU is counted
    before = os.times()
    said = fleet.cli("cancel", "--label", "x=1", "--yes", env={"HOLDFAST_FAULT_TRACE": str(trace)})
    after = os.times()
    lines = said.stdout.splitlines()
    half = count // 2 + len(running)
    assert len(lines) == half
    assert all(line.startswith("Cancelled ") for line in lines)
    commits = re.findall(r"^store\.committed", trace.read_text(), re.MULTILINE)
    assert len(commits) == -(-half // MOST)
    rows = fleet._queries().tasks(everything=True)
    assert [row["state"] for row in rows if row["labels"].get("x") == "1"] == ["cancelled"] * half
    assert {row["state"] for row in rows if row["labels"].get("x") == "0"} == {"queued"}
    assert [process for process in processes_of(fleet.root).values() if "sleep" in process] == []
    if STRICT:
        spent = after.children_user + after.children_system - before.children_user - before.children_system
        assert spent < 2.0, f"{spent:.2f} s of CPU"


def copy_tasks(fleet: Fleet, labels: Sequence[Mapping[str, str]]) -> None:
    """Copy the only task of a home: one copy for each set of labels, without the cost of `add`.

    If there are several tasks, the one that was added first is copied.
    """
    from holdfast.base import clock
    from holdfast.base.ids import new_id

    commands = Commands(str(fleet.home), create=False)
    template = fleet._queries().tasks(everything=True)[0]["id"]

    def work(tx: Transaction) -> None:
        spec = tx.tasks.get(template).spec
        for own in labels:
            tx.tasks.add(replace(spec, id=new_id(), labels=own), clock.now())

    commands.write(work)
    assert Path(fleet.home).is_dir()
