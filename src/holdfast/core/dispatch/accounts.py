"""Accounts that are not used for a while, and which one a task may have meanwhile. Pure.

An account is shut when a run under it met a limit (parked, until the reset), or when its login or its money failed
(stopped, until an operator says so). The record is in the store; which accounts there are, the user's settings say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome

PARKING = frozenset({Outcome.USAGE_LIMITED, Outcome.RATE_LIMITED})
STOPPING = frozenset({Outcome.AUTH, Outcome.BILLING})
_CLOCK_WAS_SET_BACK = 60.0  # a record from so far in the future is no reason to wait


@dataclass(frozen=True, kw_only=True, slots=True)
class Parking:
    """What a run's ending means for its account."""

    until: float | None  # None: until an operator says so
    outcome: Outcome
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShutAccount:
    """One account that is not used now."""

    agent: str
    name: str
    until: float | None
    outcome: Outcome
    reason: str
    at: float
    task_id: str | None = None

    @property
    def full_name(self) -> str:
        return full_name(self.agent, self.name)

    def holds(self, now: Instant) -> bool:
        if self.until is None:
            return True
        return now.wall < self.until and self.at <= now.wall + _CLOCK_WAS_SET_BACK

    def with_news(self, news: ShutAccount) -> ShutAccount:
        """Another run of it ended so: the longer one holds, and what a person has to mend outranks what time mends."""
        if self.until is None or news.until is None:
            return self if self.until is None else news
        return news if news.until >= self.until else self


@dataclass(frozen=True, kw_only=True, slots=True)
class ShutOut:
    """Which waiting tasks cannot start: those of a shut account, and those of an agent of which none is left, unless
    they are bound to one that is still open (not for everybody, that is) or name one that is gone."""

    accounts: frozenset[str]  # agent/name
    agents: frozenset[str]
    still_open: frozenset[str] = frozenset()  # agent/name, of these agents

    def __bool__(self) -> bool:
        return bool(self.accounts or self.agents)


NOBODY = ShutOut(accounts=frozenset(), agents=frozenset())
Names = Callable[[str], Sequence[str]]  # of an agent's accounts


def full_name(agent: str, name: str) -> str:
    return f"{agent}/{name}"


def shut_out(shut: Collection[ShutAccount], names: Names, choosable: Names) -> ShutOut:
    """An account that the settings no longer have keeps nobody waiting: its tasks begin anew under another one."""
    if not shut:
        return NOBODY
    known = [account for account in shut if account.name in names(account.agent)]
    accounts = frozenset(account.full_name for account in known)
    agents = frozenset(
        agent
        for agent in {account.agent for account in known}
        if all(full_name(agent, name) in accounts for name in choosable(agent))
    )
    still_open = frozenset(full_name(agent, name) for agent in agents for name in names(agent)) - accounts
    return ShutOut(accounts=accounts, agents=agents, still_open=still_open)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The account of the next run. `left` is the account whose session is given up, because it is there no more."""

    account: str | None
    left: str | None = None


def choose(
    bound: str | None, named: str | None, shut: Collection[str], names: Sequence[str], choosable: Sequence[str]
) -> Choice | None:
    """`bound` is the account of the task's session or the one that it names. None: all that it may have are shut.

    A session lives in its account's own directory, so a task stays where its session is. Otherwise the first that is
    open: the user's own login, then in the order of the file.
    """
    if not names:
        return Choice(account=None)  # its agent has no logins
    if bound is not None and bound in names:
        return None if bound in shut else Choice(account=bound)
    if bound is not None and bound == named:
        return Choice(account=bound)  # it is gone, so no time opens it: the launch says so
    open_ones = [name for name in choosable if name not in shut]
    if not open_ones:
        return None if choosable else Choice(account=None, left=bound)
    return Choice(account=open_ones[0], left=bound)
