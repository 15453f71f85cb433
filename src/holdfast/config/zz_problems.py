"""What is wrong with the settings, each problem with its place, and the one error that carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.base.errors import UsageError


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `place` is a file, a variable or a flag; `line` is known for most mistakes in files."""

    place: str
    line: int | None
    text: str

    def __str__(self) -> str:
        return f"{where(self.place, self.line)}: {self.text}"


class ConfigError(UsageError):
    """The settings have mistakes; nothing of them was applied. The message is the first one."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        more = len(problems) - 1
        rest = f" (and {more} more mistake{'s' if more > 1 else ''}: `holdfast config check` lists all)" if more else ""
        super().__init__(f"{problems[0]}{rest}")


def where(place: str, line: int | None) -> str:
    return place if line is None else f"{place}:{line}"
