"""Accounts that are parked or stopped. The settlement of a run parks or stops an account. Time, an operator or a
success opens the account."""

from __future__ import annotations

import time
from collections.abc import Sequence

import apsw

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.dispatch.accounts import AccountPause, ClosedAccount, full_name
from holdfast.core.model import Event, Level, PauseReason, Task
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.retry_budgets import FREE_RESUME_PAUSES
from holdfast.store.port.dispatch import account_alert, limit_alert
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents

_RESET_MOVED_BY = 60.0  # seconds by which a reset time has to move for another event
_PAUSED_BY_ACCOUNT = frozenset({PauseReason.USAGE_LIMIT, PauseReason.RATE_LIMIT, PauseReason.AUTH, PauseReason.BILLING})


@dataclass(frozen=True, kw_only=True, slots=True)
class RunAccount:
    """The account of a run."""

    agent: str
    account: str
    started_at: float | None


class SqliteAccounts:
    """The SQLite adapter of `Accounts`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "accounts")
        self._events = events

    def unavailable(self) -> Sequence[ClosedAccount]:
        return [_account(row) for row in self._sql.rows("all")]

    def update_after_run(
        self, under: RunAccount, task_id: str, outcome: Outcome, parking: AccountPause | None, now: Instant
    ) -> None:
        """Park, stop or open the account after one of its runs ended. This is part of `tasks.settle`."""
        if parking is not None:
            news = ClosedAccount(
                agent=under.agent,
                name=under.account,
                until=parking.until,
                outcome=parking.outcome,
                reason=parking.reason,
                at=now.wall,
                task_id=task_id,
            )
            if self._park_or_stop(news, now) is news:
                self._update_limit_alert(news, parking, now)
        elif outcome is Outcome.COMPLETED:
            self._open_after_success(under, now)

    def open_due(self, now: Instant) -> Sequence[str]:
        over = [account for account in map(_account, self._sql.rows("all")) if not account.holds(now)]
        for account in over:
            self._open(account, "its time has come", now)
        return [account.full_name for account in over]

    def resume(self, agent: str, name: str, by: str, now: Instant) -> Sequence[str]:
        account = self._get(agent, name)
        if account is None:
            raise Conflict(f"The account {full_name(agent, name)} is neither parked nor stopped; nothing was changed.")
        self._open(account, f"opened by {by}", now)
        for_people = []
        for row in self._sql.rows("paused_under", agent=agent, account=name):
            if PauseReason(row["pause_reason"]) in FREE_RESUME_PAUSES:
                for_people.append(str(row["id"]))
            else:
                self._sql.change("wait_no_longer", id=row["id"], now=now.wall)
                faults.tx("account.wait_no_longer")
        return for_people

    def account_blocking(self, task: Task, now: Instant) -> ClosedAccount | None:
        if task.pause_reason not in _PAUSED_BY_ACCOUNT:
            return None
        name = task.account or self._sql.value("of_task", task_id=task.id, agent=task.spec.agent)
        account = None if name is None else self._get(task.spec.agent, str(name))
        return account if account is not None and account.holds(now) else None

    # -- pieces --------------------------------------------------------------------------------------------------

    def _get(self, agent: str, name: str) -> ClosedAccount | None:
        row = self._sql.row("get", agent=agent, account=name)
        return _account(row) if row else None

    def _park_or_stop(self, news: ClosedAccount, now: Instant) -> ClosedAccount:
        """Park or stop the account. Return the record that applies: the new one, or an earlier longer pause."""
        before = self._get(news.agent, news.name)
        if before is not None and not before.holds(now):
            before = None
        stands = news if before is None else before.merge(news)
        self._sql.change(
            "shut",
            agent=stands.agent,
            account=stands.name,
            until=stands.until,
            outcome=str(stands.outcome),
            reason=stands.reason,
            task_id=stands.task_id,
            at=stands.at,
        )
        faults.tx("account.shut")
        if stands.until is None:
            self._alert(stands, now)
        if before is None or _differs(before, stands):
            kind = "account.stopped" if stands.until is None else "account.parked"
            how = kind.removeprefix("account.")
            self._events.emit(
                Event(
                    kind=kind,
                    level=Level.WARNING,
                    component="accounts",
                    task_id=news.task_id,
                    message=f"The account {stands.full_name} is {how}: {stands.reason}.",
                    reason=str(stands.outcome),
                    data={"account": stands.full_name, "until": stands.until},
                ),
                now,
            )
        return stands

    def _update_limit_alert(self, account: ClosedAccount, parking: AccountPause, now: Instant) -> None:
        """Raise one alert for a limit without a known end, or close it when the end is known.

        A rate limit mostly ends within the first hold, so its alert is raised only when a probe has met the limit
        again.
        """
        key, name = limit_alert(account.full_name), account.full_name
        if not parking.is_guess or account.until is None:
            self._events.close_alert(key, "the end of its limit is known", now)
        elif parking.is_repeated or parking.outcome is Outcome.USAGE_LIMITED:
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(account.until))
            self._events.raise_alert(
                key,
                f"The account {name} has a limit without a known end: {account.reason}. Its tasks wait, and spend only "
                f"time. Holdfast tries again with one task at {at} UTC.",
                f"Look whether its plan or key has something left. `holdfast accounts resume {name}` tries at once.",
                now,
                level=Level.WARNING,
            )

    def _alert(self, account: ClosedAccount, now: Instant) -> None:
        what = "its bill" if account.outcome is Outcome.BILLING else "its login"
        self._events.raise_alert(
            account_alert(account.full_name),
            f"The account {account.full_name} is stopped: {account.reason}. No task gets it.",
            f"Fix {what}, then type `holdfast accounts resume {account.full_name}`: its tasks continue.",
            now,
        )

    def _open_after_success(self, under: RunAccount, now: Instant) -> None:
        """Open the account after a completed run. A run that began before the account was parked or stopped does not
        open it, because it proves nothing about the account now."""
        account = self._get(under.agent, under.account)
        if account is not None and (under.started_at is None or under.started_at <= account.at):
            return
        if account is not None:
            self._open(account, "a run under it completed", now)
        for key in (account_alert, limit_alert):
            self._events.close_alert(key(full_name(under.agent, under.account)), "a completed run", now)

    def _open(self, account: ClosedAccount, why: str, now: Instant) -> None:
        self._sql.change("open", agent=account.agent, account=account.name)
        faults.tx("account.open")
        self._events.emit(
            Event(
                kind="account.opened",
                component="accounts",
                message=f"The account {account.full_name} is open again: {why}.",
                reason=why,
                data={"account": account.full_name},
            ),
            now,
        )


def _differs(before: ClosedAccount, after: ClosedAccount) -> bool:
    if before.until is None or after.until is None:
        return before.until is not after.until
    return abs(before.until - after.until) > _RESET_MOVED_BY


@stored_data_errors
def _account(row: Row) -> ClosedAccount:
    return ClosedAccount(
        agent=row["agent"],
        name=row["name"],
        until=row["until"],
        outcome=Outcome(row["outcome"]),
        reason=row["reason"],
        at=row["at"],
        task_id=row["task_id"],
    )
