"""An error that no code of ours foresaw is told in one line, and nothing is lost."""

from __future__ import annotations

import apsw
from tests.fleet import Fleet, wait_until


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


def test_a_task_of_a_repository_that_the_store_lacks_names_a_remedy(fleet: Fleet) -> None:
    """Found by `bad-bytes`: the id of a repository is not what the task names."""
    task = fleet.queue("true")
    connection = apsw.Connection(str(fleet.home / "holdfast.db"))
    connection.execute("PRAGMA foreign_keys = OFF; UPDATE repos SET id = 'another'")
    connection.close()
    fleet.up()
    wait_until(lambda: f"{task} " in fleet.log() and "repository" in fleet.log().lower(), "the task is reported")
    [line] = [line for line in fleet.log().splitlines() if "repository" in line.lower()][:1]
    assert "holdfast doctor" in line
    assert "Traceback" not in fleet.log()
