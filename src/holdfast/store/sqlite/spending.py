"""The SQLite side of `UsageRows` in store/port/dispatch.py: used money and tokens, by task, label and time."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.dispatch.spending import usage_since, usage_to_used
from holdfast.core.dispatch.spending_caps import (
    CLOCK_WAS_SET_BACK,
    DAY,
    SharedCap,
    SpendingCap,
    UsageEntry,
    UsedSpending,
    format_labels,
)
from holdfast.core.model import Event, Level, Task
from holdfast.core.runs.outcome import RunUsage
from holdfast.store.port.dispatch import SpentBudget, budget_alert
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents


class SqliteSpending:
    """The SQLite adapter of `UsageRows`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "spending")
        self._families = Statements(connection, "subtasks")
        self._events = events

    def record(self, task: Task, run_id: str, told: RunUsage, session_id: str | None, now: Instant) -> bool:
        news = told if session_id is None else usage_since(told, self.of_session(task.id, session_id))
        labels, root = sorted(format_labels(task.spec.labels)), self.root_of(task)
        is_new = self._sql.change(
            "record",
            run_id=run_id,
            task_id=task.id,
            generation=task.generation,
            root_id=root,
            root_generation=task.generation if root == task.id else self._sql.value("generation", id=root),
            session_id=session_id,
            labels=rows.encode(labels),
            input=news.input,
            output=news.output,
            cost_usd=news.cost_usd,
            wall=now.wall,
            boottime=now.boottime,
            boot_id=now.boot_id,
        )
        if not is_new:
            return False
        faults.tx("usage.record")
        used = usage_to_used(news)
        for label in labels:
            self._sql.change("add_to_label", label=label, tokens=used.tokens, cost_usd=used.usd, unpriced=used.unpriced)
            faults.tx("usage.label")
        return True

    def record_crossed_caps(self, run_id: str, keys: Sequence[str]) -> None:
        self._sql.change("crosses", run_id=run_id, crossed=rows.encode(list(keys)))
        faults.tx("usage.crosses")

    def crossed(self, run_id: str) -> Sequence[str]:
        found = self._sql.value("crossed", run_id=run_id)
        return () if found is None else tuple(rows.decode(found))

    def root_of(self, task: Task) -> str:
        if task.spec.parent_id is None:
            return task.id
        [line] = self._families.rows("line", id=task.id)
        return str(line["id"])

    def of_task(self, task: Task) -> UsedSpending:
        row = self._sql.row("of_task", task_id=task.id, generation=task.generation)
        return UsedSpending() if row is None else UsedSpending(**row)

    def of_runs_after(self, task: Task, number: int) -> UsedSpending:
        row = self._sql.row("of_runs_after", task_id=task.id, generation=task.generation, number=number)
        return UsedSpending() if row is None else UsedSpending(**row)

    def of_session(self, task_id: str, session_id: str) -> RunUsage:
        row = self._sql.row("of_session", task_id=task_id, session_id=session_id)
        return RunUsage() if row is None else RunUsage(**row)

    def last_day(self, now: Instant) -> Sequence[UsageEntry]:
        found = self._sql.rows(
            "lately",
            boot_id=now.boot_id,
            boottime=now.boottime,
            wall=now.wall,
            window=DAY,
            tolerance=CLOCK_WAS_SET_BACK,
        )
        return [_entry(row) for row in found]

    def total_of(self, label: str) -> UsedSpending:
        row = self._sql.row("total_of_label", label=label)
        return UsedSpending() if row is None else UsedSpending(**row)

    # -- episodes ------------------------------------------------------------------------------------------------

    def spent(self) -> Sequence[SpentBudget]:
        return [SpentBudget(**row) for row in self._sql.rows("spent")]

    def begin(self, allowance: SharedCap, used: UsedSpending, until: float | None, now: Instant) -> None:
        words = allowance.cap.describe_exceeded(used)
        reason = f"{allowance.name} is spent ({words})"
        is_new = allowance.key not in [found.key for found in self.spent()]
        self._sql.change("begin", key=allowance.key, label=allowance.label, reason=reason, until=until, at=now.wall)
        faults.tx("budget.begin")
        if not is_new:
            return
        whom = "No task" if allowance.label is None else f"No task with the label {allowance.label}"
        data = {"key": allowance.key, "label": allowance.label, "until": until, "usd": used.usd, "tokens": used.tokens}
        self._events.emit(
            Event(
                kind="budget.spent",
                level=Level.WARNING,
                component="budgets",
                message=f"{reason[0].upper()}{reason[1:]}. {whom} starts for now; running agents continue.",
                reason=reason,
                data=data,
            ),
            now,
        )
        self._events.raise_alert(
            budget_alert(allowance.key),
            f"{reason[0].upper()}{reason[1:]}: {whom[0].lower()}{whom[1:]} starts.",
            f"{'They continue by themselves as the hours pass; or raise' if allowance.is_sliding else 'Raise'} "
            f"`{_setting(allowance)}` in your config.",
            now,
            level=Level.WARNING,
        )

    def end(self, key: str, why: str, now: Instant) -> None:
        if self._sql.change("end", key=key) == 0:
            return
        faults.tx("budget.end")
        event = Event(
            kind="budget.available",
            component="budgets",
            message=f"The budget '{key}' is available again: {why}. Tasks that wait for it may start.",
            reason=why,
            data={"key": key},
        )
        self._events.emit(event, now)
        self._events.close_alert(budget_alert(key), why, now)

    # -- operators -----------------------------------------------------------------------------------------------

    def change_cap(self, task_id: str, cap: SpendingCap, by: str, now: Instant, *, is_root: bool = False) -> None:
        found = self._sql.value("settings", id=task_id)
        if found is None:
            raise NotFound(f"Task not found: {task_id}")
        settings = rows.decode(found)
        budget = settings.get("budget", {})
        was = SpendingCap(usd=budget.get("usd"), tokens=budget.get("tokens"))
        budget |= {} if cap.usd is None else {"usd": cap.usd}
        budget |= {} if cap.tokens is None else {"tokens": cap.tokens}
        settings["budget"] = budget
        if self._sql.change("set_settings", id=task_id, settings=rows.encode(settings), is_root=int(is_root)) == 0:
            raise Conflict(f"Task {task_id} is not paused; its budget was not changed.")
        faults.tx("budget.raise")
        words = [f"{was.usd_text} → {cap.usd_text}"] if cap.usd is not None else []
        words += [f"{was.tokens_text} → {cap.tokens_text}"] if cap.tokens is not None else []
        self._events.emit(
            Event(
                kind="budget.raised",
                component="budgets",
                task_id=task_id,
                message=f"The budget of task {task_id} was changed by {by}: {', '.join(words)}.",
                reason=f"changed by {by}",
                data={"by": by, "usd": cap.usd, "tokens": cap.tokens},
            ),
            now,
        )


def _setting(allowance: SharedCap) -> str:
    if allowance.label is None:
        return "budget.day_usd" if allowance.cap.usd is not None else "budget.day_tokens"
    return f'[budget.labels."{allowance.label}"]'


@stored_data_errors
def _entry(row: Row) -> UsageEntry:
    cost = row["cost_usd"]
    return UsageEntry(
        at=Instant(wall=row["wall"], boottime=row["boottime"], boot_id=row["boot_id"]),
        used=UsedSpending(usd=cost or 0.0, tokens=row["tokens"], unpriced=int(cost is None)),
        labels=frozenset(rows.decode(row["labels"])),
    )
