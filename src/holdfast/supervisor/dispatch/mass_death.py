"""Many agents that die at once: told once, everything held back, nobody's budget spent."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.dispatch.holds import Scope
from holdfast.core.dispatch.mass_death import DEATHS, Death, after_mass, among, is_mass, may_become_mass
from holdfast.core.model import Task
from holdfast.core.runs.outcome import REBOOTED, Cause, Outcome, ProcessEnd, Verdict
from holdfast.core.runs.policy import Action, decide
from holdfast.store.port.dispatch import MASS_DEATH_ALERT
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context

OTHERS_DIE_WITHIN = 0.25  # seconds between two looks at who else died


def is_death(verdict: Verdict, end: ProcessEnd) -> bool:
    """Nobody asked for it, and neither did the machine's own restart."""
    if verdict.outcome in DEATHS:
        return True
    return verdict.outcome is Outcome.LOST and end.cause is Cause.KEEPER_DIED and end.detail != REBOOTED


def note_death(context: Context, tx: Transaction, task: Task, run_id: str, at: float | None) -> None:
    """In the transaction that records its end. Many of them within a moment are one trouble, which is told once."""
    rules, now = context.settings.holds, context.clock()
    if rules.deaths == 0:
        return
    at = now.wall if at is None else min(at, now.wall)
    tx.holds.died(run_id, task.id, at, now)
    together = among(tx.holds.deaths_around(at, rules.death_window), at, rules.death_window)
    dead, alive, ran = _who(context, tx, together)
    if any(death.is_mass for death in together) or is_mass(dead, ran, rules):
        _tell_mass_death(context, tx, together, alive)


def _who(context: Context, tx: Transaction, deaths: Sequence[Death]) -> tuple[int, int, int]:
    """Whose agents died, live, and ran at all meanwhile: tasks, for one that was started again is no second one."""
    dead = {death.task_id for death in deaths}
    alive, ended = tx.holds.ran(list(context.ports.agents), deaths[0].at)
    return len(dead), len(alive - dead), len(alive | ended | dead)


def _tell_mass_death(context: Context, tx: Transaction, dead: Sequence[Death], alive: int) -> None:
    now, rules = context.clock(), context.settings.holds
    held = next((hold for hold in tx.holds.all() if hold.scope is Scope.FLEET), None)
    is_new = not any(death.is_mass for death in dead)
    news = [death.run_id for death in dead if not death.is_mass]
    tx.holds.of_many(news, now)
    tx.workers.pardon(news, now)
    if (held is not None and held.is_held) or not is_new:
        return  # of the same storm; an operator may have released it since
    reason = f"{len(dead)} agents died within {rules.death_window:g} s, {alive} live on"
    hold = after_mass(held, reason, rules, now, context.jitter())
    tx.holds.keep(hold, now)
    tx.events.raise_alert(
        MASS_DEATH_ALERT,
        f"{reason[0].upper()}{reason[1:]}: something ends processes of this machine (its memory, its service manager, "
        "somebody). Nothing new starts; nobody's budget is spent."
        + (f" It is mass death number {hold.failures} within a day." if hold.failures > 1 else ""),
        "See `dmesg` and `journalctl` for what killed them. "
        + (
            "Nothing goes on by itself any more: run fewer agents (`agents` in your settings), or limit their memory "
            "(`limits.memory`), then `holdfast dispatch release`."
            if hold.for_operator
            else "In a while one task goes first by itself; `holdfast dispatch release` lets all start now."
        ),
        now,
    )


def fails_in(context: Context, tx: Transaction, task: Task, run_id: str) -> float:
    """Seconds for which it is open whether a death that fails its task was one of many. 0: it is known."""
    if tx.holds.death(run_id) is None:
        return 0.0
    verdict, ledger = tx.runs.verdict(run_id), tx.tasks.ledger(task)
    if decide(verdict, ledger, context.limits, context.clock()).action is not Action.FAIL:
        return 0.0
    return open_for(context, tx, run_id)


def is_of_many(tx: Transaction, run_id: str | None) -> bool:
    found = None if run_id is None else tx.holds.death(run_id)
    return found is not None and found[0].is_mass


def open_for(context: Context, tx: Transaction, run_id: str) -> float:
    """Seconds for which others may still die with it. 0: it is no death, or it is known whether it was one of many."""
    rules, now, found = context.settings.holds, context.clock(), tx.holds.death(run_id)
    if found is None or found[0].is_mass or rules.deaths == 0:
        return 0.0
    death, noted = found
    if noted.boot_id != now.boot_id:
        return 0.0  # who could have died with it is dead; and a clock that was set back would count no second
    together = among(tx.holds.deaths_around(death.at, rules.death_window), death.at, rules.death_window)
    dead, alive, ran = _who(context, tx, together)
    if not may_become_mass(dead, alive, ran, rules):
        return 0.0
    return max(0.0, rules.death_window - now.since(noted))
