"""Dead, alive, or cannot tell (R-CRASH-01)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.runs.liveness import Liveness, ProcessIdentity, ProcessSighting, judge_liveness

BOOT, OTHER_BOOT = "boot-a", "boot-b"
RECORDED = ProcessIdentity(boot_id=BOOT, pid=4242, start_ticks=1000)

TABLE = [
    ("the same process", RECORDED, ProcessSighting(boot_id=BOOT, start_ticks=1000), Liveness.ALIVE),
    ("no such process", RECORDED, ProcessSighting(boot_id=BOOT, start_ticks=None), Liveness.DEAD),
    ("a zombie is dead", RECORDED, ProcessSighting(boot_id=BOOT, start_ticks=1000, zombie=True), Liveness.DEAD),
    ("its pid was reused later", RECORDED, ProcessSighting(boot_id=BOOT, start_ticks=1001), Liveness.DEAD),
    ("its pid is an older process's", RECORDED, ProcessSighting(boot_id=BOOT, start_ticks=999), Liveness.DEAD),
    ("a zombie under a reused pid", RECORDED, ProcessSighting(boot_id=BOOT, start_ticks=7, zombie=True), Liveness.DEAD),
    (
        "no permission is alive",
        RECORDED,
        ProcessSighting(boot_id=BOOT, start_ticks=None, readable=False),
        Liveness.ALIVE,
    ),
    ("the machine was rebooted", RECORDED, ProcessSighting(boot_id=OTHER_BOOT, start_ticks=None), Liveness.DEAD),
    (
        "rebooted, and pid and start time happen to be equal",
        RECORDED,
        ProcessSighting(boot_id=OTHER_BOOT, start_ticks=1000),
        Liveness.DEAD,
    ),
    (
        "rebooted, and a stranger has the pid",
        RECORDED,
        ProcessSighting(boot_id=OTHER_BOOT, start_ticks=None, readable=False),
        Liveness.DEAD,
    ),
    ("no pid recorded, nothing seen", None, ProcessSighting(boot_id=BOOT, start_ticks=None), Liveness.UNKNOWN),
    ("no pid recorded, something seen", None, ProcessSighting(boot_id=BOOT, start_ticks=1000), Liveness.UNKNOWN),
    ("no pid recorded, a zombie", None, ProcessSighting(boot_id=BOOT, start_ticks=1000, zombie=True), Liveness.UNKNOWN),
]

sightings = st.builds(
    ProcessSighting,
    boot_id=st.sampled_from([BOOT, OTHER_BOOT]),
    start_ticks=st.none() | st.sampled_from([999, 1000, 1001]),
    zombie=st.booleans(),
    readable=st.booleans(),
)


@pytest.mark.parametrize(("recorded", "seen", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(recorded: ProcessIdentity | None, seen: ProcessSighting, expected: Liveness) -> None:
    """R-CRASH-01: a zombie is dead, no pid recorded is unknown, no permission is alive; R-TERM-10: a reused pid."""
    assert judge_liveness(recorded, seen) is expected


@settings(deadline=None)
@given(seen=sightings)
def test_without_a_record_nobody_can_tell(seen: ProcessSighting) -> None:
    """R-CRASH-01: "cannot tell" is neither dead nor alive, whatever /proc shows."""
    assert judge_liveness(None, seen) is Liveness.UNKNOWN


@settings(deadline=None)
@given(seen=sightings)
def test_no_process_survives_a_reboot(seen: ProcessSighting) -> None:
    """R-TERM-10: strangers are never taken for ours after a reboot."""
    life = judge_liveness(RECORDED, seen)
    assert seen.boot_id == BOOT or life is Liveness.DEAD


@settings(deadline=None)
@given(seen=sightings)
def test_alive_needs_the_same_process_or_a_closed_door(seen: ProcessSighting) -> None:
    """R-CRASH-01: only the recorded process itself, not a zombie, or one that we may not look at, is alive."""
    itself = seen.start_ticks == RECORDED.start_ticks and not seen.zombie
    expected = seen.boot_id == BOOT and (itself or not seen.readable)
    assert (judge_liveness(RECORDED, seen) is Liveness.ALIVE) is expected
