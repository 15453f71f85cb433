"""The right to write about a running task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Grip:
    """The right to write about a running task: whose, and under which fence."""

    task_id: str
    fence: int
    owner: str
