"""Root looks into the store of somebody else, who is at work there."""

from __future__ import annotations

import subprocess

import pytest
from tests.fleet import Fleet
from tests.other_user import as_other_user, reachable_directory

from holdfast.store.sqlite.engine.connection import open_connection

_WRITER = """
import sys
from holdfast.store.sqlite.engine.connection import open_connection
for number in range(300):
    connection = open_connection(sys.argv[1])
    list(connection.execute("BEGIN IMMEDIATE; INSERT INTO seen VALUES (1); COMMIT"))
    connection.close()
"""


def test_roots_look_never_stands_in_its_owners_way() -> None:
    """Each opening finds no log and makes one: owned by root for a moment, it failed 1.5 % of the owner's writes."""
    with reachable_directory() as root:
        fleet = Fleet(root)
        path = str(root / "some.db")
        made = open_connection(path)
        made.execute("CREATE TABLE seen (number INTEGER)")
        made.close()
        fleet = as_other_user(fleet)  # skips where there is none
        argv = [*fleet.prefix, fleet.python or "", "-c", _WRITER, path]
        writer = subprocess.Popen(argv, env=fleet.env, cwd="/", stderr=subprocess.PIPE, text=True)
        looked = 0
        while writer.poll() is None:
            looking = open_connection(path, for_reading=True)
            looking.execute("SELECT count(*) FROM seen").get  # noqa: B018 - only that it can be read
            looking.close()
            looked += 1
        _, trouble = writer.communicate()
        if writer.returncode:
            pytest.fail(f"the owner could not write after {looked} looks: {trouble[-400:]}")
        assert looked > 0
