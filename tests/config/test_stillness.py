"""When a changed file is taken for finished."""

from __future__ import annotations

from holdfast.supervisor.services.reload import LONGEST, SETTLE, FileStillness


def test_a_file_is_finished_when_it_has_kept_still() -> None:
    """An editor empties a file and then writes it: the moment between is not a change to the defaults."""
    stillness = FileStillness()
    assert stillness.left("empty", 100.0) == SETTLE
    assert stillness.left("half", 100.0 + SETTLE * 0.9) == SETTLE  # changed again: it starts again
    assert 0 < stillness.left("half", 100.0 + SETTLE * 1.5) < SETTLE
    assert stillness.left("half", 100.0 + SETTLE * 2) == 0
    assert stillness.left("half", 1000.0) == 0
    assert stillness.left("whole", 1000.0) == SETTLE


def test_a_file_that_never_rests_is_read_all_the_same() -> None:
    """R-CRON-01: an agent that writes a file with schedules all the time does not keep them from being read."""
    stillness = FileStillness()
    for restless_from in (500.0, 600.0):
        moments = [restless_from + step / 10 for step in range(200)]
        read = [now for now in moments if stillness.left(now, now) <= 0]
        assert LONGEST <= read[0] - restless_from < LONGEST + 0.2
        assert len(read) <= 20 / LONGEST + 1, "and not at every write"
        assert stillness.left(moments[-1], moments[-1] + 1) == 0
        assert stillness.left("later", restless_from + 50) == SETTLE
        assert stillness.left("later", restless_from + 51) == 0
