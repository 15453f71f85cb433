"""The group writer, its callers cancelled at every await: an operation is committed once or not at all, never half."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from tests.harness.await_walker import Ended, walk

from holdfast.base import clock
from holdfast.core.model import Event
from holdfast.store.port.transaction import Transaction
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore

KIND = "recovery.completed"  # any event will do


def told(word: str, tx: Transaction) -> str:
    """Two rows in one operation: half of it would be one."""
    for _ in range(2):
        tx.events.emit(Event(kind=KIND, message=word), clock.now())
    return word


def refused(tx: Transaction) -> None:
    tx.events.emit(Event(kind=KIND, message="refused"), clock.now())
    raise ValueError("refused")


def test_a_cancelled_callers_operation_is_whole_or_absent(tmp_path: Path) -> None:
    SqliteStore(str(tmp_path)).close()
    numbers = itertools.count()
    handed_in: list[str] = []
    acknowledged: list[str] = []

    async def write(writer: GroupWriter, word: str) -> None:
        handed_in.append(word)
        assert await writer.write(lambda tx: told(word, tx), f"operation {word}") == word
        acknowledged.append(word)

    async def several_callers() -> None:
        name = f"case{next(numbers)}"
        writer = GroupWriter(str(tmp_path))
        try:
            await write(writer, f"{name} alone")
            one, two = write(writer, f"{name} one"), write(writer, f"{name} two")
            together = await asyncio.gather(one, two, writer.write(refused), return_exceptions=True)
            assert isinstance(together[2], ValueError)
        finally:
            try:
                await write(writer, f"{name} at last")  # a later operation of the same writer still works
            finally:
                writer.close()

    def check(ended: Ended[None]) -> None:
        store = SqliteStore(str(tmp_path))
        try:
            rows = [str(row["message"]) for row in store.view("events", after=0, task=None, limit=10_000)]
            for word in handed_in:
                assert rows.count(word) == (2 if store.was_done(f"operation {word}") else 0), word
            for word in acknowledged:
                assert rows.count(word) == 2, word
            assert "refused" not in rows
            # Handed in before the writer was closed: committed, whether its caller waited or not.
            assert all(rows.count(word) == 2 for word in handed_in)
            assert store.integrity_problems() == []
        finally:
            store.close()
        if ended.case is None:
            assert len(acknowledged) == len(handed_in) == 4

    found = walk(several_callers, check, second=True, children=True)
    assert any(case.j for case in found.cases)
