"""What families have in common that play in worlds of the matrix: its environment and its repository, prepared once."""

from __future__ import annotations

from pathlib import Path

from tests.harness.matrix.runner import prepare


class Grounds:
    """`broken`: a check of ours that is left out on purpose, to see whether the family would notice."""

    def __init__(self, broken: str = "") -> None:
        self._broken = broken
        self._root = Path()

    def absent(self) -> str:
        return ""

    def prepare(self, root: Path) -> None:
        self._root = root
        prepare(root)
