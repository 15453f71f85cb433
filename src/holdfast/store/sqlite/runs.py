"""The runs facet: every write is under the task's fence. The module also builds the part of a run's row that comes from
its agent's reports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import apsw

from holdfast.base import faults
from holdfast.base.errors import Conflict, NotFound
from holdfast.base.instant import Instant
from holdfast.core.model import Claim, Event, Level, Report, ReportKind, ReportPosition, Run, StopWhy
from holdfast.core.runs.intervals import AdaptiveTimeout
from holdfast.core.runs.outcome import EXPECTED, Outcome, Verdict, termination_reason
from holdfast.core.workflows.workflow import WORK
from holdfast.store.port.transaction import NO_WORKFLOW_ROLE, AgentReports, Ownership, RunRole
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.accounts import RunAccount
from holdfast.store.sqlite.engine.fence import conflict_on_duplicate, require_owner
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.rows import decode, encode_redacted

_CLAIM_TEXT = {ReportKind.COMPLETE: "it is complete", ReportKind.FAIL: "it failed"}


def first_claim(run: Run, news: AgentReports, now: Instant) -> Claim | None:
    """Return the claimed result that counts: the first one, for ever."""
    if run.claim is not None or not news.claims:
        return run.claim
    first = news.claims[0]
    return Claim(kind=first.kind, message=first.message, at=now)


def find_contradiction(claim: Claim | None, news: AgentReports) -> Report | None:
    """Return a claimed result that differs from the one that counts. A repeated result is not a contradiction."""
    return next((other for other in news.claims if claim is not None and other.kind is not claim.kind), None)


def heard(run: Run, claim: Claim | None, news: AgentReports) -> ReportPosition:
    """Return the run's position in its agent's reports, with these reports added: offset, refused lines, and whether
    there was a contradiction."""
    return replace(
        run.heard,
        offset=news.offset,
        refused=run.heard.refused + news.refused,
        contradicted=run.heard.contradicted or find_contradiction(claim, news) is not None,
    )


def encode_reports(heard: ReportPosition, news: AgentReports, before: str | None, now: Instant) -> str:
    """Return the text of the column `reports`: the offset, and the newest progress for `show` and `why`."""
    progress = decode(before).get("progress") if before else None
    if news.progress is not None:
        progress = {"message": news.progress.message, "percent": news.progress.percent, "at": now.wall}
    return encode_redacted(
        {
            "offset": heard.offset,
            "refused": heard.refused,
            "contradicted": heard.contradicted,
            "progress": progress,
        }
    )


def encode_claim(claim: Claim | None) -> str | None:
    if claim is None:
        return None
    return encode_redacted(
        {
            "kind": str(claim.kind),
            "message": claim.message,
            "at": claim.at.wall,
            "boottime": claim.at.boottime,
            "boot_id": claim.at.boot_id,
        }
    )


def task_reason(run: Run, claim: Claim | None, news: AgentReports) -> str | None:
    """Return the new reason for the running task's row, or None if nothing changed."""
    if claim is not None:
        return describe_claim(claim) if run.claim is None else None
    return f"its agent is at {news.progress}" if news.progress is not None else None


def describe_claim(claim: Claim | Report) -> str:
    return f"its agent reported that {_CLAIM_TEXT[claim.kind]}{': ' if claim.message else ''}{claim.message}"


def report_events(run: Run, claim: Claim | None, news: AgentReports) -> Iterator[Event]:
    """Yield the events about an agent's reports."""

    def told(kind: str, message: str, level: Level = Level.INFO, **more: Any) -> Event:
        message = f"Run {run.id}: {message}."
        return Event(
            kind=kind, message=message, level=level, component="agent", task_id=run.task_id, run_id=run.id, **more
        )

    if news.refused and not run.heard.refused:
        yield told(
            "agent.reports-refused",
            f"a line in its channel is not a report of this run and was ignored ({news.refused_why})",
            Level.WARNING,
            reason=news.refused_why,
            data={"refused": news.refused},
        )
    if news.progress is not None:
        progress = {"message": news.progress.message, "percent": news.progress.percent}
        yield told("agent.progress", f"{news.progress}", data=progress)
    if claim is not None and run.claim is None:
        data = {"kind": str(claim.kind), "message": claim.message, "counts": True}
        yield told("agent.claimed", describe_claim(claim), reason=str(claim.kind), data=data)
    other = find_contradiction(claim, news)
    if claim is not None and other is not None and not run.heard.contradicted:
        data = {"kind": str(other.kind), "message": other.message, "counts": False}
        words = (
            f"{describe_claim(other)}, after it had reported that {_CLAIM_TEXT[claim.kind]}; the first report counts"
        )
        yield told("agent.claimed", words, Level.WARNING, reason=str(other.kind), data=data)


