"""The SQLite adapter keeps the contract about workers."""

from __future__ import annotations

from tests.contracts.staffing_contract import *  # noqa: F403 - the whole suite
from tests.contracts.test_sqlite_store import bench as bench
