"""A broken promise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: lost, leaked, twice, loops or silent."""

    promise: str
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.rule}: {self.text}"