def message_events(kind: str, task_id: str, run_id: str, numbers: Sequence[int], what: str) -> Iterator[Event]:
    """Yield one event for each message that a run was given, or that waits again."""
    for number in sorted(numbers):
        text = f"Message {number} to task {task_id} {what} run {run_id}."
        yield Event(kind=kind, task_id=task_id, run_id=run_id, message=text, data={"message": number})


class SqliteRuns:
    """The SQLite adapter of `Runs`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "runs")
        self._tasks = Statements(connection, "tasks")
        self._messages = Statements(connection, "messages")
        self._events = events

    def intend(
        self,
        ownership: Ownership,
        run_id: str,
        now: Instant,
        allotted: AdaptiveTimeout | None = None,
        account: str | None = None,
        role: RunRole = NO_WORKFLOW_ROLE,
    ) -> Run:
        require_owner(self._tasks, ownership)
        with conflict_on_duplicate(f"Task {ownership.task_id} has a run that is not settled; a second one is refused."):
            self._sql.change(
                "intend",
                id=run_id,
                task_id=ownership.task_id,
                fence=ownership.fence,
                timeout=allotted.seconds if allotted else None,
                timeout_why=allotted.reason if allotted else None,
                account=account,
                agent=role.agent,
                stage=role.stage,
                member=role.member,
                now=now.wall,
            )
        faults.tx("run.intend")
        return self._get(run_id)

    def recent_durations(self, repo_id: str, agent: str, limit: int) -> Sequence[float]:
        found = self._sql.tuples("recent_durations", repo_id=repo_id, agent=agent, limit=limit)
        return [float(seconds) for (seconds,) in found]

    def open_run(self, task_id: str, member: str = "") -> Run | None:
        row = self._sql.row("open", task_id=task_id, member=member)
        return rows.run_from_row(row) if row else None

    def open_runs(self, task_id: str) -> Sequence[Run]:
        return [rows.run_from_row(row) for row in self._sql.rows("open_of_task", task_id=task_id)]

    def has_member_run(self, task_id: str, stage: str, member: str, since: int) -> bool:
        return bool(self._sql.value("has_had", task_id=task_id, stage=stage, member=member, since=since))

    def open_run_ids(self) -> list[str]:
        return [str(row["id"]) for row in self._sql.rows("open_ids")]

    def record_start(self, ownership: Ownership, run_id: str, pid: int, now: Instant, note: str = "") -> None:
        require_owner(self._tasks, ownership)
        if self._sql.change("started", id=run_id, task_id=ownership.task_id, pid=pid, now=now.wall) == 0:
            raise Conflict(f"Run {run_id} is not waiting to start.")
        faults.tx("run.started")
        self._events.emit(
            Event(
                kind="run.started",
                task_id=ownership.task_id,
                run_id=run_id,
                level=Level.WARNING if note else Level.INFO,
                message=f"Run {run_id} started, pid {pid}.{' ' if note else ''}{note}",
                data={"pid": pid, "fence": ownership.fence},
            ),
            now,
        )

    def record_stop_request(
        self, ownership: Ownership, run_id: str, why: StopWhy, now: Instant, reason: str = ""
    ) -> None:
        require_owner(self._tasks, ownership)
        changed = self._sql.change(
            "stopping", id=run_id, task_id=ownership.task_id, why=str(why), reason=reason or None
        )
        if changed == 0:
            changed = self._sql.change(
                "escalate", id=run_id, task_id=ownership.task_id, why=str(why), reason=reason or None
            )
        if changed == 0:
            return  # the run ended meanwhile, or a stronger reason is recorded already
        faults.tx("run.stopping")
        self._events.emit(
            Event(
                kind="run.stopping",
                task_id=ownership.task_id,
                run_id=run_id,
                message=f"Run {run_id} is being stopped ({why}){': ' if reason else ''}{reason}.",
                reason=str(why),
            ),
            now,
        )

    def reported(self, ownership: Ownership, run_id: str, news: AgentReports, now: Instant) -> Run:
        require_owner(self._tasks, ownership)
        row = self._sql.row("get", id=run_id)
        if row is None:
            raise NotFound(f"Run not found: {run_id}")
        run = rows.run_from_row(row)
        claim = first_claim(run, news, now)
        changed = self._sql.change(
            "reported",
            id=run_id,
            task_id=ownership.task_id,
            claim=encode_claim(claim),
            reports=encode_reports(heard(run, claim, news), news, row["reports"], now),
        )
        if changed == 0:
            raise Conflict(f"Run {run_id} has ended; it cannot report any more.")
        faults.tx("run.reported")
        reason = task_reason(run, claim, news)
        if reason is not None:
            self._tasks.change("say", id=ownership.task_id, reason=reason, now=now.wall)
        for event in report_events(run, claim, news):
            self._events.emit(event, now)
        return self._get(run_id)

    def ended(self, ownership: Ownership, run_id: str, verdict: Verdict, now: Instant, at: float | None = None) -> None:
        require_owner(self._tasks, ownership)
        changed = self._sql.change(
            "ended",
            id=run_id,
            task_id=ownership.task_id,
            outcome=str(verdict.outcome),
            reason=verdict.reason,
            resets_at=verdict.resets_at,
            session_id=verdict.session_id,
            error_tail=verdict.error_tail,
            usage=rows.encode_usage(verdict.usage),
            tokens=None if verdict.usage is None else verdict.usage.tokens,
            cost_usd=None if verdict.usage is None else verdict.usage.cost_usd,
            refused=rows.encode_refused(verdict.refused),
            now=now.wall,
            at=now.wall if at is None or not math.isfinite(at) else at,
        )
        if changed == 0:
            raise Conflict(f"Run {run_id} has ended already.")
        faults.tx("run.ended")
        self._take_messages_back(ownership.task_id, run_id, now)
        self._events.close_alerts_of_run(run_id, now)
        unexpected = verdict.outcome not in EXPECTED
        data = {"outcome": str(verdict.outcome), "unexpected": unexpected, "fence": ownership.fence}
        data |= {} if verdict.has_answer else {"answered": False}
        self._events.emit(
            Event(
                kind="run.ended",
                task_id=ownership.task_id,
                run_id=run_id,
                message=f"Run {run_id} ended: {verdict.outcome}.",
                reason=verdict.reason,
                data=data,
            ),
            now,
        )
        self._events.emit(
            Event(
                kind="agent.terminated",
                level=Level.WARNING if unexpected else Level.INFO,
                component="processes",
                task_id=ownership.task_id,
                run_id=run_id,
                message=f"Agent of run {run_id} ended ({verdict.outcome}): {verdict.reason}.",
                reason=verdict.reason,
                data={
                    **data,
                    "reason_word": termination_reason(verdict.outcome),
                    **self._agent_and_stage(run_id),
                },
            ),
            now,
        )

    def _take_messages_back(self, task_id: str, run_id: str, now: Instant) -> None:
        """Let the messages of a run wait again if its agent was never started."""
        taken = [row["number"] for row in self._messages.rows("take_back", task_id=task_id, run_id=run_id)]
        if not taken:
            return
        faults.tx("message.take_back")
        for event in message_events("message.returned", task_id, run_id, taken, "waits again, for it never started:"):
            self._events.emit(event, now)

    def _agent_and_stage(self, run_id: str) -> dict[str, object]:
        row = self._sql.row("get", id=run_id)
        assert row is not None  # just changed, in this transaction
        member = {"member": row["member"]} if row["member"] else {}
        return {"agent": row["agent"], "stage": row["stage"] or WORK, **member}

    def account_of_run(self, run_id: str) -> tuple[str, str] | None:
        row = self._sql.row("get", id=run_id)
        return None if row is None or row["account"] is None else (str(row["agent"]), str(row["account"]))

    def verdict(self, run_id: str) -> Verdict:
        row = self._sql.row("get", id=run_id)
        if row is None or row["outcome"] is None:
            raise Conflict(f"Run {run_id} has not ended.")
        return Verdict(
            outcome=Outcome(row["outcome"]),
            reason=row["reason"],
            resets_at=row["resets_at"],
            session_id=row["session_id"],
            error_tail=row["error_tail"] or "",
            usage=rows.usage(row["usage"], row["cost_usd"]),
            has_answer=self._sql.value("is_unanswered", id=run_id) is None,
            refused=rows.refused(row["refused"]),
        )

    def settle(self, ownership: Ownership, run_id: str, now: Instant) -> RunAccount | None:
        """Settle a run as part of `tasks.settle`, which checks the ownership. Return the account of the run, if it
        had one."""
        found = self._sql.tuples("settled", id=run_id, task_id=ownership.task_id, now=now.wall)
        if not found:
            raise Conflict(f"Run {run_id} cannot be settled: it has not ended, or was settled before.")
        faults.tx("run.settled")
        agent, account, started_at = found[0]
        return None if account is None else RunAccount(agent=agent, account=account, started_at=started_at)

    def _get(self, run_id: str) -> Run:
        row = self._sql.row("get", id=run_id)
        if row is None:
            raise NotFound(f"Run not found: {run_id}")
        return rows.run_from_row(row)
