"""When a changed file is taken for finished."""

from __future__ import annotations

from holdfast.supervisor.reloading import SETTLE, Stillness


def test_a_file_is_finished_when_it_has_kept_still() -> None:
    """An editor empties a file and then writes it: the moment between is not a change to the defaults."""
    stillness = Stillness()
    assert stillness.left("empty", 100.0) == SETTLE
    assert stillness.left("half", 100.0 + SETTLE * 0.9) == SETTLE  # changed again: it starts anew
    assert 0 < stillness.left("half", 100.0 + SETTLE * 1.5) < SETTLE
    assert stillness.left("half", 100.0 + SETTLE * 2) == 0
    assert stillness.left("half", 1000.0) == 0
    assert stillness.left("whole", 1000.0) == SETTLE
