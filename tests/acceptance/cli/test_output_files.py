"""Where an output goes may be no file: a pipe, a device, a link to one. It is written to or refused, never replaced.

Found by the campaign's family `fuzz`, which ran as root: `report --output` made a plain file of /dev/null."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.fleet import Fleet

from holdfast.api.home.backup import _refuse_overwriting
from holdfast.base.errors import Conflict, UsageError
from holdfast.config.edit_file import _replace


def is_pipe(path: Path) -> bool:
    return stat.S_ISFIFO(os.lstat(path).st_mode)


def test_a_report_is_written_into_a_pipe(fleet: Fleet) -> None:
    task_id = fleet.add("x", command=("true",))
    fleet.cli("up", "--idle-exit", "0s")
    pipe = fleet.root / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        fleet.cli("report", task_id, "--output", str(pipe))
        assert task_id in os.read(reader, 1 << 16).decode()
    finally:
        os.close(reader)
    assert is_pipe(pipe)
    assert [path.name for path in fleet.root.glob("pipe*")] == ["pipe"]


def test_a_report_is_its_owners_alone_whatever_the_umask(fleet: Fleet) -> None:
    """It quotes agents. It was readable to everybody (F15)."""
    task_id = fleet.add("x", command=("true",))
    fleet.cli("up", "--idle-exit", "0s")
    report = fleet.root / "report.md"
    report.write_text("of an earlier version")
    report.chmod(0o644)
    fleet.may_be_warm = False  # the warm server has a umask of its own
    old = os.umask(0o022)
    try:
        fleet.cli("report", task_id, "--output", str(report))
        fleet.cli("backup", str(fleet.root / "saved"))
    finally:
        os.umask(old)
    assert task_id in report.read_text()
    for path in (report, fleet.root / "saved"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_neither_a_backup_nor_settings_replace_what_is_no_file(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(Conflict, match="is not a file"):
            _refuse_overwriting(str(path), force=True)
        with pytest.raises(UsageError, match="which is not a file"):
            _replace(str(path), "agent = 'claude'\n")
    assert is_pipe(pipe)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pipe"]
