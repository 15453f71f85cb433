"""Mass deaths: many agents that die at once. One alert is raised, all tasks are held, and no retry budget is spent."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.dispatch.holds import Scope
from holdfast.core.dispatch.mass_death import (
    DEATHS,
    Death,
    deaths_in_window,
    is_mass,
    may_become_mass_death,
    start_fleet_hold,
)
from holdfast.core.model import Task
from holdfast.core.runs.outcome import REBOOTED, Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.runs.policy import PolicyAction, decide
from holdfast.store.port.dispatch import MASS_DEATH_ALERT
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context

CHECK_EVERY = 0.25  # seconds between two checks for other deaths


def is_death(verdict: Verdict, end: ProcessEnd) -> bool:
    """True if the agent died although no stop was requested and the machine was not restarted."""
    if verdict.outcome in DEATHS:
        return True
    return verdict.outcome is Outcome.LOST and end.cause is Cause.KEEPER_DIED and end.detail != REBOOTED


def record_death(context: Context, tx: Transaction, task: Task, run_id: str, at: float | None) -> None:
    """Record a death, in the transaction that records the end of the run. Many deaths within a moment are one problem
    with one alert."""
    rules, now = context.settings.holds, context.clock()
    if rules.deaths == 0:
        return
    at = now.wall if at is None else min(at, now.wall)
    tx.holds.record_death(run_id, task.id, at, now)
    together = deaths_in_window(tx.holds.deaths_around(at, rules.death_window), at, rules.death_window)
    dead, alive, ran = _count_tasks(context, tx, together)
    if any(death.is_mass for death in together) or is_mass(dead, ran, rules):
        _record_mass_death(context, tx, together, alive)


def _count_tasks(context: Context, tx: Transaction, deaths: Sequence[Death]) -> tuple[int, int, int]:
    """Return three numbers of tasks: those whose agents died, those whose agents live, and all that had an agent
    meanwhile. Tasks are counted, not agents, because a restarted agent is not a second death."""
    dead = {death.task_id for death in deaths}
    alive, ended = tx.holds.ran(list(context.ports.agents), deaths[0].at)
    return len(dead), len(alive - dead), len(alive | ended | dead)


def _record_mass_death(context: Context, tx: Transaction, dead: Sequence[Death], alive: int) -> None:
    now, rules = context.clock(), context.settings.holds
    held = next((hold for hold in tx.holds.all() if hold.scope is Scope.FLEET), None)
    is_new = not any(death.is_mass for death in dead)
    news = [death.run_id for death in dead if not death.is_mass]
    tx.holds.mark_mass_death(news, now)
    tx.workers.forgive_crashes(news, now)
    if (held is not None and held.is_held) or not is_new:
        return  # part of the same mass death; an operator may have released the hold since
    reason = f"{len(dead)} agents died within {rules.death_window:g} s, {alive} are alive"
    hold = start_fleet_hold(held, reason, rules, now, context.jitter())
    tx.holds.keep(hold, now)
    tx.events.raise_alert(
        MASS_DEATH_ALERT,
        f"{reason[0].upper()}{reason[1:]}: something kills processes on this machine (low memory, a service manager, a "
        "person). Nothing new starts. No retry budget is spent."
        + (f" It is mass death number {hold.failures} within a day." if hold.failures > 1 else ""),
        "See `dmesg` and `journalctl` for what killed them. "
        + (
            "Tasks no longer start by themselves: run fewer agents (`agents` in your settings), or limit their memory "
            "(`limits.memory`), then `holdfast dispatch release`."
            if hold.needs_operator
            else "After a while one task starts as a probe. `holdfast dispatch release` lets all tasks start now."
        ),
        now,
    )


def seconds_until_failure_decided(context: Context, tx: Transaction, task: Task, run_id: str) -> float:
    """Return the seconds until it is known whether a death that would fail its task is part of a mass death. 0: that is
    known now."""
    if tx.holds.death(run_id) is None:
        return 0.0
    verdict, ledger = tx.runs.verdict(run_id), tx.tasks.ledger(task)
    if decide(verdict, ledger, context.limits, context.clock()).action is not PolicyAction.FAIL:
        return 0.0
    return seconds_until_decided(context, tx, run_id)


def is_mass_death(tx: Transaction, run_id: str | None) -> bool:
    found = None if run_id is None else tx.holds.death(run_id)
    return found is not None and found[0].is_mass


def seconds_until_decided(context: Context, tx: Transaction, run_id: str) -> float:
    """Return the seconds for which other agents may still die with this run. 0: this run's end is not a death, or it is
    known whether it is part of a mass death."""
    rules, now, found = context.settings.holds, context.clock(), tx.holds.death(run_id)
    if found is None or found[0].is_mass or rules.deaths == 0:
        return 0.0
    death, noted = found
    if noted.boot_id != now.boot_id:
        # Agents that could have died with it are dead. And a clock that was set back would not count the seconds.
        return 0.0
    together = deaths_in_window(tx.holds.deaths_around(death.at, rules.death_window), death.at, rules.death_window)
    dead, alive, ran = _count_tasks(context, tx, together)
    if not may_become_mass_death(dead, alive, ran, rules):
        return 0.0
    return max(0.0, rules.death_window - now.since(noted))
