"""The one table of a campaign, for people and as JSON."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.testing.campaign.family import Tally


def lines(tallies: Sequence[Tally]) -> list[str]:
    rows = [("family", "cases", "faults", "seconds", "violations", "")]
    for tally in tallies:
        note = (
            f"NOT RUN: {tally.absent}" if tally.absent else f"{len(tally.missed)} not reached" if tally.missed else ""
        )
        counts = (str(tally.cases), str(tally.faults), f"{tally.seconds:.0f}", str(len(tally.violating)))
        rows.append((tally.family, *counts, note))
        rows += [(f"  {kind}", "", str(faults), "", "", "") for kind, faults in sorted(tally.kinds.items())]
    total = [sum(tally.cases for tally in tallies), sum(tally.faults for tally in tallies)]
    seconds, violating = sum(tally.seconds for tally in tallies), sum(len(tally.violating) for tally in tallies)
    rows.append(("all", str(total[0]), str(total[1]), f"{seconds:.0f}", str(violating), ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return [
        f"{row[0]:<{widths[0]}}  "
        + "  ".join(f"{cell:>{width}}" for cell, width in zip(row[1:5], widths[1:], strict=True))
        + (f"  {row[5]}" if row[5] else "")
        for row in rows
    ]


def record(path: Path, tallies: Sequence[Tally], *, seed: int, long: bool) -> None:
    """What docs/reliability.md is made of."""
    found: dict[str, Any] = {
        "at": time.strftime("%Y-%m-%d", time.gmtime()),
        "seed": seed,
        "long": long,
        "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        "families": [
            {
                "family": tally.family,
                "about": tally.about,
                "cases": tally.cases,
                "faults": tally.faults,
                "seconds": round(tally.seconds),
                "violations": len(tally.violating),
                "not_reached": len(tally.missed),
                "kinds": dict(sorted(tally.kinds.items())),
                "absent": tally.absent,
            }
            for tally in tallies
        ],
    }
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
