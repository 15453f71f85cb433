"""Outcomes of actions for their users. The command line and the terminal UI print the same sentences.

The module imports little, because `holdfast ps` has to start fast.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class NoSupervisor(StrEnum):
    """The three sentences about a supervisor that is not running."""

    START_ONE = "No supervisor is running. Start one: `holdfast up`."
    TAKES_EFFECT_LATER = "No supervisor is running. This takes effect at the next `holdfast up`."
    IN_STATUS = "no supervisor is running"


def no_supervisor(form: NoSupervisor = NoSupervisor.START_ONE, how: str = "") -> str:
    """Return the sentence of this form. `how`: for a status line, the key or command that starts a supervisor."""
    return f"{form} ({how})" if how else str(form)


class ActionOutcome(NamedTuple):
    """The result of an action: a sentence, a note about what has to happen next, and the data for `--json`."""

    message: str
    note: str = ""
    data: Mapping[str, Any] = {}

    @property
    def text(self) -> str:
        """Return message and note in one line."""
        return f"{self.message} {self.note}" if self.note else self.message
