"""Agents' processes: how soon a death is seen, how soon a tree is gone, what idle agents cost."""

from __future__ import annotations

from pathlib import Path

from bench import idle, stops
from bench.figures import Figure, Scale


def run(scale: Scale, folder: Path) -> list[Figure]:
    return [*idle.run(scale, folder), *stops.run(scale, folder)]
