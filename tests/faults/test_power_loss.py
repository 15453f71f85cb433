"""What a power loss may leave of the write-ahead log: killing processes cannot show that, cutting the file does."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw

from holdfast.base import clock
from holdfast.base.ids import new_id
from holdfast.core.model import TaskSpec
from holdfast.store.sqlite.engine.store import SqliteStore

TASKS = 8
SECTOR = 512


def test_a_log_cut_at_any_sector_holds_a_prefix_of_what_was_acknowledged(tmp_path: Path) -> None:
    """R-CRASH-09, promise 1: nothing out of order, nothing half, nothing damaged; and never a refusal to open."""
    home = tmp_path / "home"
    home.mkdir()
    store = SqliteStore(str(home))
    repo = store.write(lambda tx: tx.workspaces.register_repo("/src/app", "/src/app/.git", clock.now()))
    acknowledged = []
    for number in range(TASKS):
        spec = TaskSpec(id=new_id(), repo_id=repo.id, prompt=f"task {number}", agent="scripted")
        acknowledged.append(store.write(lambda tx, spec=spec: tx.tasks.add(spec, clock.now())).id)  # type: ignore[misc]  # bound now
    seen = set()
    whole = (home / "holdfast.db-wal").stat().st_size
    assert whole > TASKS * SECTOR, "the log was checkpointed: this test would show nothing"
    for cut in range(0, whole + SECTOR, SECTOR):
        found = open_with_log_of(home, tmp_path / "cut", min(cut, whole))
        assert found == acknowledged[: len(found)], f"cut at {cut} of {whole}"
        seen.add(len(found))
    assert seen == set(range(TASKS + 1))
    store.close()


def open_with_log_of(home: Path, place: Path, size: int) -> list[str]:
    """The tasks that a copy with a shortened log holds."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name in ("holdfast.db", "holdfast.db-wal"):
        shutil.copyfile(home / name, place / name)
    os.truncate(place / "holdfast.db-wal", size)
    connection = apsw.Connection(str(place / "holdfast.db"))
    assert connection.execute("PRAGMA quick_check").get == "ok"
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'tasks'").get == 0:
        return []  # even the schema was still in the log
    found = [str(row[0]) for row in connection.execute("SELECT id FROM tasks ORDER BY seq")]
    connection.close()
    return found
