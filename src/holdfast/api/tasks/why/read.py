"""Readers of wait reasons: for a list once per refresh, for one task on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from holdfast.api.fleet.rows import rows_of
from holdfast.api.tasks.why.circumstances import Circumstances, Test, Turn, candidate_of
from holdfast.api.tasks.why.reason import Candidate, SupervisorFacts, WaitCause, WaitKind, WaitReason
from holdfast.api.tasks.why.text import held_text
from holdfast.base.errors import NotFound

if TYPE_CHECKING:
    from holdfast.api.fleet.models import FleetRow, HoldRow
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import BudgetRow, UnmetNeed
    from holdfast.api.tasks.why.activity import Activity
    from holdfast.core.dispatch.accounts import ClosedAccount
    from holdfast.core.dispatch.workers import Worker

SETTINGS_HOLD = 5.0  # seconds for which settings that were read are good enough


class CircumstancesReader:
    """A reader of circumstances, for repeated use. Settings are read at most every few seconds."""

    def __init__(self) -> None:
        self._read_at = 0.0
        self._seen: tuple[object, ...] = ()
        self._tests: tuple[Test, ...] = ()
        self._resumes = True
        self._lanes: tuple[Worker, ...] = ()

    def look(
        self,
        queries: Queries,
        queue: Sequence[Turn],
        running: Mapping[str, FleetRow],
        now: float,
        *,
        activities: Mapping[str, Activity],
        with_settings: bool = True,
    ) -> Circumstances:
        """Return the circumstances of a list of tasks. `with_settings`: False if no task depends on the settings."""
        return replace(
            self._look(queries, now, with_settings=with_settings),
            alerts={str(row["task"]): int(row["n"]) for row in queries.view("alerts_by_task")},
            queue=queue,
            checkouts={row["repo_id"]: row["id"] for row in running.values() if row["strategy"] == "none"},
            at_work=len(running),
            activities=activities,
        )

    def look_at(self, queries: Queries, row: FleetRow, now: float, *, in_line: bool = True) -> Circumstances:
        """Return the circumstances of one task. `in_line`: include its position in the queue, which is counted."""
        found = self._look(queries, now)
        if row["state"] != "queued":
            return found
        users = [str(other["id"]) for other in queries.view("in_its_checkout", id=row["id"])]
        found = replace(found, checkouts={row["repo_id"]: users[0]} if users else {})
        if not in_line:
            return found
        counts = {str(each["state"]): int(each["n"]) for each in queries.view("living_counts")}
        return replace(found, ahead=queries.ahead_of(row["id"]), at_work=counts.get("running", 0))

    def _look(self, queries: Queries, now: float, *, with_settings: bool = True) -> Circumstances:
        host = _host(queries)
        seen = tuple(queries.view(name) for name in ("accounts", "spent_budgets", "holds", "full_repos"))
        if seen != self._seen or not 0 <= now - self._read_at < SETTINGS_HOLD:
            self._seen, self._read_at = seen, now
            self._tests = read_tests(queries)
            if with_settings or (host is not None and host.agents == 0):
                self._resumes, self._lanes = _read_settings()
        return Circumstances(
            supervisor=host,
            tests=self._tests,
            resumes=self._resumes,
            workers={row["name"]: row for row in queries.worker_states()},
            lanes=self._lanes,
        )


def _host(queries: Queries) -> SupervisorFacts | None:
    found = queries.supervisor()
    return None if found is None else SupervisorFacts(found["pid"], found["agents"], found["held"])


def _read_settings() -> tuple[bool, tuple[Worker, ...]]:
    """Return two values: True if paused tasks resume by themselves, and the workers if tasks can run only on workers
    (else empty)."""
    from holdfast import config

    settings = config.load_valid_values()
    lanes: tuple[Worker, ...] = ()
    if settings["agents"] == 0 and settings.workers:
        from holdfast.config.retry_budgets import workers_from_settings

        lanes = tuple(workers_from_settings(settings).workers)
    return bool(settings["resume.auto"]), lanes


def read_tests(queries: Queries) -> tuple[Test, ...]:
    """Return one test each for accounts, budgets, holds and full file systems, but only if any of that kind exists.

    The module of a test is imported only if the test is needed.
    """
    found: list[Test] = []
    if queries.view("accounts"):
        found.append(_test_accounts(queries))
    if queries.view("spent_budgets"):
        found.append(_test_budgets(queries))
    if queries.view("holds"):
        found.append(_test_holds(queries))
    if full := {row["repo"]: row["message"] for row in queries.view("full_repos")}:
        found.append(partial(_test_repo, full))
    return tuple(found)


def _test_repo(full: Mapping[str, str], task: Candidate) -> WaitReason | None:
    """Return the wait for space on the file system of the task's repository."""
    words = full.get(task.repo)
    return None if words is None else WaitReason(kind=WaitKind.PRESSURE, text=words.rpartition(": ")[0])


