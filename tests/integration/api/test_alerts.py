"""R-CRASH-06, R-CRASH-10: what an alert's remedy says is done by one word, where one command does it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.fleet import Fleet

from holdfast.api.commands import Commands, pause
from holdfast.api.fleet.alerts import mend
from holdfast.base import clock
from holdfast.base.errors import Conflict, NotFound, Refused
from holdfast.core.dispatch.accounts import AccountPause
from holdfast.core.dispatch.holds import Hold, Scope
from holdfast.core.runs.outcome import Outcome
from holdfast.store.port.transaction import Transaction
from holdfast.store.sqlite.accounts import RunAccount


def alert(key: str, task: str | None = None) -> dict[str, Any]:
    return {"key": key, "task": task, "remedy": "Do `this`."}


def test_what_is_restarted_and_what_needs_a_person(fleet: Fleet) -> None:
    """R-CRASH-06, R-CRASH-10: a task continues from where it is; what cannot be restarted says what to do instead, and
    what is gone says so."""
    home, task = str(fleet.home), fleet.queue("true")
    with fleet.as_its_user():
        commands = Commands(home)
        with pytest.raises(Refused, match=f"Task {task} is queued; there is nothing to restart. Do `this`."):
            mend(home, alert(f"stuck:{task}", task))
        commands.cancel(task, "")
        told = mend(home, alert(f"crash:task:{task}", task))
        assert told.startswith(f"Queued {task} again, from where it stopped. No supervisor is running")
        assert fleet.show(task)["state"] == "queued"
        pause(home, task)
        assert "resumed after a pause (operator) that spends no resume" in mend(
            home, alert(f"task:{task}:budget", task)
        )
        with pytest.raises(NotFound, match="was forgotten meanwhile"):
            mend(home, alert("crash:task:zzz", "zzz"))
        with pytest.raises(NotFound, match="There is no worker 'web'"):
            mend(home, alert("crash:worker:web", task))
        with pytest.raises(NotFound, match="No hold is named 'provider:x'"):
            mend(home, alert("provider:x"))
        assert mend(home, alert("mass-death")) == "Nothing is held back."
        with pytest.raises(Conflict, match="The account claude/default is neither parked nor stopped"):
            mend(home, alert("account:claude/default"))
        with pytest.raises(Refused, match="There is nothing to restart here"):
            mend(home, alert("disk:full"))


def hold(fleet: Fleet, scope: Scope, name: str) -> None:
    """As a supervisor does it whose agents died of it."""
    now = clock.now()
    held = Hold(
        scope=scope, name=name, since=now, until=now.wall + 600, decided=now.wall, reason="529", failures=2, rounds=1
    )
    Commands(str(fleet.home)).write(lambda tx: tx.holds.keep(held, now))


def shut(fleet: Fleet, agent: str, account: str, task: str) -> None:
    """As a supervisor does it when a run ended because of its login."""
    parking = AccountPause(until=None, outcome=Outcome.AUTH, reason="its login is no longer valid")

    def after_run(tx: Transaction) -> None:
        under = RunAccount(agent=agent, account=account, started_at=None)
        tx.accounts.update_after_run(under, task, parking.outcome, parking, clock.now())  # type: ignore[attr-defined]

    Commands(str(fleet.home)).write(after_run)


def test_accounts_providers_and_what_is_held_back_are_let_go(fleet: Fleet) -> None:
    """R-CRASH-06, R-CRASH-10: the alert of each is mended by the command that its remedy names."""
    home, task = str(fleet.home), fleet.queue("true")
    with fleet.as_its_user():
        hold(fleet, Scope.PROVIDER, "acme")
        hold(fleet, Scope.PROVIDER, "other")
        assert mend(home, alert("provider:acme")) == "Released: provider:acme."
        with pytest.raises(NotFound, match="No hold is named 'provider:acme'"):
            mend(home, alert("provider:acme"))
        assert mend(home, alert("mass-death")) == "Released: provider:other."
        shut(fleet, "claude", "work", task)
        [found] = fleet.json("alerts")
        assert found["key"] == "account:claude/work"
        assert mend(home, alert(found["key"])) == "Account claude/work is open again."
        # The account's alert stays until a run works.
        with pytest.raises(NotFound, match="There is no account claude/work"):
            mend(home, alert(found["key"]))
        shut(fleet, "claude", "default", task)
        assert mend(home, alert("account:claude/default")) == "Account claude/default is open again."
        with pytest.raises(Conflict, match="The account claude/default is neither parked nor stopped"):
            mend(home, alert("account:claude/default"))
