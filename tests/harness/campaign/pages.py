"""docs/reliability.md: words that people wrote, figures that a campaign kept, and its track record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.harness.campaign.track_record import findings, found

Row = dict[str, Any]
_LONGEST = 130  # of what a checker said of a mutant


def reliability(words: Path, record: Path) -> str:
    kept: Row = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    record_of_bugs = found()
    parts = {
        "figures": _figures(kept),
        "mutants": _mutants(kept.get("mutants", [])),
        "count": str(len(record_of_bugs)),
        "trackrecord": _table(
            ("found by", "bug", "cause", "fix", "replay"),
            [(one.by, one.bug, one.cause, one.fix, f"`{one.command}`") for one in record_of_bugs],
        ),
    }
    parts["findings"] = _table(
        ("report", "id", "what happened", "fix", "test"),
        [(one.report, one.id, one.what, one.fix, f"`{one.test}`" if one.test else "–") for one in findings()],
    )
    text = words.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part)
    return text


def _figures(kept: Row) -> str:
    if not kept:
        return "## The last campaign\n\nNone was kept: `make faults RECORD=1`."
    families: list[Row] = kept["families"]
    rows = [(f"`{one['family']}`", one["about"], *_counts(one), _note(one)) for one in families]
    total = {name: sum(one[name] for one in families) for name in ("cases", "faults", "seconds", "cpu", "violations")}
    rows.append(("**all**", "", *_counts(total), ""))
    head = ("family", "what breaks", "cases", "faults", "seconds", "CPU s", "violations", "")
    return (
        f"## The last campaign\n\n{kept['at']}, commit {kept['commit']}, seed {kept['seed']}, {kept['machine']}: "
        f"**{total['cases']} cases, {kept['points']} distinct crash points, {total['violations']} violations**. Cases "
        f"whose fault did not come about in three tries are counted as not reached. {kept.get('note', '')}\n\n"
        + _table(head, rows)
    )


def _counts(one: Row) -> tuple[str, ...]:
    return tuple(str(one[name]) for name in ("cases", "faults", "seconds", "cpu", "violations"))


def _note(one: Row) -> str:
    if one["absent"]:
        return f"NOT RUN: {one['absent']}"
    return f"{one['not_reached']} not reached" if one["not_reached"] else ""


def _mutants(mutants: Sequence[Row]) -> str:
    if not mutants:
        return ""
    killed = sum(one["verdict"] == "killed" for one in mutants)
    rows = [
        (f"`{one['mutant']}`", one["removes"], f"`{one['case']}`", one["verdict"], one["says"][:_LONGEST])
        for one in mutants
    ]
    return f"## Mutants: {killed} of {len(mutants)} killed\n\n" + _table(
        ("left out", "what that protects", "case", "verdict", "what was seen"), rows
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
