"""Every bug that a campaign found, as docs/reliability.md tells it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("track_record.toml")


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


def found() -> list[Found]:
    return [Found(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["found"]]
