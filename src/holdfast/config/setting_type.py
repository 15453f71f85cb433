"""What one setting is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.config.values import Parser

DANGEROUS = "could run commands or show secrets"
OF_YOUR_MONEY = "is about your money"
OF_THE_SUPERVISOR = "is a setting of the supervisor, not of a task"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key: what it is when nobody sets it, how it is read, what it means."""

    default: Any
    parse: Parser
    meaning: str
    user_only: str = ""  # why a repository's file may not set it: OF_THE_SUPERVISOR; DANGEROUS: only once trusted
    reload: bool = False  # a running supervisor takes a new value over when the user's file changes

    @property
    def needs_trust(self) -> bool:
        return self.user_only == DANGEROUS

    @property
    def is_for_repositories(self) -> bool:
        """Whether a repository's file may set it, trusted or not."""
        return not self.user_only or self.needs_trust