def _test_accounts(queries: Queries) -> Test:
    from holdfast.api.fleet.accounts import find_missing_accounts

    missing = find_missing_accounts(queries)

    def test(task: Candidate) -> WaitReason | None:
        shut = missing(task.agent, task.account)
        if not shut:
            return None
        stopped = [account for account in shut if account.until is None]
        ends = [account.until for account in shut if account.until is not None]
        return WaitReason(
            kind=WaitKind.ACCOUNT,
            name=task.agent,
            causes=tuple(map(cause_of_account, shut)),
            until=min(ends, default=None),
            command=f"holdfast accounts resume {(stopped or shut)[0].full_name}",
            needs_person=not ends,
        )

    return test


def cause_of_account(account: ClosedAccount) -> WaitCause:
    state = "stopped" if account.until is None else "parked"
    return WaitCause(name=account.full_name, state=state, reason=account.reason, since=account.at, until=account.until)


def _test_budgets(queries: Queries) -> Test:
    from holdfast.api.tasks.spending import counts_for_labels

    rows = queries.spent_budgets()

    def test(task: Candidate) -> WaitReason | None:
        found = [row for row in rows if counts_for_labels(row, task.labels)]
        if not found:
            return None
        return WaitReason(
            kind=WaitKind.BUDGET,
            causes=tuple(
                WaitCause(name=row["key"], reason=row["reason"], since=row["at"], until=row["until"]) for row in found
            ),
            until=max((row["until"] for row in found if row["until"] is not None), default=None),
            needs_person=any(row["until"] is None for row in found),
        )

    return test


def _test_holds(queries: Queries) -> Test:
    from holdfast.api.fleet.dispatch import delays_task, list_holds

    rows = list_holds(queries)

    def test(task: Candidate) -> WaitReason | None:
        found = [row for row in rows if delays_task(row, task.agent, task.account, task.provider, task.id)]
        return _hold_wait(min(found, key=lambda row: row["until"] is not None)) if found else None

    return test


def _hold_wait(row: HoldRow) -> WaitReason:
    cause = WaitCause(name=row["hold"], reason=row["reason"], since=row["since"], until=row["until"])
    return WaitReason(
        kind=WaitKind.HOLD,
        name=row["name"],
        causes=(cause,),
        tasks=() if row["probe"] is None else (row["probe"],),
        until=row["until"],
        command=f"holdfast dispatch release {row['hold']}",
        needs_person=row["until"] is None,
    )


def build_held_clause(queries: Queries, pressure: str | None) -> Callable[[Candidate, float | None], str | None]:
    """Return (queued task, its `not_before`) → the field `held` of `ps`: why the task is not started.

    Everything is read once.
    """
    tests, now = read_tests(queries), time.time()

    def held(task: Candidate, not_before: float | None) -> str | None:
        if pressure and (not_before or 0) <= now:
            return pressure
        found = next((reason for test in tests if (reason := test(task)) is not None), None)
        return None if found is None else held_text(found, now)

    return held


def depends_on_settings(row: FleetRow) -> bool:
    """True if the settings decide whether a paused task resumes by itself."""
    return row["state"] == "paused" and row["resume_after"] is not None and row["pause_reason"] != "operator"


