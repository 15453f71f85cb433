"""Whether a queued task waits for what only a person can mend: then there is nothing to watch (`holdfast run`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast import config
from holdfast.api.fleet.accounts import waits_for_operator
from holdfast.api.fleet.dispatch import waits_for_release
from holdfast.api.fleet.workers import nobody_comes
from holdfast.api.queries import Queries
from holdfast.api.tasks.spending import waits_for_raise

Row = dict[str, Any]


def for_people(queries: Queries) -> Callable[[Row], bool]:
    """As the supervisor has it, which does not stay for such a task (core/dispatch.ForOperators)."""
    without_worker, is_automatic = nobody_comes(queries), bool(config.best_effort()["resume.auto"])

    def is_stuck(task: Row) -> bool:
        return (
            waits_for_operator(queries, task)
            or waits_for_raise(queries, task)
            or waits_for_release(queries, task)
            or without_worker(task)
        )

    def answer(task: Row) -> bool:
        if task["state"] != "queued":
            return False
        return is_stuck(task) or any(map(needs_people, queries.view("unmet_needs", id=task["id"])))

    def needs_people(needed: Row) -> bool:
        if needed["state"] == "paused":
            goes_on = needed["resume_after"] is not None and (is_automatic or needed["pause_reason"] == "operator")
            return not goes_on
        return needed["state"] == "queued" and is_stuck(queries.state(needed["id"]))

    return answer


def paused_need(queries: Queries, task: Row) -> str | None:
    """Whom a queued task waits for, if that one is paused until somebody says otherwise."""
    for needed in queries.view("unmet_needs", id=task["id"]) if task["state"] == "queued" else ():
        if needed["state"] == "paused" and needed["resume_after"] is None:
            return f"It waits for task {needed['id']}, which is paused: `holdfast why {needed['id']}`."
    return None
