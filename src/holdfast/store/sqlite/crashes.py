"""The SQLite side of `Crashes` in store/port/history.py: the history of crashes.

The module also raises the alert about a task that crashed too often.
"""

from __future__ import annotations

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.core.model import Event, Level
from holdfast.core.runs.crashes import (
    QUEUED_AGAIN,
    CrashReaction,
    RecoverableWork,
    choose_reaction,
    tail_of_error,
    task_crash_alert_key,
)
from holdfast.core.runs.outcome import Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents


class SqliteCrashes:
    """The SQLite adapter of `Crashes`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "crashes")
        self._events = events

    def after_settle(self, task_id: str, run_id: str, verdict: Verdict, decision: Decision, now: Instant) -> None:
        """Record a crash as part of `tasks.settle`. By then the claim is released and the work is saved, so that the
        record can include both."""
        answer = choose_reaction(verdict.outcome, goes_on=decision.action is PolicyAction.REQUEUE)
        if answer is CrashReaction.IGNORE:
            return
        row = self._sql.row(
            "record",
            run_id=run_id,
            outcome=str(verdict.outcome),
            reason=verdict.reason,
            error_text=tail_of_error(verdict.error_tail),
            restarted=int(answer is CrashReaction.RESTART),
            decision=_describe_answer(answer, decision),
            recent=decision.crashes.count if decision.crashes else 1,
            now=now.wall,
        )
        faults.tx("crash.record")
        if row is not None:
            self._emit_recorded(task_id, run_id, verdict, decision, answer, row, now)

    def alert(self, task_id: str, verdict: Verdict, decision: Decision, is_preserved: bool, now: Instant) -> None:
        """Raise one alert per episode (R-CRASH-06). An operator's retry closes it. `is_preserved`: the workspace
        stays."""
        row = self._sql.row("of_task", task_id=task_id) or {}
        recovered = RecoverableWork(
            branch=row.get("branch"),
            workspace=row.get("workspace") if is_preserved else None,
            salvage=self._sql.value("last_salvage", task_id=task_id),
        )
        recent = f" ({decision.crashes})" if decision.crashes else ""
        by_hand = f"holdfast retry {task_id}"
        self._events.raise_alert(
            task_crash_alert_key(task_id),
            f"Task {task_id} crashed too often and was stopped{recent}; last: {verdict.reason}. Kept: {recovered}.",
            f"Look with `holdfast why {task_id}`; start it again by hand with `{by_hand}`.",
            now,
            task_id=task_id,
            details={
                "reason": verdict.reason,
                "outcome": str(verdict.outcome),
                "error_text": tail_of_error(verdict.error_tail),
                "recovered": {
                    "branch": recovered.branch,
                    "workspace": recovered.workspace,
                    "salvage": recovered.salvage,
                },
                "crashes": decision.crashes.count if decision.crashes else 1,
                "window": decision.crashes.window if decision.crashes else None,
                "restart": by_hand,
            },
        )

    def forget(self, before: float, most: int, limit: int) -> int:
        dropped = self._sql.change("forget", before=before, most=most, limit=limit)
        if dropped:
            faults.tx("crash.forget")
        return dropped

    def _emit_recorded(
        self,
        task_id: str,
        run_id: str,
        verdict: Verdict,
        decision: Decision,
        answer: CrashReaction,
        row: Row,
        now: Instant,
    ) -> None:
        self._events.emit(
            Event(
                kind="crash.recorded",
                level=Level.WARNING,
                component="crashes",
                task_id=task_id,
                run_id=run_id,
                message=f"The agent of task {task_id} crashed: {verdict.reason}. {_describe_answer(answer, decision)}.",
                reason=verdict.reason,
                data={
                    "crash": row["id"],
                    "outcome": str(verdict.outcome),
                    "worker": row["worker"],
                    "workspace": row["workspace"],
                    "claim_released": bool(row["claim_released"]) and row["issue"] is None,
                    "issue": row["issue"],  # freed in the tracker later: `issue.released`
                    "restarted": answer is CrashReaction.RESTART,
                    "recent": decision.crashes.count if decision.crashes else 1,
                },
            ),
            now,
        )


def _describe_answer(answer: CrashReaction, decision: Decision) -> str:
    counted = f" ({decision.crashes})" if decision.crashes else ""
    if answer is CrashReaction.RESTART:
        return f"{QUEUED_AGAIN}{counted}"
    if decision.action is PolicyAction.FAIL:
        return f"It is not started again by itself{counted}"
    return f"It does not continue by itself: {decision.reason}{counted}"
