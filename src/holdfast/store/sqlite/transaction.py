"""One write transaction: all facets over one connection."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import apsw

from holdfast.base import faults
from holdfast.base.instant import Instant
from holdfast.store.sqlite.accounts import SqliteAccounts
from holdfast.store.sqlite.crashes import SqliteCrashes
from holdfast.store.sqlite.engine.statements import Cursor
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.fence import refusing_duplicates
from holdfast.store.sqlite.hosts import SqliteHosts, SqliteRequests
from holdfast.store.sqlite.preserved import SqliteKeeps
from holdfast.store.sqlite.runs import SqliteRuns
from holdfast.store.sqlite.tasks import SqliteTasks
from holdfast.store.sqlite.workspaces import SqliteWorkspaces

if TYPE_CHECKING:
    from holdfast.store.sqlite.alerts import SqliteNotices
    from holdfast.store.sqlite.checkpoints import SqliteCheckpoints
    from holdfast.store.sqlite.holds import SqliteHolds
    from holdfast.store.sqlite.retention import SqliteHistory
    from holdfast.store.sqlite.salvages import SqliteSalvages
    from holdfast.store.sqlite.schedules import SqliteSchedules
    from holdfast.store.sqlite.spending import SqliteSpending
    from holdfast.store.sqlite.task_lists import SqliteIntake
    from holdfast.store.sqlite.trackers import SqliteLinks
    from holdfast.store.sqlite.workers import SqliteWorkers
    from holdfast.store.sqlite.workflows import SqliteResults, SqliteStaging

_LATER = (
    "checkpoints",
    "holds",
    "notices",
    "workers",
    "links",
    "spending",
    "salvages",
    "history",
    "staging",
    "results",
    "intake",
    "schedules",
)


class SqliteTransaction:
    """All facets over one connection, made once per connection. The owner (store or writer) begins and commits.

    Facets that few commands need are imported on first use. A supervisor imports all of them at once (`whole`), because
    the installed package may be upgraded while it runs.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._operations = Cursor(connection, "hosts")
        self.events = SqliteEvents(connection)
        self.runs = SqliteRuns(connection, self.events)
        self.workspaces = SqliteWorkspaces(connection, self.events)
        self.crashes = SqliteCrashes(connection, self.events)
        self.accounts = SqliteAccounts(connection, self.events)
        self.tasks = SqliteTasks(connection, self.events, self.runs, self.workspaces, self.accounts)
        self.keeps = SqliteKeeps(connection, self.events, self.workspaces, self.tasks.get)
        self.hosts = SqliteHosts(connection, self.events)
        self.requests = SqliteRequests(connection)

    def whole(self) -> SqliteTransaction:
        for name in _LATER:
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
    def notices(self) -> SqliteNotices:
        from holdfast.store.sqlite.alerts import SqliteNotices

        return SqliteNotices(self._connection, self.events)

    @cached_property
    def workers(self) -> SqliteWorkers:
        from holdfast.store.sqlite.workers import SqliteWorkers

        return SqliteWorkers(self._connection, self.events)

    @cached_property
    def links(self) -> SqliteLinks:
        from holdfast.store.sqlite.trackers import SqliteLinks

        return SqliteLinks(self._connection, self.events)

    @cached_property
    def spending(self) -> SqliteSpending:
        from holdfast.store.sqlite.spending import SqliteSpending

        return SqliteSpending(self._connection, self.events)

    @cached_property
    def staging(self) -> SqliteStaging:
        from holdfast.store.sqlite.workflows import SqliteStaging

        return SqliteStaging(self._connection, self.events)

    @cached_property
    def intake(self) -> SqliteIntake:
        from holdfast.store.sqlite.task_lists import SqliteIntake

        return SqliteIntake(self._connection)

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
    def history(self) -> SqliteHistory:
        from holdfast.store.sqlite.retention import SqliteHistory

        return SqliteHistory(self._connection, self.events)

    def remember_operation(self, operation_id: str, now: Instant) -> None:
        with refusing_duplicates(f"The operation {operation_id} was done before; nothing was done again."):
            self._operations.change("remember_operation", id=operation_id, now=now.wall)
        faults.tx("operation.remember")

    def knows_operation(self, operation_id: str) -> bool:
        return self._operations.row("operation", id=operation_id) is not None

    def forget_operations(self, before: float) -> None:
        self._operations.change("forget_operations", before=before)
        faults.tx("operation.forget")
