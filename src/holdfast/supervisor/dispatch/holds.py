"""Looks after dispatch that is held back: how probes fare while they run, outages that last too long, accounts that are
near their limit. Everything is in the store: whoever starts anew goes on with it."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.agents.limit_reset import reset_time
from holdfast.core.dispatch import holds as rules_of
from holdfast.core.dispatch.accounts import full_name
from holdfast.core.dispatch.holds import Hold, Progress, Scope, Sight
from holdfast.core.dispatch.mass_death import LONGEST_HOLD
from holdfast.core.health.signs import NearLimit
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.probes import alert_outage

NEAR_WITHOUT_END = 3600.0  # seconds; a warning that does not say until when


class Holding:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._warnings: dict[str, NearLimit] = {}  # run → the newest that is not written down yet
        self._looked_at: dict[str, NearLimit] = {}  # by the last look, which runs in the writer's thread

    def warned(self, run_id: str, warning: NearLimit) -> None:
        """A run's agent says that its account is near a limit."""
        self._warnings[run_id] = warning
        self._context.bell.ring()

    def written(self) -> None:
        """What `look` did is durable. A warning that came meanwhile is for the next look."""
        for run_id, warning in self._looked_at.items():
            if self._warnings.get(run_id) is warning:
                del self._warnings[run_id]

    def look(self, tx: Transaction) -> None:
        self._looked_at = self._warnings.copy()  # agents go on warning while this is written
        for run_id, warning in self._looked_at.items():
            self._slow(tx, run_id, warning)
        for hold in tx.holds.all():
            self._look_at(tx, hold)

    def next_moment(self, tx: Transaction) -> float | None:
        """When to look again."""
        return rules_of.next_moment(tx.holds.all(), self._context.clock())

    def _look_at(self, tx: Transaction, hold: Hold) -> None:
        now, context = self._context.clock(), self._context
        if hold.scope is Scope.NEAR:
            if not hold.is_waiting(now):
                tx.holds.release(hold.scope, hold.name, "its limit was to begin anew by now", now)
        elif hold.is_probed():
            self._look_at_probe(tx, hold)
        elif rules_of.is_given_up(hold, context.limits.outage, now):
            tx.holds.pause_waiting(hold.name, f"the provider {hold.name} stayed away; last: {hold.reason}", now)
            alert_outage(tx, hold.name, hold.reason, now)
            tx.holds.keep(rules_of.given_up(hold, now), now)

    def _look_at_probe(self, tx: Transaction, hold: Hold) -> None:
        assert hold.probe is not None
        context, now, rules = self._context, self._context.clock(), self._context.settings.holds
        task_id = hold.probe.task_id
        match rules_of.judge_probe(hold, self._sight(tx, task_id), rules, now):
            case Progress.THROUGH:
                tx.holds.release(hold.scope, hold.name, f"the agent of task {task_id} got through", now)
            case Progress.TOO_LONG if hold.scope is Scope.ACCOUNT:
                tx.holds.keep(replace(hold, probe=None), now)
            case Progress.TOO_LONG:
                first = rules.death_hold if hold.scope is Scope.FLEET else rules.hold
                longest = LONGEST_HOLD if hold.scope is Scope.FLEET else rules.longest
                tx.holds.keep(rules_of.held_again(hold, first, max(first, longest), now, context.jitter()), now)

    def _sight(self, tx: Transaction, task_id: str) -> Sight:
        run = tx.runs.open_run(task_id)
        return Sight() if run is None else self._context.services.health.sight(run.id)

    def _slow(self, tx: Transaction, run_id: str, warning: NearLimit) -> None:
        """Once per episode. A later warning that knows of a later end prolongs it."""
        now, context = self._context.clock(), self._context
        under = tx.runs.under(run_id)
        if under is None or context.settings.holds.near_starts == 0:
            return
        account = full_name(*under)
        until = None if warning.reset is None else reset_time(warning.reset, now.wall, None)
        if until is None or until <= now.wall:
            until = now.wall + NEAR_WITHOUT_END
        used = "" if warning.used is None else f"{100 * warning.used:.0f} % are used"
        reason = ", ".join(word for word in (used, warning.scope.replace("_", " ")) if word) or "its provider says so"
        before = next((hold for hold in tx.holds.all() if hold.scope is Scope.NEAR and hold.name == account), None)
        if before is None or not before.is_waiting(now):
            tx.holds.keep(rules_of.near(account, until, reason, now), now)
        elif before.until != until or before.reason != reason:
            tx.holds.keep(replace(before, until=until, decided=now.wall, reason=reason), now)
