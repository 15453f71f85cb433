"""The SQLite adapter keeps the store's contract.

The suite is loaded by name, not by an import statement: there are no packages among the tests (importlib mode), and
mypy would otherwise see the same file under two names.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.port import Store, Writer
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.writer import GroupWriter

pytest.register_assert_rewrite("tests.contracts.store_contract")
SUITE = vars(importlib.import_module("tests.contracts.store_contract"))
globals().update({name: SUITE[name] for name in SUITE if name.lower().startswith("test") or name == "scene"})


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
def bench(tmp_path: Path) -> Iterator[SqliteBench]:
    bench = SqliteBench(tmp_path)
    yield bench
    bench.close_all()
