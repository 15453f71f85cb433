"""Money and tokens: caps, windows that slide, what a run may still use, and what becomes of its task."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.base.instant import Instant
from holdfast.core.agents.events import Usage
from holdfast.core.dispatch.spending import (
    BindingCap,
    FamilyUsage,
    SpendingMeter,
    pause_if_spent,
    usage_since,
    usage_to_used,
)
from holdfast.core.dispatch.spending_caps import (
    DAY,
    NO_CAPS,
    LabelCap,
    SharedCaps,
    SpendingCap,
    UsageEntry,
    UsedSpending,
    entries_in_window,
    seconds_until_free,
    sum_entries,
)
from holdfast.core.health.signs import AgentActivity, Sign, SignKind
from holdfast.core.model import PauseReason
from holdfast.core.runs.outcome import RunUsage
from holdfast.core.runs.policy import Decision, PolicyAction

NOW = Instant(wall=1_800_000_000.0, boottime=1_000_000.0, boot_id="boot-0")


def ago(seconds: float, usd: float = 1.0, tokens: int = 0, label: str = "") -> UsageEntry:
    at = NOW._replace(wall=NOW.wall - seconds, boottime=NOW.boottime - seconds)
    return UsageEntry(at=at, used=UsedSpending(usd=usd, tokens=tokens), labels=frozenset({label} if label else ()))


# -- caps --------------------------------------------------------------------------------------------------------------


def test_a_cap_is_reached_when_nothing_is_left() -> None:
    cap = SpendingCap(usd=5.0, tokens=1000)
    assert not cap.is_reached(UsedSpending(usd=4.99, tokens=999))
    assert cap.is_reached(UsedSpending(usd=5.0))
    assert cap.is_reached(UsedSpending(tokens=1000))
    assert cap.left(UsedSpending(usd=4.0, tokens=2000)) == SpendingCap(usd=1.0, tokens=0)
    assert cap.describe_exceeded(UsedSpending(usd=5.2, tokens=1200)) == "$5.20 of $5.00 and 1200 of 1000 tokens"
    assert not SpendingCap()
    assert not SpendingCap().is_reached(UsedSpending(usd=1e9, tokens=10**12))


def test_shared_caps_have_stable_keys() -> None:
    labels = {"team=web": LabelCap(day=SpendingCap(usd=1.0), total=SpendingCap(tokens=9)), "team=none": LabelCap()}
    caps = SharedCaps(day=SpendingCap(tokens=5), labels=labels)
    assert [one.key for one in caps.all()] == ["day", "team=web/day", "team=web/total"]
    assert [one.is_sliding for one in caps.all()] == [True, True, False]
    assert [one.applies_to({"team=web"}) for one in caps.all()] == [True, True, True]
    assert [one.applies_to(()) for one in caps.all()] == [True, False, False]
    assert NO_CAPS.all() == []


# -- the window --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ages", "cap", "wait"),
    [
        ((), 1.0, 0.0),
        ((10.0,), 2.0, 0.0),
        ((10.0,), 1.0, DAY - 10.0),
        ((DAY - 1, 10.0), 2.0, 1.0),  # when the older leaves, one is left
        ((DAY - 1, DAY - 5, 10.0), 1.0, DAY - 10.0),  # all three have to leave
        ((DAY, 10.0), 2.0, 0.0),  # exactly at the edge is outside
    ],
)
def test_when_there_is_some_again(ages: tuple[float, ...], cap: float, wait: float) -> None:
    assert seconds_until_free([ago(age) for age in ages], SpendingCap(usd=cap), NOW) == pytest.approx(wait)


def test_a_label_counts_its_own() -> None:
    entries = [ago(1, 2.0, label="team=web"), ago(1, 3.0)]
    assert sum_entries(entries_in_window(entries, NOW, "team=web")).usd == 2.0
    assert sum_entries(entries_in_window(entries, NOW)).usd == 5.0


@pytest.mark.parametrize("years", [-10, 10])
def test_a_wall_clock_that_jumps_within_a_boot_moves_no_window(years: int) -> None:
    jumped = NOW._replace(wall=NOW.wall + years * 365 * DAY)
    assert len(entries_in_window([ago(10)], jumped)) == 1
    assert entries_in_window([ago(DAY + 10)], jumped) == []


def test_an_entry_from_a_future_that_never_was_keeps_nobody_waiting() -> None:
    """After a reboot a clock that was years ahead was set right: no task waits for years."""
    ahead = UsageEntry(
        at=Instant(wall=NOW.wall + 10 * 365 * DAY, boottime=5.0, boot_id="boot-before"), used=UsedSpending(usd=9.0)
    )
    assert entries_in_window([ahead], NOW) == []
    behind = UsageEntry(at=Instant(wall=NOW.wall - 60, boottime=5.0, boot_id="boot-before"), used=UsedSpending(usd=9.0))
    assert entries_in_window([behind], NOW) == [behind]


instants = st.builds(
    Instant, wall=st.floats(0, 4e9), boottime=st.floats(0, 1e8), boot_id=st.sampled_from(["boot-0", "boot-1"])
)
useds = st.builds(UsedSpending, usd=st.floats(0, 100), tokens=st.integers(0, 10**6))
entries_of = st.lists(st.builds(UsageEntry, at=instants, used=useds), max_size=20)
caps_of = st.builds(SpendingCap, usd=st.none() | st.floats(0.01, 500), tokens=st.none() | st.integers(1, 10**7))


@settings(max_examples=150, deadline=None)
@given(entries=entries_of, cap=caps_of, now=instants)
def test_who_waits_waits_less_than_a_day_and_then_there_is_some(
    entries: list[UsageEntry], cap: SpendingCap, now: Instant
) -> None:
    """Nothing hangs, whatever clocks the entries were written by; a wait that is over is over."""
    entries = [one for one in entries if one.at.boot_id != now.boot_id or one.at.boottime <= now.boottime]
    wait = seconds_until_free(entries, cap, now)
    assert 0.0 <= wait <= DAY
    assert (wait > 0.0) is cap.is_reached(sum_entries(entries_in_window(entries, now)))
    later = wait + 61  # a wall clock is believed when it is a minute ahead
    after = now._replace(wall=now.wall + later, boottime=now.boottime + later)
    seen_now = [entry for entry in entries if entry.age(now) is not None]
    assert not cap or not cap.is_reached(sum_entries(entries_in_window(seen_now, after)))


@settings(max_examples=100, deadline=None)
@given(entries=entries_of, more=st.builds(UsageEntry, at=instants, used=useds), now=instants)
def test_what_is_used_only_grows(entries: list[UsageEntry], more: UsageEntry, now: Instant) -> None:
    before, after = sum_entries(entries_in_window(entries, now)), sum_entries(entries_in_window([*entries, more], now))
    assert after.tokens >= before.tokens
    assert after.usd >= before.usd


# -- nothing twice -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(told=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=12))
def test_a_session_that_tells_its_sum_again_is_counted_once(told: list[tuple[int, int]]) -> None:
    """Whatever the order of its numbers: together the runs count as much as the most that was told, and never less
    than before."""
    counted = RunUsage()
    for tokens_in, tokens_out in told:
        news = usage_since(RunUsage(input=tokens_in, output=tokens_out), counted)
        assert news.input >= 0
        assert news.output >= 0
        counted = RunUsage(input=counted.input + news.input, output=counted.output + news.output)
    assert counted.input == max((one[0] for one in told), default=0)
    assert counted.output == max((one[1] for one in told), default=0)


def test_talk_goes_on_counting_where_the_last_supervisor_stopped() -> None:
    talk = AgentActivity()
    talk.hear(Sign(kind=SignKind.USAGE, usage=Usage(input=5, output=2, of="m1", cost_usd=0.5)), 1.0)
    again = AgentActivity.load(talk.dump())
    again.hear(Sign(kind=SignKind.USAGE, usage=Usage(input=5, output=9, of="m1", cost_usd=0.75)), 2.0)
    assert again.spending.total == RunUsage(input=5, output=9, cost_usd=0.75)
    assert again.steps == 0


# -- what a run may still use ------------------------------------------------------------------------------------------


def test_a_run_is_measured_against_what_its_task_has_left() -> None:
    cap = SpendingCap(usd=5.0, tokens=1000)
    meter = SpendingMeter(caps=[BindingCap(cap=cap, used=UsedSpending(usd=4.0, tokens=100))])
    assert meter.passed(RunUsage(input=800, output=99, cost_usd=0.99)) is None
    assert meter.passed(RunUsage(cost_usd=1.25)) == "its budget is spent ($5.25 of $5.00)"
    assert meter.passed(RunUsage(input=900)) == "its budget is spent (1000 of 1000 tokens)"
    summed = replace(meter, before=RunUsage(input=900))
    assert summed.passed(RunUsage(input=950)) is None


# -- what becomes of the task ------------------------------------------------------------------------------------------

REQUEUE = Decision(action=PolicyAction.REQUEUE, reason="crashed", delay=4.0)
LIMITED = Decision(action=PolicyAction.PAUSE, reason="limited", pause=PauseReason.RATE_LIMIT, resume_after=9.0)


@pytest.mark.parametrize("action", [PolicyAction.COMPLETE, PolicyAction.FAIL, PolicyAction.CANCEL, PolicyAction.FREEZE])
def test_what_ended_has_ended(action: PolicyAction) -> None:
    """A task that completes above its budget stays completed."""
    decision = Decision(action=action, reason="it ended")
    assert pause_if_spent(decision, "$6.00 of $5.00", ["the day"]) is decision


def test_what_would_go_on_is_paused() -> None:
    for decision in (REQUEUE, LIMITED):
        held = pause_if_spent(decision, "$6.00 of $5.00", [])
        assert (held.action, held.pause, held.resume_after, held.delay) == (
            PolicyAction.PAUSE,
            PauseReason.BUDGET,
            None,
            0.0,
        )
        assert decision.reason in held.reason
        assert held.spends == decision.spends
    assert pause_if_spent(REQUEUE, "", ["the budget for 24 hours"]).pause is PauseReason.BUDGET
    assert pause_if_spent(LIMITED, "", ["the budget for 24 hours"]) is LIMITED, (
        "it waits in the queue when its limit is over"
    )
    assert pause_if_spent(REQUEUE, "", []) is REQUEUE


@settings(max_examples=150, deadline=None)
@given(
    cap=st.builds(SpendingCap, usd=st.floats(0.1, 50), tokens=st.integers(1, 10**5)),
    runs=st.lists(st.builds(RunUsage, input=st.integers(0, 10**5), cost_usd=st.none() | st.floats(0, 20)), max_size=30),
)
def test_a_task_that_goes_on_by_itself_passes_its_budget_by_one_run_at_most(
    cap: SpendingCap, runs: list[RunUsage]
) -> None:
    used, started = UsedSpending(), 0
    for run in runs:
        assert not cap.is_reached(used), "it would not have been started"
        started += 1
        used += usage_to_used(run)
        if pause_if_spent(REQUEUE, cap.describe_exceeded(used), []).action is PolicyAction.PAUSE:
            break
    before_last = sum((usage_to_used(run).tokens for run in runs[: max(0, started - 1)]), 0)
    assert before_last < (cap.tokens or 0)


def test_runs_of_one_family_see_what_the_others_use_beside_them() -> None:
    """Each of them may use what is left of the first task's budget; together not more than once."""
    shared, till = (
        BindingCap(
            cap=SpendingCap(usd=1.0), used=UsedSpending(usd=0.3), whose=" of task a and its subtasks", is_shared=True
        ),
        FamilyUsage(),
    )
    mine = BindingCap(cap=SpendingCap(usd=1.0), used=UsedSpending())
    meters = [SpendingMeter(caps=[mine, shared], run_id=run, family_usage=till) for run in ("r1", "r2")]
    assert meters[0].left_usd == 0.7
    assert meters[0].passed(RunUsage(cost_usd=0.4)) is None
    assert meters[1].passed(RunUsage(cost_usd=0.2)) is None
    assert meters[1].passed(RunUsage(cost_usd=0.35)) == (
        "its budget is spent ($1.05 of $1.00 of task a and its subtasks)"
    )
    till.over("r2", UsedSpending(usd=0.5))
    till.over("r2", UsedSpending(usd=0.5))
    assert meters[0].passed(RunUsage(cost_usd=0.4)) is not None, "the other has ended, and used it"
    later = SpendingMeter(
        caps=[replace(shared, used=UsedSpending(usd=0.8))], run_id="r3", family_usage=till, mark=till.ended
    )
    assert later.passed(RunUsage()) is not None
    till.over("r1")
    assert replace(later, mark=till.ended).passed(RunUsage(cost_usd=0.1)) is None, "what had ended is in its purse"
