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
    runs: list[Row] = json.loads(record.read_text(encoding="utf-8")) if record.exists() else []
    record_of_bugs = found()
    parts = {
        "figures": _runs(runs) + _figures(runs[-1]) if runs else "## The last campaigns\n\nNone was kept.",
        "mutants": _mutants(runs[-1]["mutants"]) if runs else "",
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


def _runs(runs: Sequence[Row]) -> str:
    cases, seeds = sum(one["cases"] for one in runs), len({one["seed"] for one in runs})
    violations = _several(sum(len(one["violations"]) for one in runs), "violation")
    rows = [
        (
            str(one["seed"]),
            one["at"],
            one["commit"],
            str(one["cases"]),
            str(one["faults"]),
            str(one["points"]),
            str(one["not_reached"]),
            ", ".join(f"`{case}`" for case in one["violations"]) or "0",
            f"{one['killed']} of {one['killed'] + len(one['survived'])}",
            f"{one['minutes']}, {one['machine']}",
            " ".join([*(f"NOT RUN: {family}." for family in one["not_run"]), one["note"]]).strip(),
        )
        for one in runs
    ]
    head = ("seed", "date", "commit", "cases", "faults", "crash points", "not reached", "violations")
    return (
        f"## The last campaigns\n\n**{_several(len(runs), 'campaign')} with {_several(seeds, 'seed')}: {cases} cases, "
        f"{violations}.** "
        "A case whose fault did not come about in three tries is counted as not reached.\n\n"
        + _table((*head, "mutants killed", "minutes, machine", ""), rows)
        + "\n\n"
    )


def _several(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _figures(run: Row) -> str:
    families: list[Row] = run["families"]
    rows = [(f"`{one['family']}`", one["about"], *_counts(one), _note(one)) for one in families]
    total = {name: sum(one[name] for one in families) for name in ("cases", "faults", "seconds", "cpu", "violations")}
    rows.append(("**all**", "", *_counts(total), ""))
    head = ("family", "what breaks", "cases", "faults", "seconds", "CPU s", "violations", "")
    return f"The families of the last one, with seed {run['seed']}:\n\n" + _table(head, rows)


def _counts(one: Row) -> tuple[str, ...]:
    return tuple(str(one[name]) for name in ("cases", "faults", "seconds", "cpu", "violations"))


def _note(one: Row) -> str:
    if one["absent"]:
        return f"NOT RUN: {one['absent']}"
    return f"{one['not_reached']} not reached" if one["not_reached"] else ""


def _mutants(mutants: Sequence[Row]) -> str:
    if not mutants:  # a part of a campaign
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
