"""What families have in common that play in worlds of the matrix: its environment and its repository, prepared once."""

from __future__ import annotations

from pathlib import Path

from tests.harness.matrix.runner import prepare


class Grounds:
    """`broken`: the mutant that is played, to see whether the family would notice (tests/harness/mutations.py)."""

    def __init__(self, broken: str = "") -> None:
        self._broken = broken
        self._root = Path()

    def absent(self) -> str:
        return ""

    def prepare(self, root: Path) -> None:
        self._root = root
        prepare(root)
