"""Which account a run gets, who waits for one, and how long one stays shut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.base.instant import Instant
from holdfast.core.dispatch.accounts import (
    NO_BLOCKED_TASKS,
    AccountChoice,
    ClosedAccount,
    choose_account,
    find_blocked_tasks,
)
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import decide
from holdfast.core.runs.retry_budgets import Budget, RetryLimits, Spend

NOW = Instant(wall=1000.0, boottime=10.0, boot_id="b")
PARKED = ClosedAccount(
    agent="claude", name="default", until=2000.0, outcome=Outcome.USAGE_LIMITED, reason="x", at=900.0
)
STOPPED = replace(PARKED, until=None, outcome=Outcome.AUTH)
ALL = ("default", "work", "client")
AUTO = ("default", "work")


@pytest.mark.parametrize(
    ("bound", "named", "shut", "names", "expected"),
    [
        (None, None, (), ALL, AccountChoice(account="default")),
        (None, None, ("default",), ALL, AccountChoice(account="work")),
        (None, None, ("default", "work"), ALL, None),  # `client` is only for tasks that name it
        ("client", "client", ("default",), ALL, AccountChoice(account="client")),
        ("client", "client", ("client",), ALL, None),
        ("work", None, (), ALL, AccountChoice(account="work")),  # its session is there
        ("work", None, ("work",), ALL, None),  # so it waits
        ("gone", None, ("gone",), ALL, AccountChoice(account="default", left="gone")),
        (
            "gone",
            "gone",
            (),
            ALL,
            AccountChoice(account="gone"),
        ),  # it named it: the launch refuses, nobody decides otherwise
        ("gone", "gone", ("gone",), ALL, AccountChoice(account="gone")),  # shut or not
        ("gone", None, ("default", "work"), ALL, None),
        (None, None, (), (), AccountChoice(account=None)),  # an agent without logins
    ],
)
def test_the_choice(
    bound: str | None, named: str | None, shut: tuple[str, ...], names: tuple[str, ...], expected: AccountChoice | None
) -> None:
    assert choose_account(bound, named, shut, names, AUTO if names else ()) == expected


def test_who_is_shut_out() -> None:
    names = {"claude": ALL, "codex": ("default",)}
    auto = {"claude": AUTO, "codex": ("default",)}

    def of(*shut: ClosedAccount) -> object:
        return find_blocked_tasks(shut, lambda agent: names[agent], lambda agent: auto[agent])

    assert of() == NO_BLOCKED_TASKS
    one = of(PARKED)
    assert (one.accounts, one.agents) == ({"claude/default"}, set())  # type: ignore[attr-defined]
    both = of(PARKED, replace(PARKED, name="work"), replace(STOPPED, agent="codex"))
    assert both.agents == {"claude", "codex"}  # type: ignore[attr-defined]
    assert both.still_open == {"claude/client"}  # type: ignore[attr-defined]
    assert of(replace(PARKED, name="gone")) == NO_BLOCKED_TASKS


def test_how_long_it_holds() -> None:
    assert PARKED.holds(NOW)
    assert not PARKED.holds(NOW._replace(wall=2000.0))
    assert not PARKED.holds(NOW._replace(wall=800.0)), "the clock was set back: nobody knows how long it would last"
    assert STOPPED.holds(NOW._replace(wall=9e9))
    later, sooner = replace(PARKED, until=3000.0, at=950.0), replace(PARKED, until=1500.0, at=950.0)
    assert PARKED.merge(later) is later
    assert PARKED.merge(sooner) is PARKED
    assert PARKED.merge(STOPPED) is STOPPED
    assert STOPPED.merge(later) is STOPPED


def test_a_limit_parks_the_account_even_when_the_task_is_given_up() -> None:
    limited = Verdict(outcome=Outcome.USAGE_LIMITED, reason="limit", resets_at=5000.0)
    spent = [Spend(budget=Budget.RUNS, at=NOW)] * 12
    for ledger in ([], spent):
        decision = decide(limited, ledger, RetryLimits(), NOW)
        assert decision.parking is not None
        assert decision.parking.until == 5000.0
    unknown = decide(Verdict(outcome=Outcome.RATE_LIMITED, reason="429"), [], RetryLimits(default_hold=60), NOW)
    assert unknown.parking is not None
    assert unknown.parking.until == 1060.0
    stopped = decide(Verdict(outcome=Outcome.BILLING, reason="no money"), [], RetryLimits(), NOW)
    assert stopped.parking is not None
    assert stopped.parking.until is None
    assert decide(Verdict(outcome=Outcome.OVERLOADED, reason="529"), [], RetryLimits(), NOW).parking is None