def read_waits(
    queries: Queries, task_id: str, looker: CircumstancesReader | None = None, *, in_line: bool = True
) -> list[WaitReason]:
    """Return why one task waits, read now. Raise NotFound if the store no longer has the task."""
    looker, now = looker or CircumstancesReader(), time.time()
    row = _row_of(queries, task_id)
    around = looker.look_at(queries, row, now, in_line=in_line)
    found = list(around.waits(row, now, in_line=in_line))
    if row["state"] == "paused":
        return [_with_pause_facts(queries, found[0], row), *found[1:]]
    return [_with_unmet(queries, one, task_id, around) if one.kind is WaitKind.DEPENDENCIES else one for one in found]


def _row_of(queries: Queries, task_id: str) -> FleetRow:
    found = rows_of(queries, [task_id])
    if not found:
        raise NotFound(f"Task not found: {task_id}")
    return found[0]


def _with_pause_facts(queries: Queries, reason: WaitReason, row: FleetRow) -> WaitReason:
    """Add the closed account or the spent shared budgets because of which a plain resume is refused."""
    if reason.kind is WaitKind.BUDGET_PAUSE:
        shared = _test_budgets(queries)(candidate_of(row))
        return reason if shared is None else replace(reason, causes=shared.causes)
    if row["pause_reason"] not in ("usage_limit", "rate_limit", "auth", "billing") or not queries.view("accounts"):
        return reason
    from holdfast.api.fleet.accounts import find_closed_account

    runs = queries.view("runs", id=row["id"])
    account = find_closed_account(queries, row["agent"], row["account"] or (runs[-1]["account"] if runs else None))
    if account is None:
        return reason
    command = f"holdfast accounts resume {account.full_name}"
    return replace(reason, causes=(cause_of_account(account),), command=command)


def add_raise_command(reason: WaitReason, task_id: str, budgets: Mapping[str, BudgetRow]) -> WaitReason:
    """Add the command that raises the budget of a paused task, if its own budget or that of its family is spent."""
    if reason.kind is not WaitKind.BUDGET_PAUSE:
        return reason
    for part, flag in (("usd", "--budget-usd X"), ("tokens", "--budget-tokens N")):
        spent = [found for whose in ("task", "family") if (found := budgets.get(f"{whose}_{part}")) is not None]
        if any(found["left"] <= 0 for found in spent):
            force = " --force" if reason.resumes_left == 0 else ""
            return replace(reason, command=f"holdfast resume {task_id} {flag}{force}")
    return reason


def _with_unmet(queries: Queries, reason: WaitReason, task_id: str, around: Circumstances) -> WaitReason:
    """Add the facts about tasks that have to complete first, directly or through others."""
    unmet = queries.unmet_needs(task_id)
    paused = [need["id"] for need in unmet if need["state"] == "paused" and need["resume_after"] is None]
    return replace(
        reason,
        tasks=tuple(paused),
        command=f"holdfast why {paused[0]}" if paused else None,
        needs_person=any(_is_stuck(queries, need, around) for need in unmet),
    )


def _is_stuck(queries: Queries, need: UnmetNeed, around: Circumstances) -> bool:
    """True if a person has to act before a needed task continues."""
    if need["state"] == "paused":
        is_automatic = need["resume_after"] is not None and (around.resumes or need["pause_reason"] == "operator")
        return not is_automatic
    return need["state"] == "queued" and any(
        map(_is_for_person, around.waits(_row_of(queries, need["id"]), time.time(), in_line=False))
    )


def _is_for_person(reason: WaitReason) -> bool:
    """True if a running supervisor does not stay for a task that waits for this reason."""
    return reason.needs_person and reason.kind is not WaitKind.NO_SUPERVISOR


def build_person_test(queries: Queries) -> Callable[[str], bool]:
    """Return a test: True while a queued task waits for something that only a person can fix.

    A supervisor does not stay for such a task (core/dispatch/terms.OperatorBlocks), so `holdfast run` has nothing to
    watch.
    """
    looker = CircumstancesReader()

    def test(task_id: str) -> bool:
        return any(map(_is_for_person, read_waits(queries, task_id, looker, in_line=False)))

    return test


def is_announced(reason: WaitReason) -> bool:
    """True if `add` and `run` print the reason at once, because its end is far away or unknown."""
    return reason.kind in (WaitKind.ACCOUNT, WaitKind.BUDGET) or _is_for_person(reason)
