"""Which cases a campaign has played: one that takes hours continues where it was interrupted.

A line per case that held, written when it did; what violated a promise is played again. The first line has the seed and
the size: a journal continues with the same cases, or with none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness.campaign.family import Played, Scope


class OtherCampaign(Exception):
    """The journal is of another one."""


class Journal:
    def __init__(self, path: Path, scope: Scope) -> None:
        head = {"seed": scope.start_from_head, "long": scope.long, "share": scope.share}
        self._known: dict[tuple[str, str], Played] = {}
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        if lines and lines[0] and json.loads(lines[0]) != head:
            raise OtherCampaign(
                f"{path} is the journal of another campaign: {lines[0]}; this one is {json.dumps(head)}."
            )
        for family, played in _read(lines[1:]):
            self._known[family, played.case] = played
        self._file = path.open("a", encoding="utf-8")
        if not lines or not lines[0]:
            self._write(head)
        elif lines[-1]:  # whoever wrote it was killed in the middle of a line
            self._file.write("\n")

    @property
    def note(self) -> str:
        """What the record of a campaign says of the part before: its times are missing in the table."""
        return f"{len(self._known)} cases were played before an interruption." if self._known else ""

    def known(self, family: str, case: str) -> Played | None:
        return self._known.get((family, case))

    def add(self, family: str, played: Played) -> None:
        if not played.violations:
            self._write(
                {
                    "family": family,
                    "case": played.case,
                    "missed": played.missed,
                    "weight": played.weight,
                    "points": played.points,
                    "found": played.found,
                    "kind": played.kind,
                }
            )

    def _write(self, line: object) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _read(lines: list[str]) -> Iterator[tuple[str, Played]]:
    for line in lines:
        try:
            kept = json.loads(line)
        except ValueError:
            continue  # half a line
        family = str(kept.pop("family"))
        yield family, Played(**{**kept, "points": tuple(kept["points"]), "found": _tuples(kept["found"])})


def _tuples(value: Any) -> Any:
    """As they were: JSON knows only lists."""
    if isinstance(value, dict):
        return {
            key: [_tuples(part) for part in entry] if isinstance(entry, list) else entry for key, entry in value.items()
        }
    return tuple(value) if isinstance(value, list) else value
