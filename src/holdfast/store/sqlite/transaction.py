"""One write transaction: all facets over one connection."""

from __future__ import annotations

import apsw

from holdfast import faults
from holdfast.core.model import Instant
from holdfast.store.sqlite.accounts import SqliteAccounts
from holdfast.store.sqlite.checkpoints import SqliteCheckpoints
from holdfast.store.sqlite.crashes import SqliteCrashes
from holdfast.store.sqlite.cursor import Cursor
from holdfast.store.sqlite.events import SqliteEvents
from holdfast.store.sqlite.guard import refusing_duplicates
from holdfast.store.sqlite.history import SqliteHistory
from holdfast.store.sqlite.holds import SqliteHolds
from holdfast.store.sqlite.hosts import SqliteHosts, SqliteRequests
from holdfast.store.sqlite.keeps import SqliteKeeps
from holdfast.store.sqlite.links import SqliteLinks
from holdfast.store.sqlite.notices import SqliteNotices
from holdfast.store.sqlite.runs import SqliteRuns
from holdfast.store.sqlite.salvages import SqliteSalvages
from holdfast.store.sqlite.spending import SqliteSpending
from holdfast.store.sqlite.tasks import SqliteTasks
from holdfast.store.sqlite.workers import SqliteWorkers
from holdfast.store.sqlite.workspaces import SqliteWorkspaces


class SqliteTransaction:
    """Made once per connection; what begins and commits is its owner's business (store or writer)."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._operations = Cursor(connection, "hosts")
        self.events = SqliteEvents(connection)
        self.runs = SqliteRuns(connection, self.events)
        self.workspaces = SqliteWorkspaces(connection, self.events)
        self.checkpoints = SqliteCheckpoints(connection, self.events)
        self.holds = SqliteHolds(connection, self.events)
        self.crashes = SqliteCrashes(connection, self.events)
        self.notices = SqliteNotices(connection, self.events)
        self.workers = SqliteWorkers(connection, self.events)
        self.links = SqliteLinks(connection, self.events)
        self.spending = SqliteSpending(connection, self.events)
        self.accounts = SqliteAccounts(connection, self.events)
        self.tasks = SqliteTasks(connection, self.events, self.runs, self.workspaces, self.accounts)
        self.keeps = SqliteKeeps(connection, self.events, self.workspaces, self.tasks.get)
        self.salvages = SqliteSalvages(connection, self.events)
        self.hosts = SqliteHosts(connection, self.events)
        self.requests = SqliteRequests(connection)
        self.history = SqliteHistory(connection, self.events)

    def remember_operation(self, operation_id: str, now: Instant) -> None:
        with refusing_duplicates(f"The operation {operation_id} was done before; nothing was done again."):
            self._operations.change("remember_operation", id=operation_id, now=now.wall)
        faults.tx("operation.remember")

    def knows_operation(self, operation_id: str) -> bool:
        return self._operations.row("operation", id=operation_id) is not None

    def forget_operations(self, before: float) -> None:
        self._operations.change("forget_operations", before=before)
        faults.tx("operation.forget")
