"""A store that is kept open for long, as `holdfast top` does: whether it is still the one that is there."""

from __future__ import annotations

import contextlib

import apsw
import pytest
from tests.fleet import Fleet

from holdfast.api.queries import Queries
from holdfast.base.errors import NewerStore, Unavailable
from holdfast.store.sqlite.engine import connection as opening
from holdfast.store.sqlite.engine import copies


def test_who_keeps_it_open_knows_when_it_is_another_one(fleet: Fleet) -> None:
    """R-CRASH-10: upgraded, replaced from a backup, or gone. What is open continues answering then, with what was."""
    home, copy = str(fleet.home), str(fleet.root / "copy.db")
    fleet.queue("true")
    copies.copy_out(home, copy)
    with contextlib.closing(Queries(home)) as kept:
        assert kept.is_current()
        fleet.queue("true")
        assert kept.is_current()  # others may write

        set_schema(fleet, "999")
        assert not kept.is_current()
        with pytest.raises(NewerStore):
            Queries(home)
        set_schema(fleet, str(opening.newest_version()))
        assert kept.is_current()

        copies.replace_file(home, copy, str(fleet.root / "aside.db"))
        assert sum(kept.counts().values()) == 2  # it cannot tell by itself
        assert not kept.is_current()
    with contextlib.closing(Queries(home)) as kept:
        assert sum(kept.counts().values()) == 1
        fleet.home.rename(fleet.root / "gone")
        assert not kept.is_current()
        with pytest.raises(Unavailable):
            Queries(home)


def set_schema(fleet: Fleet, version: str) -> None:
    with contextlib.closing(apsw.Connection(str(fleet.home / "holdfast.db"))) as connection:
        connection.set_busy_timeout(30_000)
        connection.execute(f"PRAGMA user_version = {version}")
