"""Work that comes by the clock: what a schedule says. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Overlap(StrEnum):
    """When its last task has not ended yet."""

    SKIP = "skip"  # this occurrence is told of, and left out
    QUEUE = "queue"  # it waits for its turn, after the last one
    REPLACE = "replace"  # the last one is cancelled


class Misfire(StrEnum):
    """When occurrences were missed: nobody ran, or the clock jumped."""

    LAST = "last"  # the latest one is made up for
    SKIP = "skip"  # none
    ALL = "all"  # each of them, the latest `most` at the most


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """One `[[schedule]]`, checked: whatever is in here can be computed with."""

    name: str
    repo: str  # top level of the checkout that its tasks work on
    cron: str  # five fields, or six with seconds first
    zone: str = "UTC"  # IANA name
    task: Mapping[str, object] = field(default_factory=dict)  # what is added: prompt, workflow, agent, labels, base, …
    overlap: Overlap = Overlap.SKIP
    misfire: Misfire = Misfire.LAST
    most: int = 10  # of `Misfire.ALL`
    jitter: float = 0.0  # seconds, over which its tasks' starts are spread
    enabled: bool = True
    place: str = field(default="", compare=False)  # file and line, for people

    @property
    def key(self) -> str:
        """Its identity: two repositories may each have a "nightly"."""
        return f"{self.repo}\0{self.name}"
