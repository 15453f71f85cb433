"""The modules that `ps` and `add` import. Each costs every call 0.1 to 5 ms; bench/cold_start.py measures the sum."""

from __future__ import annotations

import subprocess
import sys

from tests.fleet import Fleet

# Exactly what `ps` imports of ours: a new name here is a decision.
PS = """
    holdfast
    holdfast.api holdfast.api.colours holdfast.api.format holdfast.api.outcome holdfast.api.queries holdfast.api.tasks
    holdfast.api.tasks.stages holdfast.api.tasks.why holdfast.api.tasks.why.outcome
    holdfast.base holdfast.base.clock holdfast.base.errors holdfast.base.faults holdfast.base.home holdfast.base.instant
    holdfast.base.low_memory holdfast.base.platform holdfast.base.stored_json holdfast.base.text holdfast.base.units
    holdfast.cli holdfast.cli.main holdfast.cli.output holdfast.cli.output.render
    holdfast.store holdfast.store.open holdfast.store.sqlite holdfast.store.sqlite.engine
    holdfast.store.sqlite.engine.connection holdfast.store.sqlite.engine.disk_reserve
    holdfast.store.sqlite.engine.reader holdfast.store.sqlite.engine.statements
    holdfast.store.sqlite.engine.write_queue
"""
MOST_OF_ADD = 145  # modules of ours; fewer is better, more is a decision
# What neither needs, and why it would be noticed.
HEAVY = {
    "asyncio": "30 ms",
    "logging": "8 ms",
    "rich": "40 ms",
    "textual": "150 ms",
    "http": "10 ms",
    "ssl": "10 ms",
    "email": "10 ms",
    "concurrent": "a pool of threads has no work in a short command",
    "sqlite3": "the store has its own SQLite (apsw)",
    "multiprocessing": "5 ms",
    "importlib.metadata": "it reads every installed package",
}
FOR_PS_TOO_HEAVY = {
    "dataclasses": "4 ms: it imports inspect, ast, dis and tokenize",
    "inspect": "3 ms",
    "subprocess": "2 ms: `ps` starts nothing",
    "tempfile": "2 ms",
    "hashlib": "2 ms: it loads OpenSSL",
    "shutil": "2 ms: it loads the libraries of all archive formats",
    "urllib": "2 ms",
    "tomllib": "2 ms: `ps` reads no settings",
}
ROOMS = ("alerts", "checker", "client", "containers", "rehearsal", "supervisor", "trackers", "tui", "wiring")


def imported(fleet: Fleet, *words: str) -> set[str]:
    def modules(*arguments: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *arguments],
            cwd=fleet.repo,
            env=fleet.env,
            capture_output=True,
            text=True,
            check=True,
        )
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}

    return modules("-m", "holdfast", *words) - modules("-c", "pass")


def foreign(found: set[str]) -> set[str]:
    """Names that are neither ours nor of the standard library. `copy` looks for Jython's `org`."""
    tops = {name.partition(".")[0] for name in found}
    return tops - sys.stdlib_module_names - {"holdfast", "org"}


def ours(found: set[str]) -> set[str]:
    return {name for name in found if name.partition(".")[0] == "holdfast"}


def test_ps_imports_exactly_these(fleet: Fleet) -> None:
    fleet.add("x", command=("true",))
    found = imported(fleet, "ps", "--json")
    assert ours(found) == set(PS.split())
    assert foreign(found) == {"apsw"}
    assert found & {*HEAVY, *FOR_PS_TOO_HEAVY} == set()


def test_add_imports_no_more(fleet: Fleet) -> None:
    fleet.add("x", command=("true",))
    found = imported(fleet, "add", "x", "--", "true")
    assert foreign(found) == {"apsw"}
    assert found & HEAVY.keys() == set()
    assert {name for name in ours(found) if name.split(".")[1:2] and name.split(".")[1] in ROOMS} == set()
    assert len(ours(found)) <= MOST_OF_ADD, sorted(ours(found))
