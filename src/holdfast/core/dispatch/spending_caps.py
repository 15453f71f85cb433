"""Spending caps of money and tokens: for a task, a day or a label. The module computes what is used, and when a cap has
room again. Pure.

Used money and tokens never come back. Only time makes room, and only in sliding windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from holdfast.base.dataclass import dataclass

if TYPE_CHECKING:  # the settings need these names too, and have to load fast
    from holdfast.base.instant import Instant

DAY = 86400.0
CLOCK_WAS_SET_BACK = 60.0  # seconds; an entry from further in the future has a clock that cannot be believed


@dataclass(frozen=True, kw_only=True, slots=True)
class SpendingCap:
    """A limit of money, of tokens, or of both. None: no limit."""

    usd: float | None = None
    tokens: int | None = None

    def __bool__(self) -> bool:
        return self.usd is not None or self.tokens is not None

    def is_reached(self, used: UsedSpending) -> bool:
        return (self.usd is not None and used.usd >= self.usd) or (
            self.tokens is not None and used.tokens >= self.tokens
        )

    def left(self, used: UsedSpending) -> SpendingCap:
        return SpendingCap(
            usd=None if self.usd is None else max(0.0, self.usd - used.usd),
            tokens=None if self.tokens is None else max(0, self.tokens - used.tokens),
        )

    @property
    def usd_text(self) -> str:
        return "no limit" if self.usd is None else format_dollars(self.usd)

    @property
    def tokens_text(self) -> str:
        return "no limit" if self.tokens is None else f"{self.tokens} tokens"

    def describe_exceeded(self, used: UsedSpending) -> str:
        """Describe the part of the cap that is reached: "$5.20 of $5.00"."""
        words = []
        if self.usd is not None and used.usd >= self.usd:
            words.append(f"{format_dollars(used.usd)} of {format_dollars(self.usd)}")
        if self.tokens is not None and used.tokens >= self.tokens:
            words.append(f"{used.tokens} of {self.tokens} tokens")
        return " and ".join(words)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedSpending:
    usd: float = 0.0
    tokens: int = 0
    unpriced: int = 0  # runs that reported tokens but no money

    def __add__(self, more: UsedSpending) -> UsedSpending:
        return UsedSpending(
            usd=self.usd + more.usd, tokens=self.tokens + more.tokens, unpriced=self.unpriced + more.unpriced
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageEntry:
    """The usage of one run, recorded when it ended."""

    at: Instant
    used: UsedSpending
    labels: frozenset[str] = frozenset()  # key=value

    def age(self, now: Instant) -> float | None:
        """Return the seconds since the entry. None: the time of the entry cannot be believed, and with it the entry
        would count for ever."""
        if self.at.boot_id != now.boot_id and self.at.wall > now.wall + CLOCK_WAS_SET_BACK:
            return None
        return max(0.0, now.since(self.at))


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedCap:
    """One cap that several tasks share."""

    key: str  # stable: "day", "team=web/day", "team=web/total"
    cap: SpendingCap
    label: str | None = None  # None: all tasks together
    is_sliding: bool = True  # True: the last 24 hours. False: all time

    @property
    def name(self) -> str:
        """Return the name of the cap for people."""
        of = "" if self.label is None else f" of the label {self.label}"
        return f"the budget{of} {'for 24 hours' if self.is_sliding else 'in all'}"

    def applies_to(self, labels: Iterable[str]) -> bool:
        return self.label is None or self.label in labels


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelCap:
    day: SpendingCap = SpendingCap()
    total: SpendingCap = SpendingCap()


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedCaps:
    """The shared caps of the settings."""

    day: SpendingCap = SpendingCap()
    labels: Mapping[str, LabelCap] = field(default_factory=dict)

    def all(self) -> list[SharedCap]:
        found = [SharedCap(key="day", cap=self.day)]
        for label, cap in self.labels.items():
            found.append(SharedCap(key=f"{label}/day", cap=cap.day, label=label))
            found.append(SharedCap(key=f"{label}/total", cap=cap.total, label=label, is_sliding=False))
        return [allowance for allowance in found if allowance.cap]


NO_CAPS = SharedCaps()


def format_labels(labels: Mapping[str, str]) -> frozenset[str]:
    return frozenset(f"{key}={value}" for key, value in labels.items())


def format_dollars(amount: float) -> str:
    return f"${amount:.4f}" if 0 < amount < 1 else f"${amount:.2f}"


def sum_entries(entries: Iterable[UsageEntry]) -> UsedSpending:
    total = UsedSpending()
    for entry in entries:
        total += entry.used
    return total


def entries_in_window(entries: Iterable[UsageEntry], now: Instant, label: str | None = None) -> list[UsageEntry]:
    """Return the entries of the last 24 hours. An entry exactly at the edge is outside."""
    return [
        entry
        for entry in entries
        if (label is None or label in entry.labels) and (age := entry.age(now)) is not None and age < DAY
    ]


def seconds_until_free(entries: Iterable[UsageEntry], cap: SpendingCap, now: Instant) -> float:
    """Return the seconds until old entries have left the window, so that the cap is no longer reached. 0: the cap is
    not reached now."""
    total = UsedSpending()
    for age, entry in sorted(
        ((entry.age(now) or 0.0, entry) for entry in entries_in_window(entries, now)), key=lambda e: e[0]
    ):
        total += entry.used
        if cap.is_reached(total):
            return DAY - age  # counted from the newest entry back: this is the entry that has to leave the window
    return 0.0
