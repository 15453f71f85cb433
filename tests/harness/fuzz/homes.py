"""Homes that somebody else has written in: values of the store, files beside it, backups. Every view of them is asked.

The columns of a store are changed behind its back, as a bad disk, another version or a hand with `sqlite3` would. What
is promised is an answer or a clear refusal: never a traceback, never a code that says something else.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import apsw
from tests.harness.fuzz import malformed_json
from tests.harness.fuzz.commands import Typist, bound
from tests.harness.fuzz.place import DATABASE
from tests.harness.fuzz.words import mutated

VIEWS = (
    ["ps", "--all"], ["ps", "--all", "--json"], ["show", "ID"], ["show", "ID", "--json"], ["why", "ID"], ["why"],
    ["events"], ["events", "--json"], ["logs", "ID"], ["report", "ID"], ["alerts"], ["crashes"], ["accounts"],
    ["stats"], ["stats", "--json"], ["tracker"], ["schedule"], ["dispatch"], ["worker"], ["workspaces"], ["salvage"],
    ["branches"], ["top", "--once"], ["top", "--once", "--json"], ["doctor"], ["doctor", "--invariants"],
    ["show", "ID", "--results"],
)  # fmt: skip
ACTS = (
    ["cancel", "ID"], ["retry", "ID"], ["resume", "ID"], ["pause", "ID"], ["approve", "ID"], ["keep", "ID"],
    ["diff", "ID"], ["add", "more", "--", "true"], ["backup"], ["sweep", "--dry-run"], ["sweep"],
    ["purge", "--dry-run"],
)  # fmt: skip


class Columns:
    """One value of one row, or of all, is another; then a few views and perhaps a deed."""

    def __init__(self, place: Path) -> None:
        bound(cached=True)
        self._home, self._typist = place / "home", Typist(place)
        self._ids = self._typist.acknowledged
        self._pristine = (self._home / DATABASE).read_bytes()
        self._slots = self._columns()

    def _columns(self) -> list[tuple[str, str]]:
        connection = apsw.Connection(str(self._home / DATABASE), flags=apsw.SQLITE_OPEN_READONLY)
        tables = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        found = [
            (table, str(column[1]))
            for table in sorted(tables)
            if not table.startswith("sqlite_") and connection.execute(f"SELECT count(*) FROM {table}").get
            for column in connection.execute(f"PRAGMA table_info({table})")
        ]
        connection.close()
        return found

    def play(self, draw: random.Random) -> str:
        self._reset()
        changed = [self._change(draw) for _ in range(draw.choice((1, 1, 2)))]
        for words in [*draw.sample(VIEWS, 4), *draw.sample(ACTS, draw.choice((0, 0, 1)))]:
            argv = [draw.choice(self._ids) if word == "ID" else word for word in words]
            if wrong := self._typist.type(argv, counted=False, is_damaged=True):
                return f"{wrong}\n  changed: {changed}"
        return ""

    def _reset(self) -> None:
        self._typist.release_lost_task()
        for ending in ("-wal", "-shm", ""):  # another file: a connection that is still open keeps the old one
            (self._home / f"{DATABASE}{ending}").unlink(missing_ok=True)
        (self._home / DATABASE).write_bytes(self._pristine)

    def _change(self, draw: random.Random) -> tuple[object, ...]:
        table, column = draw.choice(self._slots)
        connection = apsw.Connection(str(self._home / DATABASE))
        try:
            connection.execute("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON")
            old = draw.choice([row[0] for row in connection.execute(f"SELECT {column} FROM {table}")])
            new = self._other(draw, old)
            try:
                connection.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", (new, old))
            except (apsw.Error, OverflowError) as refused:
                return table, column, f"refused: {refused}"
            return table, column, repr(old)[:200], repr(new)[:200]
        finally:
            connection.close()

    def _other(self, draw: random.Random, old: Any) -> Any:
        if isinstance(old, str) and old[:1] in ("{", "["):
            value = malformed_json.bend(draw, json.loads(old))
            return malformed_json.written(draw, value).decode(errors="replace")
        if isinstance(old, str) and draw.random() < 0.5:
            return mutated(draw, old).encode(errors="replace").decode()
        if isinstance(old, int | float) and draw.random() < 0.5:
            return draw.choice((-1, 0, 1, 2**62, -(2**62), 1e300, -1e300, float("inf"), old + 1, -old, "x", ""))
        return draw.choice(
            (None, "", "x", "é\0", b"\xff\xfe", 0, -1, 2**63 - 1, 1e308, float("inf"), "[]", "{}", "null")
        )

    def end(self) -> list[str]:
        self._typist.release_lost_task()
        return []


class Files:
    """A file of the home is another: marks beside workspaces, records of runs, what git keeps there, locks."""

    AFTER = (
        ["doctor"], ["doctor", "--invariants"], ["sweep", "--dry-run"], ["sweep"], ["workspaces"], ["salvage"],
        ["purge", "--dry-run"], ["show", "ID"], ["logs", "ID"], ["why", "ID"], ["diff", "ID"], ["report", "ID"],
        ["backup"], ["ps"], ["down"],
    )  # fmt: skip

    def __init__(self, place: Path) -> None:
        bound(cached=False)
        self._home, self._typist = place / "home", Typist(place)
        self._ids = self._typist.acknowledged
        self._files = sorted(
            path
            for path in self._home.rglob("*")
            if path.is_file() and not path.is_symlink() and "objects" not in path.parts and DATABASE not in path.name
        )

    def play(self, draw: random.Random) -> str:
        path = draw.choice(self._files)
        kept = path.read_bytes() if path.is_file() else b""
        try:
            how = self._spoil(draw, path, kept)
            for words in draw.sample(self.AFTER, 2):
                argv = [draw.choice(self._ids) if word == "ID" else word for word in words]
                if wrong := self._typist.type(argv):
                    return f"{wrong}\n  {path.relative_to(self._home)}: {how}, was {kept[:200]!r}"
        finally:
            self._restore(path, kept)
        return ""

    def _spoil(self, draw: random.Random, path: Path, kept: bytes) -> str:
        dice = draw.random()
        self._clear(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if dice < 0.08:
            return "gone"
        if dice < 0.16:
            path.mkdir()
            return "a directory"
        if dice < 0.22:
            os.mkfifo(path)
            return "a pipe"
        if dice < 0.28:
            path.symlink_to(draw.choice(("/nowhere", "/proc/self/mem", "/", str(path), "..")))
            return "a link"
        try:
            content = malformed_json.written(draw, malformed_json.bend(draw, json.loads(kept)))
        except ValueError:
            content = mutated(draw, kept[:5000].decode(errors="surrogateescape")).encode(errors="surrogateescape")
        path.write_bytes(content)
        return repr(content[:300])

    def _restore(self, path: Path, kept: bytes) -> None:
        self._clear(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(kept)

    def _clear(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def end(self) -> list[str]:
        return self._typist.lost()


class Backups:
    """A backup that a bad disk or a hostile hand changed: restored whole, or refused; nothing is harmed."""

    def __init__(self, place: Path) -> None:
        bound(cached=True)
        self._place, self._typist = place, Typist(place)
        self._made = place / "made.backup"
        wrong = self._typist.type(["backup", str(self._made)])
        if wrong or not self._made.exists():
            raise RuntimeError(f"no backup could be made: {wrong}")
        self._content = self._made.read_bytes()

    def play(self, draw: random.Random) -> str:
        path = self._place / "spoilt.backup"
        path.write_bytes(self._spoilt(draw))
        argv = ["restore", str(path), *draw.choice(([], ["--yes"]))]
        return self._typist.type(argv, counted=False)

    def _spoilt(self, draw: random.Random) -> bytes:
        dice = draw.random()
        content = self._content
        if dice < 0.15:
            return content[: draw.randrange(len(content) + 1)]
        if dice < 0.5:
            start = content.index(b"{")
            end = content.index(b"\n}", start) + 2
            text = malformed_json.written(draw, malformed_json.bend(draw, json.loads(content[start:end])))
            return self._with_manifest(text, content[-(-end // 512) * 512 :])
        spoilt = bytearray(content)
        for _ in range(draw.randrange(1, 4)):
            place = draw.randrange(2048) if draw.random() < 0.7 else draw.randrange(len(spoilt))
            spoilt[place] = draw.randrange(256)
        return bytes(spoilt)

    def _with_manifest(self, text: bytes, rest: bytes) -> bytes:
        """With a header that fits: the checks behind the archive's own are reached."""
        import io
        import tarfile

        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            entry = tarfile.TarInfo("manifest.json")
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        return out.getvalue()[: 512 + -(-len(text) // 512) * 512] + rest

    def end(self) -> list[str]:
        return []
