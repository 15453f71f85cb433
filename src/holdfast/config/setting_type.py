"""The type of one row in the table of settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.config.values import Parser

DANGEROUS = "could run commands or show secrets"
ABOUT_MONEY = "is about your money"
OF_THE_SUPERVISOR = "is a setting of the supervisor, not of a task"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its default, its parser, its meaning, and which files may set it."""

    default: Any
    parse: Parser
    meaning: str
    user_only: str = ""  # why a repository's file may not set the key; DANGEROUS: it may, once trusted
    reload: bool = False  # a running supervisor applies a new value when the user's file changes

    @property
    def needs_trust(self) -> bool:
        return self.user_only == DANGEROUS

    @property
    def may_be_in_repository(self) -> bool:
        """True if a repository's file may set the key, at least once the file is trusted."""
        return not self.user_only or self.needs_trust
