"""The narrator tells what was written because the writer rings for it, not because it polls."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from holdfast.base import clock
from holdfast.core.model import Event
from holdfast.store.port.transaction import Transaction
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.supervisor import log
from holdfast.supervisor.context import WakeUp


def _happen(words: str, tx: Transaction) -> None:
    tx.events.emit(Event(kind="attempt.trouble", message=words), clock.now())


def test_an_event_is_told_when_the_writer_has_committed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-TERM-03: events, not polling. With a slow poll of an hour only the ring can make it speak."""
    monkeypatch.setattr(log, "SLOW_POLL", 3600.0)
    store = SqliteStore(str(tmp_path))

    async def scene() -> str:
        news = WakeUp()
        writer = GroupWriter(str(tmp_path), on_batch=news.ring)
        telling = asyncio.create_task(log.EventLogWriter(store, news).run())
        said = ""
        try:
            for words in ("The first thing happened.", "The second thing happened."):
                await writer.write(partial(_happen, words))
                async with asyncio.timeout(60):
                    while words not in said:
                        said += capsys.readouterr().err
                        await asyncio.sleep(0.01)
        finally:
            telling.cancel()
            writer.close()
        return said

    assert asyncio.run(scene()).count("happened.") == 2
    store.close()
