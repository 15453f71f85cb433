"""The SQLite side of store/port/trackers.py: which task belongs to which issue of an outside tracker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.model import Event, Level
from holdfast.core.runs.outcome import Outcome
from holdfast.core.states import TaskState
from holdfast.core.tasks.trackers import CRASHES, IssueLink, LinkState, tracker_backoff
from holdfast.store.sqlite.engine.statements import Row, Statements
from holdfast.store.sqlite.events import SqliteEvents

_EVENT_OF = {  # the event kind and level of a move. Moves to other states are steps on the way and have no event
    LinkState.CLAIMED: ("issue.claimed", Level.INFO),
    LinkState.RELEASED: ("issue.released", Level.INFO),
    LinkState.CLOSED: ("issue.closed", Level.INFO),
    LinkState.LEFT: ("issue.left", Level.INFO),
    LinkState.LOST: ("issue.lost", Level.WARNING),
}
_STATE_TEXT = {
    LinkState.CLAIMED: "is ours",
    LinkState.RELEASED: "is free again",
    LinkState.CLOSED: "is closed",
    LinkState.LEFT: "is left for a person to close",
    LinkState.LOST: "is no longer claimed by Holdfast and is left alone",
}


class SqliteIssueLinks:
    """The SQLite adapter of `IssueLinks`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "trackers")
        self._events = events

    def our_name(self, suggested: str) -> str:
        known = self._sql.value("our_name")
        if known is None:
            self._sql.change("name_us", ours=suggested)
            faults.tx("link.name")
            return suggested
        return str(known)

    # -- one issue -----------------------------------------------------------------------------------------------

    def intend(self, repo_id: str, issue: str, assignee: str, now: Instant) -> IssueLink | None:
        made = self._sql.value("intend", repo=repo_id, issue=issue, assignee=assignee, now=now.wall)
        if made is None:
            return None
        faults.tx("link.intend")
        return self._get(int(made))

    def record_intent_again(self, link: IssueLink, assignee: str, now: Instant) -> IssueLink | None:
        if not self._sql.change("intend_again", id=link.id, state=str(link.state), assignee=assignee, now=now.wall):
            return None
        faults.tx("link.intend_again")
        return self._get(link.id)

    def link_task(self, link: IssueLink, task_id: str, now: Instant) -> None:
        if not self._sql.change("belongs_to", id=link.id, task=task_id, now=now.wall):
            raise AssertionError(f"link {link.id} was settled by somebody else: one supervisor has a home")
        faults.tx("link.belong")
        self._tell(link, LinkState.CLAIMED, "ours, by read-back", now, task_id, {})

    def move(
        self, link: IssueLink, state: LinkState, reason: str, now: Instant, data: Mapping[str, object] | None = None
    ) -> IssueLink | None:
        if not self._sql.change("move", id=link.id, state=str(link.state), to=str(state), reason=reason, now=now.wall):
            return None
        faults.tx("link.move")
        if state in _EVENT_OF:
            self._tell(link, state, reason, now, link.task_id, data or {})
        if link.task_id is not None and state is not LinkState.CLAIMED:
            self._set_waiting_reason(link, "it waits until its issue is claimed again")
        elif link.task_id is not None:
            self._set_waiting_reason(link, "waiting for a free agent")
        return self._get(link.id)

    def drop(self, link: IssueLink, reason: str, now: Instant) -> None:
        del reason, now  # nothing was ours and nothing happened, so there is no event: the tracker has its own record
        if self._sql.change("drop", id=link.id):
            faults.tx("link.drop")

    def release_lost_claim(self, link: IssueLink, reason: str, now: Instant) -> bool:
        self.move(link, LinkState.LOST, reason, now)
        found = self._get(link.id)
        return found is not None and found.task_state is TaskState.QUEUED

    def after_settle(self, task_id: str, state: TaskState, outcome: Outcome, now: Instant) -> None:
        if state is not TaskState.QUEUED or outcome not in CRASHES:
            return
        reason = f"its agent is dead ({outcome}): anybody may take it"
        if self._sql.change("let_go", task=task_id, reason=reason, now=now.wall):
            faults.tx("link.let_go")

    def of_task(self, task_id: str) -> IssueLink | None:
        row = self._sql.row("of_task", task=task_id)
        return _link(row) if row else None

    def open_links(self) -> Sequence[IssueLink]:
        return [_link(row) for row in self._sql.rows("unsettled")]

    def room(self, agents: int) -> int:
        return max(0, agents - int(self._sql.value("busy")))

    # -- the trackers themselves ---------------------------------------------------------------------------------

    def answered(self, repo_id: str, kind: str, now: Instant) -> None:
        before = self._sql.row("tracker", repo=repo_id)
        if before is not None and before["trouble"] is None and before["kind"] == kind:
            return
        self._sql.change("answered", repo=repo_id, kind=kind)
        faults.tx("tracker.answered")
        if before is not None and before["trouble"] is not None:
            message = f"The tracker ({kind}) of repository {repo_id} answers again."
            self._events.emit(Event(kind="tracker.recovered", component="trackers", message=message), now)

    def record_trouble(self, repo_id: str, kind: str, why: str, now: Instant, longest: float) -> None:
        before = self._sql.row("tracker", repo=repo_id)
        failures = 1 + (int(before["failures"]) if before else 0)
        again = now.wall + tracker_backoff(failures, longest)
        self._sql.change("troubled", repo=repo_id, kind=kind, why=why, now=now.wall, next=again)
        faults.tx("tracker.troubled")
        if before is None or before["trouble"] is None:
            self._events.emit(
                Event(
                    kind="tracker.trouble",
                    level=Level.WARNING,
                    component="trackers",
                    message=f"The tracker ({kind}) of repository {repo_id} does not answer: {why}. It is asked again, "
                    "less and less often; running work continues. See `holdfast tracker`.",
                    reason=why,
                    data={"repo": repo_id},
                ),
                now,
            )

    def waiting_trackers(self, now: Instant) -> Mapping[str, float]:
        """Return the trackers that are not asked now. A back-off that was recorded at a later time than now is over,
        because the clock was set back since."""
        return {
            str(row["repo_id"]): row["next_at"] - now.wall
            for row in self._sql.rows("waiting")
            if row["next_at"] > now.wall and not row["asked_at"] > now.wall + 60
        }

    def end_backoffs(self) -> None:
        self._sql.change("ask_at_once")
        faults.tx("tracker.ask")

    # -- pieces --------------------------------------------------------------------------------------------------

    def _get(self, link_id: int) -> IssueLink | None:
        row = self._sql.row("get", id=link_id)
        return _link(row) if row else None

    def _set_waiting_reason(self, link: IssueLink, reason: str) -> None:
        if self._sql.change("say_waiting", task=link.task_id, reason=reason):
            faults.tx("link.say")

    def _tell(
        self,
        link: IssueLink,
        state: LinkState,
        reason: str,
        now: Instant,
        task_id: str | None,
        data: Mapping[str, object],
    ) -> None:
        kind, level = _EVENT_OF[state]
        self._events.emit(
            Event(
                kind=kind,
                level=level,
                component="trackers",
                task_id=task_id,
                message=f"Issue {link.issue} {_STATE_TEXT[state]}: {reason}.",
                reason=reason,
                data={"issue": link.issue, "repo": link.repo_id, "assignee": link.assignee, **data},
            ),
            now,
        )


@stored_data_errors
def _link(row: Row) -> IssueLink:
    return IssueLink(
        id=row["id"],
        repo_id=row["repo_id"],
        issue=row["issue"],
        state=LinkState(row["state"]),
        assignee=row["assignee"],
        task_id=row["task_id"],
        task_state=None if row["task_state"] is None else TaskState(row["task_state"]),
        not_before=row["not_before"],
        branch=row["branch"],
        reason=row["reason"] or "",
        updated_at=row["updated_at"] or 0.0,
    )
