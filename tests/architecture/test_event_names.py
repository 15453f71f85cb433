"""Event names are documented: nothing else can be emitted, and nothing is documented that nobody emits."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from holdfast.core.event_kinds import EVENTS
from holdfast.core.model import Event

SOURCE = Path(__file__).resolve().parents[2] / "src" / "holdfast"


@cache
def sources() -> dict[Path, str]:
    """All our code but the list of events itself."""
    return {path: path.read_text() for path in SOURCE.rglob("*.py") if path != SOURCE / "core" / "events.py"}


def test_an_undocumented_event_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="not a documented event"):
        Event(kind="task.vanished", message="x")


@pytest.mark.parametrize("kind", EVENTS)
def test_a_documented_event_is_emitted_somewhere(kind: str) -> None:
    emitters = [path for path, text in sources().items() if f'"{kind}"' in text]
    assert emitters, f"nothing emits {kind}"
