"""An error that no code of ours foresaw is told in one line, and nothing is lost."""

from __future__ import annotations

import apsw
from tests.fleet import Fleet


def test_a_value_that_makes_no_sense_is_one_line_and_not_a_traceback(fleet: Fleet) -> None:
    task = fleet.queue("true")
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.execute("PRAGMA ignore_check_constraints = ON; UPDATE tasks SET state = 'é'")
    connection.close()
    command = fleet.start("top", "--once", "--all")
    out, err = (stream.decode() for stream in command.communicate(timeout=60))
    assert (command.returncode, out) == (70, "")
    assert err.startswith("holdfast: ")
    assert err.count("\n") == 1
    assert "holdfast doctor" in err
    assert task not in err
