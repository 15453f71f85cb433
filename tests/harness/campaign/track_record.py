"""Every bug that a campaign found, and every finding of the four reports, as docs/reliability.md tells them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("track_record.toml")
FINDINGS = Path(__file__).with_name("findings.toml")


@dataclass(frozen=True, slots=True)
class Found:
    by: str
    bug: str
    cause: str
    fix: str
    replay: str

    @property
    def command(self) -> str:
        """Cases of the campaign are written as FAMILY:CASE alone."""
        if " " in self.replay:
            return self.replay
        return f"python -m tests.harness.campaign --replay '{self.replay}'"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a trial by fresh eyes (issue 18)."""

    report: str
    id: str
    what: str
    fix: str
    test: str  # FILE or FILE::NAME; empty where the fix is a page


def findings() -> list[Finding]:
    reports = tomllib.loads(FINDINGS.read_text(encoding="utf-8"))
    return [Finding(report, name, *row) for report, rows in reports.items() for name, row in rows.items()]


def found() -> list[Found]:
    return [Found(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["found"]]
