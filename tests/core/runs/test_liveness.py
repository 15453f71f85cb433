"""Dead, alive, or cannot tell (R-CRASH-01)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.runs.liveness import Identity, Life, Sighting, judge

BOOT, OTHER_BOOT = "boot-a", "boot-b"
RECORDED = Identity(boot_id=BOOT, pid=4242, start_ticks=1000)

TABLE = [
    ("the same process", RECORDED, Sighting(boot_id=BOOT, start_ticks=1000), Life.ALIVE),
    ("no such process", RECORDED, Sighting(boot_id=BOOT, start_ticks=None), Life.DEAD),
    ("a zombie is dead", RECORDED, Sighting(boot_id=BOOT, start_ticks=1000, zombie=True), Life.DEAD),
    ("its pid was reused later", RECORDED, Sighting(boot_id=BOOT, start_ticks=1001), Life.DEAD),
    ("its pid is an older process's", RECORDED, Sighting(boot_id=BOOT, start_ticks=999), Life.DEAD),
    ("a zombie under a reused pid", RECORDED, Sighting(boot_id=BOOT, start_ticks=7, zombie=True), Life.DEAD),
    (
        "no permission is alive",
        RECORDED,
        Sighting(boot_id=BOOT, start_ticks=None, readable=False),
        Life.ALIVE,
    ),
    ("the machine was rebooted", RECORDED, Sighting(boot_id=OTHER_BOOT, start_ticks=None), Life.DEAD),
    (
        "rebooted, and pid and start time happen to be equal",
        RECORDED,
        Sighting(boot_id=OTHER_BOOT, start_ticks=1000),
        Life.DEAD,
    ),
    (
        "rebooted, and a stranger has the pid",
        RECORDED,
        Sighting(boot_id=OTHER_BOOT, start_ticks=None, readable=False),
        Life.DEAD,
    ),
    ("no pid recorded, nothing seen", None, Sighting(boot_id=BOOT, start_ticks=None), Life.UNKNOWN),
    ("no pid recorded, something seen", None, Sighting(boot_id=BOOT, start_ticks=1000), Life.UNKNOWN),
    ("no pid recorded, a zombie", None, Sighting(boot_id=BOOT, start_ticks=1000, zombie=True), Life.UNKNOWN),
]

sightings = st.builds(
    Sighting,
    boot_id=st.sampled_from([BOOT, OTHER_BOOT]),
    start_ticks=st.none() | st.sampled_from([999, 1000, 1001]),
    zombie=st.booleans(),
    readable=st.booleans(),
)


@pytest.mark.parametrize(("recorded", "seen", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(recorded: Identity | None, seen: Sighting, expected: Life) -> None:
    """R-CRASH-01: a zombie is dead, no pid recorded is unknown, no permission is alive; R-TERM-10: a reused pid."""
    assert judge(recorded, seen) is expected


@settings(deadline=None)
@given(seen=sightings)
def test_without_a_record_nobody_can_tell(seen: Sighting) -> None:
    """R-CRASH-01: "cannot tell" is neither dead nor alive, whatever /proc shows."""
    assert judge(None, seen) is Life.UNKNOWN


@settings(deadline=None)
@given(seen=sightings)
def test_no_process_survives_a_reboot(seen: Sighting) -> None:
    """R-TERM-10: strangers are never taken for ours after a reboot."""
    life = judge(RECORDED, seen)
    assert seen.boot_id == BOOT or life is Life.DEAD


@settings(deadline=None)
@given(seen=sightings)
def test_alive_needs_the_same_process_or_a_closed_door(seen: Sighting) -> None:
    """R-CRASH-01: only the recorded process itself, not a zombie, or one that we may not look at, is alive."""
    itself = seen.start_ticks == RECORDED.start_ticks and not seen.zombie
    expected = seen.boot_id == BOOT and (itself or not seen.readable)
    assert (judge(RECORDED, seen) is Life.ALIVE) is expected
