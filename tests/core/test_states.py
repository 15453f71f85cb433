"""The three life cycles against DESIGN.md's section "States", written down a second time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.states import (
    RUN_LIVE,
    RUN_MOVES,
    TASK_MOVES,
    TASK_TERMINAL,
    WORKSPACE_MOVES,
    WORKSPACE_OPEN,
    AnyState,
    RunState,
    TaskState,
    WorkspaceState,
    is_legal_move,
    moves_from,
)

S = TypeVar("S", TaskState, RunState, WorkspaceState)


@dataclass(frozen=True, kw_only=True)
class Cycle:
    """One life cycle: the table under test, and what DESIGN.md says it holds."""

    kind: type[TaskState] | type[RunState] | type[WorkspaceState]
    table: Mapping[AnyState, Mapping[AnyState, str]]
    initial: str
    moves: Mapping[str, set[str]]

    def __str__(self) -> str:
        return self.kind.__name__

    @property
    def states(self) -> list[AnyState]:
        return list(self.kind)


def widened(table: Mapping[S, Mapping[S, str]]) -> dict[AnyState, dict[AnyState, str]]:
    return {before: dict(moves.items()) for before, moves in table.items()}


TASK = Cycle(
    kind=TaskState,
    table=widened(TASK_MOVES),
    initial="queued",
    moves={
        "queued": {"running", "paused", "cancelled", "failed"},
        "running": {"completed", "failed", "cancelled", "paused", "queued"},
        "paused": {"queued", "failed", "cancelled"},
        "completed": {"queued"},
        "failed": {"queued"},
        "cancelled": {"queued"},
    },
)
RUN = Cycle(
    kind=RunState,
    table=widened(RUN_MOVES),
    initial="intended",
    moves={
        "intended": {"started", "ended"},
        "started": {"stopping", "ended"},
        "stopping": {"ended"},
        "ended": {"settled"},
        "settled": set(),
    },
)
WORKSPACE = Cycle(
    kind=WorkspaceState,
    table=widened(WORKSPACE_MOVES),
    initial="intended",
    moves={
        "intended": {"ready", "trashed", "gone"},
        "ready": {"preserved", "trashed", "gone"},
        "preserved": {"ready", "trashed", "gone"},
        "trashed": {"gone"},
        "gone": set(),
    },
)
CYCLES = (TASK, RUN, WORKSPACE)
ALL_STATES: tuple[AnyState, ...] = (*TaskState, *RunState, *WorkspaceState)

each_cycle = pytest.mark.parametrize("cycle", CYCLES, ids=str)


def full_name(state: AnyState) -> str:
    """States of different enums may be equal as text (both runs and workspaces are `intended`): tell them apart."""
    return f"{type(state).__name__}.{state.value}"


def full_names(states: Iterable[AnyState]) -> set[str]:
    return {full_name(state) for state in states}


def is_designed(before: AnyState, after: AnyState) -> bool:
    cycle = next(cycle for cycle in CYCLES if cycle.kind is type(before))
    return type(after) is cycle.kind and after.value in cycle.moves[before.value]


@each_cycle
def test_every_state_is_a_key_and_nothing_else_is(cycle: Cycle) -> None:
    assert full_names(cycle.table) == full_names(cycle.states)


@each_cycle
def test_every_target_is_a_state_of_the_same_kind(cycle: Cycle) -> None:
    targets = full_names(after for moves in cycle.table.values() for after in moves)
    assert targets <= full_names(cycle.states)


@each_cycle
def test_the_moves_are_those_of_the_design(cycle: Cycle) -> None:
    assert {str(before): {str(after) for after in moves} for before, moves in cycle.table.items()} == cycle.moves


@each_cycle
def test_every_move_says_in_words_when_it_happens(cycle: Cycle) -> None:
    assert all(words.strip() for moves in cycle.table.values() for words in moves.values())


@each_cycle
def test_every_state_can_be_reached_from_the_first(cycle: Cycle) -> None:
    start = next(state for state in cycle.states if state.value == cycle.initial)
    reached: set[str] = set()
    frontier: list[AnyState] = [start]
    while frontier:
        state = frontier.pop()
        if full_name(state) not in reached:
            reached.add(full_name(state))
            frontier.extend(cycle.table[state])
    assert reached == full_names(cycle.states)


def test_a_terminal_task_moves_only_by_an_operator() -> None:
    assert {str(state) for state in TASK_TERMINAL} == {"completed", "failed", "cancelled"}
    only_by_hand = {
        before
        for before, moves in TASK_MOVES.items()
        if all(after is TaskState.QUEUED and "an operator's" in words for after, words in moves.items())
    }
    assert only_by_hand == TASK_TERMINAL


def test_a_run_is_live_until_it_is_proven_to_have_ended() -> None:
    assert {str(state) for state in RUN_LIVE} == {"intended", "started", "stopping"}
    assert {before for before, moves in RUN_MOVES.items() if RunState.ENDED in moves} == RUN_LIVE


def test_a_workspace_is_open_until_it_is_gone() -> None:
    assert {str(state) for state in WORKSPACE_OPEN} == {"intended", "ready", "preserved", "trashed"}
    assert {before for before, moves in WORKSPACE_MOVES.items() if moves} == WORKSPACE_OPEN


@pytest.mark.parametrize("after", ALL_STATES, ids=full_name)
@pytest.mark.parametrize("before", ALL_STATES, ids=full_name)
def test_can_move_knows_the_table_of_its_kind_and_no_other(before: AnyState, after: AnyState) -> None:
    """All 256 pairs, those across kinds included: a run never becomes a workspace."""
    assert is_legal_move(before, after) is is_designed(before, after)


@pytest.mark.parametrize("before", ALL_STATES, ids=full_name)
def test_moves_from_a_state_are_those_of_its_own_kind(before: AnyState) -> None:
    """Runs and workspaces both start as `intended`; as text the two are equal."""
    assert full_names(moves_from(before)) == full_names(after for after in ALL_STATES if is_designed(before, after))


@each_cycle
@settings(deadline=None)
@given(picks=st.lists(st.integers(min_value=0, max_value=59), max_size=40))
def test_a_walk_never_leaves_the_table_and_illegal_moves_are_refused(cycle: Cycle, picks: list[int]) -> None:
    """At each state of a random walk, exactly the designed moves are allowed out of all states of all kinds."""
    state = next(state for state in cycle.states if state.value == cycle.initial)
    for pick in picks:
        allowed = [after for after in ALL_STATES if is_legal_move(state, after)]
        assert full_names(allowed) == {f"{cycle.kind.__name__}.{after}" for after in cycle.moves[state.value]}
        if not allowed:
            break
        state = allowed[pick % len(allowed)]
        assert type(state) is cycle.kind
