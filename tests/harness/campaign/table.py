"""The one table of a campaign, for people and as JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness.campaign.family import Scope, Tally
from tests.harness.campaign.mutants import Judged

HEAD = ("family", "cases", "faults", "seconds", "CPU s", "violations")
KEPT_RUNS = 6


def lines(tallies: Sequence[Tally]) -> list[str]:
    rows = [(HEAD, ""), *(row for tally in tallies for row in _rows(tally)), (_cells(whole(tallies)), "")]
    widths = [max(len(cells[column]) for cells, _note in rows) for column in range(len(HEAD))]
    shown = [
        f"{cells[0]:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
        + (f"  {note}" if note else "")
        for cells, note in rows
    ]
    return [*shown, f"{len(whole(tallies).points)} distinct crash points"]


def whole(tallies: Sequence[Tally]) -> Tally:
    """All of them in one line."""
    return Tally(
        "all",
        cases=sum(tally.cases for tally in tallies),
        faults=sum(tally.faults for tally in tallies),
        seconds=sum(tally.seconds for tally in tallies),
        cpu=sum(tally.cpu for tally in tallies),
        points=set().union(*(tally.points for tally in tallies)),
        violating=[played for tally in tallies for played in tally.violating],
    )


def _rows(tally: Tally) -> list[tuple[tuple[str, ...], str]]:
    """Its line, and one for each kind of its faults, where it has several."""
    kinds = [((f"  {kind}", "", str(faults), "", "", ""), "") for kind, faults in sorted(tally.kinds.items())]
    return [(_cells(tally), _note(tally)), *kinds]


def _cells(tally: Tally) -> tuple[str, ...]:
    counts = (tally.cases, tally.faults, round(tally.seconds), round(tally.cpu), len(tally.violating))
    return (tally.family, *map(str, counts))


def _note(tally: Tally) -> str:
    if tally.absent:
        return f"NOT RUN: {tally.absent}"
    return f"{len(tally.missed)} not reached" if tally.missed else ""


def record(path: Path, tallies: Sequence[Tally], judged: Sequence[Judged], scope: Scope, *, note: str = "") -> None:
    """Add this run to those that docs/reliability.md shows. Only the last run keeps every family and mutant."""
    all_of_them = whole(tallies)
    run: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": _commit(),
        "seed": scope.start_from_head,
        "long": scope.long,
        "note": note,
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        "points": len(all_of_them.points),
        "cases": all_of_them.cases,
        "faults": all_of_them.faults,
        "minutes": round(sum(tally.seconds for tally in tallies) / 60),
        "not_reached": sum(len(tally.missed) for tally in tallies),
        "not_run": [tally.family for tally in tallies if tally.absent],
        "violations": [f"{tally.family}:{played.case}" for tally in tallies for played in tally.violating],
        "killed": sum(one.is_killed for one in judged),
        "survived": [one.mutant.name for one in judged if not one.is_killed],
        "families": [
            {
                "family": tally.family,
                "about": tally.about,
                "cases": tally.cases,
                "faults": tally.faults,
                "seconds": round(tally.seconds),
                "cpu": round(tally.cpu),
                "violations": len(tally.violating),
                "not_reached": len(tally.missed),
                "absent": tally.absent,
            }
            for tally in tallies
        ],
        "mutants": [
            {
                "mutant": one.mutant.name,
                "removes": one.mutant.removes,
                "case": f"{one.mutant.family}:{one.mutant.case}",
                "verdict": one.verdict,
                "says": one.words.partition(": ")[2],
            }
            for one in judged
        ],
    }
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    short = [{name: one[name] for name in one if name not in ("families", "mutants")} for one in before]
    kept = [*short[1 - KEPT_RUNS :], run]
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _commit() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return asked.stdout.strip()
