"""Parked and stopped accounts, and the choice of an account for a task. Pure.

An account is parked until its reset when a run under it met a limit. It is stopped until an operator opens it when its
login or its payment failed. The store holds these records. The user's settings define which accounts exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.base.dataclass import dataclass
from holdfast.base.instant import Instant
from holdfast.core.runs.outcome import Outcome

PARKING = frozenset({Outcome.USAGE_LIMITED, Outcome.RATE_LIMITED})
STOPPING = frozenset({Outcome.AUTH, Outcome.BILLING})
_CLOCK_WAS_SET_BACK = 60.0  # a record from further in the future is not a reason to wait


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountPause:
    """The effect of a run's ending on the account of the run."""

    until: float | None  # None: until an operator opens the account
    outcome: Outcome
    reason: str
    is_guess: bool = False  # the provider did not report when the limit ends: `until` is the next try
    is_repeated: bool = False  # the limit was met before, and no model answered since


@dataclass(frozen=True, kw_only=True, slots=True)
class ClosedAccount:
    """One account that is parked or stopped."""

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

    def merge(self, news: ClosedAccount) -> ClosedAccount:
        """Combine this record with that of another run. The longer pause stays. A problem that a person has to fix
        outranks a problem that ends with time."""
        if self.until is None or news.until is None:
            return self if self.until is None else news
        return news if news.until >= self.until else self


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockedTasks:
    """The waiting tasks that cannot start: tasks of a parked or stopped account, and tasks of an agent that has no open
    account left.

    Two kinds of tasks of an agent without an open account may start all the same. One is bound to an account that is
    open but not offered to every task. The other names an account that no longer exists.
    """

    accounts: frozenset[str]  # agent/name
    agents: frozenset[str]
    still_open: frozenset[str] = frozenset()  # agent/name: open accounts of these agents

    def __bool__(self) -> bool:
        return bool(self.accounts or self.agents)


NO_BLOCKED_TASKS = BlockedTasks(accounts=frozenset(), agents=frozenset())
Names = Callable[[str], Sequence[str]]  # returns the names of an agent's accounts


def full_name(agent: str, name: str) -> str:
    return f"{agent}/{name}"


def find_blocked_tasks(shut: Collection[ClosedAccount], names: Names, choosable: Names) -> BlockedTasks:
    """Return the waiting tasks that cannot start. An account that is no longer in the settings holds nothing back: its
    tasks begin again under another account."""
    if not shut:
        return NO_BLOCKED_TASKS
    known = [account for account in shut if account.name in names(account.agent)]
    accounts = frozenset(account.full_name for account in known)
    agents = frozenset(
        agent
        for agent in {account.agent for account in known}
        if all(full_name(agent, name) in accounts for name in choosable(agent))
    )
    still_open = frozenset(full_name(agent, name) for agent in agents for name in names(agent)) - accounts
    return BlockedTasks(accounts=accounts, agents=agents, still_open=still_open)


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountChoice:
    """The account of the next run. `left` is the account whose session is given up because the account no longer
    exists."""

    account: str | None
    left: str | None = None


def choose_account(
    bound: str | None, named: str | None, shut: Collection[str], names: Sequence[str], choosable: Sequence[str]
) -> AccountChoice | None:
    """Choose the account of the next run. `bound` is the account of the task's session, or the account `named` that the
    task names. Return None if every account that the task may use is parked or stopped.

    A session is stored in its account's own directory, so a task stays with the account of its session. Otherwise the
    first open account is chosen: the user's own login, then the order of the settings file.
    """
    if not names:
        return AccountChoice(account=None)  # its agent has no logins
    if bound is not None and bound in names:
        return None if bound in shut else AccountChoice(account=bound)
    if bound is not None and bound == named:
        return AccountChoice(account=bound)  # the account is gone, so waiting does not help: the launch reports that
    open_ones = [name for name in choosable if name not in shut]
    if not open_ones:
        return None if choosable else AccountChoice(account=None, left=bound)
    return AccountChoice(account=open_ones[0], left=bound)
