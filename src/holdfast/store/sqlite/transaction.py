"""One write transaction: all facets over one connection."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.store.sqlite.accounts import SqliteAccounts
from holdfast.store.sqlite.crashes import SqliteCrashes
from holdfast.store.sqlite.engine.fence import conflict_on_duplicate
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.hosts import SqliteHosts, SqliteRequests
from holdfast.store.sqlite.preserved import SqlitePreservedWorkspaces
from holdfast.store.sqlite.runs import SqliteRuns
from holdfast.store.sqlite.tasks import SqliteTasks
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

if TYPE_CHECKING:
    from holdfast.store.sqlite.alerts import SqliteDeliveries
    from holdfast.store.sqlite.checkpoints import SqliteCheckpoints
    from holdfast.store.sqlite.holds import SqliteHolds
    from holdfast.store.sqlite.messages import SqliteMessages
    from holdfast.store.sqlite.retention import SqliteOldRecords
    from holdfast.store.sqlite.salvages import SqliteSalvages
    from holdfast.store.sqlite.schedules import SqliteSchedules
    from holdfast.store.sqlite.spending import SqliteSpending
    from holdfast.store.sqlite.task_lists import SqliteTaskListKeys
    from holdfast.store.sqlite.trackers import SqliteIssueLinks
    from holdfast.store.sqlite.workers import SqliteWorkers
    from holdfast.store.sqlite.workflows import SqliteResults, SqliteStageProgress

_LAZY_FACETS = (
    "checkpoints",
    "holds",
    "deliveries",
    "workers",
    "issue_links",
    "spending",
    "salvages",
    "history",
    "stages",
    "results",
    "task_lists",
    "schedules",
    "messages",
)


class SqliteTransaction:
    """All facets over one connection, made once per connection. The owner (store or writer) begins and commits.

    Facets that few commands need are imported on first use. A supervisor imports all of them at once (`whole`), because
    the installed package may be upgraded while it runs.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._operations = Statements(connection, "hosts")
        self.events = SqliteEvents(connection)
        self.runs = SqliteRuns(connection, self.events)
        self.workspaces = SqliteWorkspaces(connection, self.events)
        self.crashes = SqliteCrashes(connection, self.events)
        self.accounts = SqliteAccounts(connection, self.events)
        self.tasks = SqliteTasks(connection, self.events, self.runs, self.workspaces, self.accounts)
        self.preserved = SqlitePreservedWorkspaces(connection, self.events, self.workspaces, self.tasks.get)
        self.hosts = SqliteHosts(connection, self.events)
        self.requests = SqliteRequests(connection)

    def savepoint(self) -> AbstractContextManager[object]:
        return self._connection

    def whole(self) -> SqliteTransaction:
        for name in _LAZY_FACETS:
            getattr(self, name)
        return self

    @cached_property
    def checkpoints(self) -> SqliteCheckpoints:
        from holdfast.store.sqlite.checkpoints import SqliteCheckpoints

        return SqliteCheckpoints(self._connection, self.events)

    @cached_property
    def holds(self) -> SqliteHolds:
        from holdfast.store.sqlite.holds import SqliteHolds

        return SqliteHolds(self._connection, self.events)

    @cached_property
    def deliveries(self) -> SqliteDeliveries:
        from holdfast.store.sqlite.alerts import SqliteDeliveries

        return SqliteDeliveries(self._connection, self.events)

    @cached_property
    def workers(self) -> SqliteWorkers:
        from holdfast.store.sqlite.workers import SqliteWorkers

        return SqliteWorkers(self._connection, self.events)

    @cached_property
    def issue_links(self) -> SqliteIssueLinks:
        from holdfast.store.sqlite.trackers import SqliteIssueLinks

        return SqliteIssueLinks(self._connection, self.events)

    @cached_property
    def spending(self) -> SqliteSpending:
        from holdfast.store.sqlite.spending import SqliteSpending

        return SqliteSpending(self._connection, self.events)

    @cached_property
    def stages(self) -> SqliteStageProgress:
        from holdfast.store.sqlite.workflows import SqliteStageProgress

        return SqliteStageProgress(self._connection, self.events)

    @cached_property
    def messages(self) -> SqliteMessages:
        from holdfast.store.sqlite.messages import SqliteMessages

        return SqliteMessages(self._connection, self.events, self.tasks, self.workspaces, self.stages)

    @cached_property
    def task_lists(self) -> SqliteTaskListKeys:
        from holdfast.store.sqlite.task_lists import SqliteTaskListKeys

        return SqliteTaskListKeys(self._connection)

    @cached_property
    def results(self) -> SqliteResults:
        from holdfast.store.sqlite.workflows import SqliteResults

        return SqliteResults(self._connection)

    @cached_property
    def schedules(self) -> SqliteSchedules:
        from holdfast.store.sqlite.schedules import SqliteSchedules

        return SqliteSchedules(self._connection, self.events)

    @cached_property
    def salvages(self) -> SqliteSalvages:
        from holdfast.store.sqlite.salvages import SqliteSalvages

        return SqliteSalvages(self._connection, self.events)

    @cached_property
    def history(self) -> SqliteOldRecords:
        from holdfast.store.sqlite.retention import SqliteOldRecords

        return SqliteOldRecords(self._connection, self.events)

    def remember_operation(self, operation_id: str, now: Instant) -> None:
        with conflict_on_duplicate(f"The operation {operation_id} was done before; nothing was done again."):
            self._operations.change("remember_operation", id=operation_id, now=now.wall)
        faults.tx("operation.remember")

    def knows_operation(self, operation_id: str) -> bool:
        return self._operations.row("operation", id=operation_id) is not None

    def forget_operations(self, before: float) -> None:
        self._operations.change("forget_operations", before=before)
        faults.tx("operation.forget")
