"""The SQLite adapter keeps the contract about workers."""

from __future__ import annotations

from tests.contracts.test_sqlite_store import bench as bench
from tests.contracts.workers_contract import *  # noqa: F403 - the whole suite
