"""The SQLite adapter keeps the store's contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.contracts.spending_contract import TestSpending as TestSpending
from tests.contracts.store_contract import *  # noqa: F403 - the whole suite: a class added there runs here by itself
from tests.contracts.store_contract import Bench

from holdfast.store.port.transaction import Store, Writer
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore


class SqliteBench:
    """Stores and writers on one home."""

    def __init__(self, home: Path) -> None:
        self._home = str(home)
        self._open: list[Store | Writer] = []

    def store(self) -> Store:
        store = SqliteStore(self._home)
        self._open.append(store)
        return store

    def writer(self) -> Writer:
        writer = GroupWriter(self._home)
        self._open.append(writer)
        return writer

    def close_all(self) -> None:
        while self._open:
            self._open.pop().close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = SqliteBench(tmp_path)
    yield bench
    bench.close_all()
