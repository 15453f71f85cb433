"""Records of the store that nobody of ours wrote, and backups that nobody of ours made: told in one line, no traceback.

All found by the family `fuzz` of the campaign (kinds `columns` and `backups`).
"""

from __future__ import annotations

import io
import tarfile

import apsw
import pytest
from tests.fleet import Fleet

from holdfast.api.home import backup_file
from holdfast.base.errors import Refused

SPOILT = {
    "a state that there is not": ("UPDATE tasks SET state = 'fled'", "cancel"),
    "a strategy that there is not": ("UPDATE tasks SET strategy = 'workee'", "cancel"),
    "settings of another shape": ("UPDATE tasks SET settings = '[]'", "why"),
    "a place in no workflow": ("UPDATE tasks SET progress = '[]'", "cancel"),
    "details that are none": ("UPDATE events SET data = '7'", "events"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_record_that_nobody_wrote_is_told_as_damage(fleet: Fleet, how: str) -> None:
    """Promise 5: what is wrong, that nothing was changed, and the way back; never a traceback."""
    change, command = SPOILT[how]
    task = fleet.add("x", command=("true",))
    database = apsw.Connection(str(fleet.home / "holdfast.db"))
    database.execute("PRAGMA ignore_check_constraints = ON")
    database.execute(change)
    database.close()
    said = fleet.cli(command, *([] if command == "events" else [task]), code=69)
    assert "damaged" in said.stderr
    assert "holdfast restore FILE" in said.stderr
    assert len(said.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "manifest",
    [b"[" * 100_000, b'{"format": 1, "members": {"store.db": {}}, "made_at": 1e300}', b'{"format": 1, "members": 7}'],
    ids=["deep", "made at no time", "of another shape"],
)
def test_a_backup_that_nobody_made_is_refused(fleet: Fleet, manifest: bytes) -> None:
    """Promise 1: before anything is changed, whatever its manifest says."""
    path = fleet.root / "odd.tar"
    with tarfile.open(path, "w") as tar:
        entry = tarfile.TarInfo(backup_file.MANIFEST)
        entry.size = len(manifest)
        tar.addfile(entry, io.BytesIO(manifest))
    with pytest.raises(Refused, match="backup"):
        backup_file.read(str(path), None)


def test_an_alert_of_a_level_that_nobody_knows_is_shown(fleet: Fleet) -> None:
    """Of a newer version, say."""
    fleet.add("x", command=("true",))
    database = apsw.Connection(str(fleet.home / "holdfast.db"))
    columns = {"key": "k", "level": "grave", "message": "Look here.", "remedy": "Do it.", "at": 1.0, "details": "{}"}
    database.execute(f"INSERT INTO alerts ({', '.join(columns)}) VALUES (?, ?, ?, ?, ?, ?)", tuple(columns.values()))
    database.close()
    assert "Look here." in fleet.cli("alerts").stdout
