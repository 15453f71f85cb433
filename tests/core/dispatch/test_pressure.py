"""Whether there is room for one more agent: a table, and that nothing flaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.dispatch.pressure import Pressure, PressureLimits, check_pressure

MIB = 1024**2
LIMITS = PressureLimits(min_memory=100 * MIB, max_load=2, max_stall=20, disk_floor=1000 * MIB)
FINE = Pressure(memory=500 * MIB, load=0.5, stall=0.0)


@pytest.mark.parametrize(
    ("now", "holding", "over"),
    [
        (FINE, (), set()),
        (Pressure(memory=100 * MIB, load=2.0, stall=20.0), (), set()),  # at the limit is not beyond it
        (Pressure(memory=99 * MIB), (), {"memory"}),
        (Pressure(load=2.01), (), {"load"}),
        (Pressure(stall=20.5), (), {"stall"}),
        (Pressure(memory=1, load=9.0, stall=99.0), (), {"memory", "load", "stall"}),
        (Pressure(), (), set()),  # a machine that does not say holds nothing back
        (Pressure(memory=105 * MIB), ("memory",), {"memory"}),  # what held needs 10 % more
        (Pressure(memory=111 * MIB), ("memory",), set()),
        (Pressure(load=1.9), ("load",), {"load"}),
        (Pressure(load=1.79), ("load",), set()),
        (Pressure(stall=18.5), ("stall",), {"stall"}),
        (Pressure(stall=17.9), ("stall",), set()),
        (Pressure(memory=105 * MIB, load=0.1), ("load",), set()),  # only what held itself
        (Pressure(disk=1000 * MIB), (), set()),
        (Pressure(disk=999 * MIB), (), {"disk"}),  # R-TREE-14
        (Pressure(disk=1099 * MIB), ("disk",), {"disk"}),
        (Pressure(disk=1101 * MIB), ("disk",), set()),
    ],
)
def test_what_holds(now: Pressure, holding: tuple[str, ...], over: set[str]) -> None:
    found = check_pressure(LIMITS, now, holding)
    assert (found.over if found else set()) == over


def test_the_reason_has_the_numbers() -> None:
    found = check_pressure(LIMITS, Pressure(memory=42 * MIB, load=3.14159, stall=25.0))
    assert found is not None
    assert found.reason == (
        "42 MiB of memory are available, 100 MiB are wanted; the load per core is 3.14, at most 2 is wanted; "
        "memory is waited for in 25 % of the time, at most 20 % is wanted"
    )
    assert found.data == {
        "memory": 42 * MIB,
        "load": 3.14159,
        "stall": 25.0,
        "disk": None,
        "over": ["load", "memory", "stall"],
    }


readings = st.builds(
    Pressure,
    memory=st.none() | st.integers(0, 2**45),
    load=st.none() | st.floats(0, 1000),
    stall=st.none() | st.floats(0, 100),
    disk=st.none() | st.integers(0, 2**45),
)


@given(readings, st.sets(st.sampled_from(["memory", "load", "stall", "disk"])))
def test_zero_switches_everything_off(now: Pressure, holding: set[str]) -> None:
    assert PressureLimits().is_off
    assert check_pressure(PressureLimits(), now, holding) is None


@given(readings)
def test_it_never_flaps(now: Pressure) -> None:
    """Whatever is let in while holding is let in when nothing held; the other way round there is a margin."""
    held = check_pressure(LIMITS, now, {"memory", "load", "stall", "disk"})
    if held is None:
        assert check_pressure(LIMITS, now) is None
    elif check_pressure(LIMITS, now) is None:
        assert now.memory is None or now.memory >= LIMITS.min_memory
        assert now.disk is None or now.disk >= LIMITS.disk_floor


@given(readings)
def test_a_held_machine_stays_held_while_nothing_changes(now: Pressure) -> None:
    first = check_pressure(LIMITS, now)
    if first is not None:
        again = check_pressure(LIMITS, now, first.over)
        assert again is not None
        assert again.over == first.over
