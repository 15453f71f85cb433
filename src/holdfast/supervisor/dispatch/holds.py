"""The upkeep of holds: running probes, outages that last too long, and accounts that are near their limit.

All holds are in the store, so the next supervisor continues with them.
"""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.agents.limit_reset import parse_reset_time
from holdfast.core.dispatch import holds as rules_of
from holdfast.core.dispatch.accounts import full_name
from holdfast.core.dispatch.holds import Hold, ProbeProgress, ProbeSight, Scope
from holdfast.core.dispatch.mass_death import LONGEST_HOLD
from holdfast.core.health.signs import NearLimit
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.dispatch.probes import alert_outage

NEAR_WITHOUT_END = 3600.0  # seconds, for a warning without an end


class HoldUpkeep:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._warnings: dict[str, NearLimit] = {}  # run → the newest warning that is not recorded yet
        self._looked_at: dict[str, NearLimit] = {}  # warnings of the last look, which runs in the writer's thread

    def note_near_limit(self, run_id: str, warning: NearLimit) -> None:
        """Note the warning of a run's agent that its account is near a limit."""
        self._warnings[run_id] = warning
        self._context.bell.ring()

    def written(self) -> None:
        """Forget the warnings that `look` has recorded in the store. A warning that came meanwhile is for the next
        look."""
        for run_id, warning in self._looked_at.items():
            if self._warnings.get(run_id) is warning:
                del self._warnings[run_id]

    def look(self, tx: Transaction) -> None:
        self._looked_at = self._warnings.copy()  # agents may warn while this is written
        for run_id, warning in self._looked_at.items():
            self._hold_near_limit(tx, run_id, warning)
        for hold in tx.holds.all():
            self._update_hold(tx, hold)

    def next_moment(self, tx: Transaction) -> float | None:
        """Return the wall time of the next look at the holds."""
        return rules_of.next_look_at_holds(tx.holds.all(), self._context.clock())

    def _update_hold(self, tx: Transaction, hold: Hold) -> None:
        now, context = self._context.clock(), self._context
        if hold.scope is Scope.NEAR:
            if not hold.is_waiting(now):
                tx.holds.release(hold.scope, hold.name, "its limit should be reset by now", now)
        elif hold.has_running_probe():
            self._judge_probe(tx, hold)
        elif rules_of.is_given_up(hold, context.limits.outage, now):
            tx.holds.pause_waiting(hold.name, f"the provider {hold.name} did not answer (last: {hold.reason})", now)
            alert_outage(tx, hold.name, hold.reason, now)
            tx.holds.keep(rules_of.give_up_provider(hold, now), now)

    def _judge_probe(self, tx: Transaction, hold: Hold) -> None:
        assert hold.probe is not None
        context, now, rules = self._context, self._context.clock(), self._context.settings.holds
        task_id = hold.probe.task_id
        match rules_of.judge_probe(hold, self._probe_sight(tx, task_id), rules, now):
            case ProbeProgress.THROUGH:
                tx.holds.release(hold.scope, hold.name, f"the agent of task {task_id} got through", now)
            case ProbeProgress.TOO_LONG if hold.scope is Scope.ACCOUNT:
                tx.holds.keep(replace(hold, probe=None), now)
            case ProbeProgress.TOO_LONG:
                first = rules.death_hold if hold.scope is Scope.FLEET else rules.hold
                longest = LONGEST_HOLD if hold.scope is Scope.FLEET else rules.longest
                tx.holds.keep(rules_of.extend_hold(hold, first, max(first, longest), now, context.jitter()), now)

    def _probe_sight(self, tx: Transaction, task_id: str) -> ProbeSight:
        run = tx.runs.open_run(task_id)
        return ProbeSight() if run is None else self._context.services.health.probe_sight(run.id)

    def _hold_near_limit(self, tx: Transaction, run_id: str, warning: NearLimit) -> None:
        """Hold an account that is near its limit, once per episode. A later warning that names a later end extends the
        hold."""
        now, context = self._context.clock(), self._context
        under = tx.runs.account_of_run(run_id)
        if under is None or context.settings.holds.near_starts == 0:
            return
        account = full_name(*under)
        until = None if warning.reset is None else parse_reset_time(warning.reset, now.wall, None)
        if until is None or until <= now.wall:
            until = now.wall + NEAR_WITHOUT_END
        used = "" if warning.used is None else f"{100 * warning.used:.0f} % are used"
        reason = ", ".join(word for word in (used, warning.scope.replace("_", " ")) if word) or "its provider says so"
        before = next((hold for hold in tx.holds.all() if hold.scope is Scope.NEAR and hold.name == account), None)
        if before is None or not before.is_waiting(now):
            tx.holds.keep(rules_of.new_near_limit_hold(account, until, reason, now), now)
        elif before.until != until or before.reason != reason:
            tx.holds.keep(replace(before, until=until, decided=now.wall, reason=reason), now)
