"""What a task costs, as exact numbers: git processes, operations of the store, SQL statements, syncs.

A change that adds one to the life of a task is red here, until its number is changed on purpose. The numbers and the
ways to fewer of them: docs/adr/0038-fewer-processes.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.acceptance.tasks.test_many import copy_tasks
from tests.fleet import Fleet, processes_of
from tests.harness.exact_counts import Counter, Counts, Ledger, measure, strace_problem

from holdfast.api.tasks.batches import MOST

# git processes, operations of the store, those that write, SQL statements; syncs of files and directories.
COSTS = {
    "add, first in a home": Counts(3, 1, 1, 6),
    "add, worktree": Counts(1, 1, 1, 6),
    "add, directory": Counts(1, 1, 1, 6),
    "task, worktree, nothing changed": Counts(1, 32, 8, 78, syncs=9),
    "task, worktree, a new file": Counts(6, 33, 9, 78, syncs=9),
    "task, directory, nothing changed": Counts(0, 30, 8, 75, syncs=9),
    "task, directory, a new file": Counts(11, 31, 9, 77, syncs=10),
}

PER_BATCH, PER_CANCELLED_TASK = 2, 12  # SQL statements of `cancel` for many tasks


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    folder = tmp_path_factory.mktemp("counts")
    fleet = Fleet(folder)
    yield measure(fleet, syncs=not strace_problem())
    fleet.close()
    assert not processes_of(folder)


@pytest.mark.parametrize("row", COSTS)
def test_git_processes_and_the_store(ledger: Ledger, row: str) -> None:
    """Red: if the change is meant, write the new numbers into COSTS and say in the commit what they are for."""
    found = ledger.counts[row]
    assert found._replace(syncs=None) == COSTS[row]._replace(syncs=None), "\n".join(ledger.lines[row])


def test_syncs(ledger: Ledger) -> None:
    """What each is for: docs/adr/0038-fewer-processes.md. The campaign's family `synced` holds those that must be."""
    if problem := strace_problem():
        pytest.skip(f"syncs are not counted: {problem}")
    for row, costs in COSTS.items():
        assert ledger.counts[row].syncs == costs.syncs, "\n".join(ledger.lines[row])


def test_every_row_has_a_number(ledger: Ledger) -> None:
    assert list(ledger.counts) == list(COSTS)


def test_a_cancelled_task_costs_the_same_among_many(fleet: Fleet) -> None:
    """`cancel --label`: one transaction for each batch, no git, and for each task the same number of statements."""
    counter, sizes = Counter(fleet), {"few": 20, "a batch": MOST, "more": MOST + 20}
    with fleet.as_its_user():
        fleet.queue("true", labels={"x": "template"}, delay=9999.0)
        for name, size in sizes.items():
            copy_tasks(fleet, [{"x": name}] * size)
    for name in sizes:
        counter.run(name, "cancel", "--label", f"x={name}", "--yes")
    found = counter.ledger()
    for name, size in sizes.items():
        batches = -(-size // MOST)
        wanted = Counts(
            git=0, operations=batches, writes=batches, statements=PER_BATCH * batches + PER_CANCELLED_TASK * size
        )
        assert found.counts[name] == wanted, "\n".join(found.lines[name])
    states = [row["state"] for row in fleet._queries().tasks(everything=True)]
    assert states.count("cancelled") == sum(sizes.values())
