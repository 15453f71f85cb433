"""The SQLite side of `CheckpointRows` in store/port/workspaces.py: checkpoints of running and paused tasks, under the
fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.base import faults
from holdfast.base.errors import NotFound
from holdfast.base.instant import Instant
from holdfast.base.stored_json import stored_data_errors
from holdfast.core.model import Event, Level, Workspace
from holdfast.store.port.transaction import Ownership
from holdfast.store.port.workspaces import Checkpoint, CheckpointChoice
from holdfast.store.sqlite import rows
from holdfast.store.sqlite.engine.fence import conflict_on_duplicate, require_owner
from holdfast.store.sqlite.engine.statements import Statements
from holdfast.store.sqlite.events import SqliteEvents


class SqliteCheckpoints:
    """The SQLite adapter of `CheckpointRows`."""

    def __init__(self, connection: apsw.Connection, events: SqliteEvents) -> None:
        self._sql = Statements(connection, "checkpoints")
        self._tasks = Statements(connection, "tasks")
        self._events = events

    def next_number(self, task_id: str) -> int:
        return int(self._sql.value("next_number", task_id=task_id))

    def last(self, task_id: str) -> Checkpoint | None:
        row = self._sql.row("last", task_id=task_id)
        return None if row is None else _checkpoint(row)

    def of_workspace(self, workspace: Workspace) -> Sequence[Checkpoint]:
        rows = self._sql.rows("of_workspace", task_id=workspace.task_id, workspace_id=workspace.id)
        return [_checkpoint(row) for row in rows]

    def get(self, task_id: str, number: int) -> Checkpoint:
        row = self._sql.row("get", task_id=task_id, number=number)
        if row is not None:
            return _checkpoint(row)
        there = [str(found["number"]) for found in self._sql.rows("numbers", task_id=task_id)]
        kept = f"kept are {', '.join(there)}" if there else "none is kept"
        raise NotFound(f"Task {task_id} has no checkpoint {number}: {kept} (`holdfast show {task_id}`).")

    def save(self, ownership: Ownership, checkpoint: Checkpoint, keep: int, now: Instant) -> None:
        require_owner(self._tasks, ownership)
        with conflict_on_duplicate(f"Task {ownership.task_id} has a checkpoint {checkpoint.number} already."):
            self._sql.change(
                "add",
                task_id=ownership.task_id,
                number=checkpoint.number,
                repo_id=checkpoint.repo_id,
                workspace_id=checkpoint.workspace_id,
                run_id=checkpoint.run_id,
                stage=checkpoint.stage,
                session_id=checkpoint.session_id,
                output_offset=checkpoint.output_offset,
                ref=checkpoint.ref,
                commit_id=checkpoint.commit,
                base=checkpoint.base,
                key=checkpoint.key,
                files=checkpoint.files,
                partial=int(checkpoint.partial),
                why=checkpoint.why,
                details=rows.encode_redacted(dict(checkpoint.details)),
                now=now.wall,
            )
        self._sql.change("drop_beyond", task_id=ownership.task_id, keep=keep)
        faults.tx("checkpoint.save")
        partly = ", in part: something changed meanwhile or could not be read" if checkpoint.partial else ""
        self._emit(
            "checkpoint.saved",
            ownership.task_id,
            checkpoint.run_id,
            f"Checkpoint {checkpoint.number} of task {ownership.task_id} saved ({checkpoint.why}{partly}): "
            f"{checkpoint.files} file(s) differ from its last commit.",
            checkpoint.why,
            {
                "number": checkpoint.number,
                "commit": checkpoint.commit,
                "files": checkpoint.files,
                "partial": checkpoint.partial,
                "stage": checkpoint.stage,
                "fence": ownership.fence,
            },
            now,
        )

    def failed(self, ownership: Ownership, run_id: str | None, taken_for: str, reason: str, now: Instant) -> None:
        require_owner(self._tasks, ownership)
        faults.tx("checkpoint.failed")
        self._emit(
            "checkpoint.failed",
            ownership.task_id,
            run_id,
            f"No checkpoint of task {ownership.task_id} could be saved ({taken_for}): {reason}. "
            "Its workspace stays as it is, and nothing is lost.",
            reason,
            {"why": taken_for},
            now,
            Level.WARNING,
        )

    # -- going back --------------------------------------------------------------------------------------------------

    def choose(self, task_id: str, number: int, by: str, now: Instant, *, automatic: bool = False) -> Checkpoint:
        wanted = self.get(task_id, number)
        if self._sql.change("choose", task_id=task_id, number=number, by=by, automatic=int(automatic), now=now.wall):
            if not automatic and wanted.is_within_stage:
                self._sql.change("keep_session", task_id=task_id, session_id=wanted.session_id)
            faults.tx("checkpoint.choose")
        return wanted

    def chosen(self, task_id: str) -> CheckpointChoice | None:
        row = self._sql.row("chosen", task_id=task_id)
        if row is None:
            return None
        return CheckpointChoice(
            checkpoint=_checkpoint(row), by=row["by"], automatic=bool(row["automatic"]), saved=bool(row["saved"])
        )

    def record_saved_content(self, ownership: Ownership) -> None:
        require_owner(self._tasks, ownership)
        self._sql.change("set_aside", task_id=ownership.task_id)
        faults.tx("checkpoint.set_aside")

    def record_restored(self, ownership: Ownership, number: int, workspace_id: str, how: str, now: Instant) -> None:
        """Record that the workspace holds the content of the checkpoint. From now on the checkpoint belongs to that
        workspace: if the workspace is lost, its content is still in the checkpoint."""
        require_owner(self._tasks, ownership)
        if self._sql.change("unchoose", task_id=ownership.task_id, number=number) == 0:
            return
        self._sql.change("move", task_id=ownership.task_id, number=number, workspace_id=workspace_id)
        faults.tx("checkpoint.went_back")
        message = f"Task {ownership.task_id} continues from checkpoint {number}: {how}."
        self._emit("checkpoint.restored", ownership.task_id, None, message, how, {"number": number}, now)

    def record_not_restored(self, ownership: Ownership, number: int, why: str, now: Instant) -> None:
        require_owner(self._tasks, ownership)
        if self._sql.change("unchoose", task_id=ownership.task_id, number=number) == 0:
            return
        faults.tx("checkpoint.gave_up")
        message = f"Task {ownership.task_id} does not go back to checkpoint {number}: {why}."
        self._emit(
            "checkpoint.not-restored", ownership.task_id, None, message, why, {"number": number}, now, Level.WARNING
        )

    def withdraw_choice(self, task_id: str, number: int, why: str, now: Instant) -> None:
        message = f"Task {task_id} stays paused: it was to go back to checkpoint {number}, and {why}."
        if self._sql.change("wait_for_operator", task_id=task_id, reason=message, now=now.wall) == 0:
            return  # the task was resumed or cancelled at the same moment
        self._sql.change("unchoose", task_id=task_id, number=number)
        faults.tx("checkpoint.stays_paused")
        self._emit("checkpoint.not-restored", task_id, None, message, why, {"number": number}, now, Level.WARNING)
        remedy = (
            f"Continue with the current files (`holdfast resume {task_id}`), or from another checkpoint "
            f"(`holdfast show {task_id}`, `holdfast resume {task_id} --checkpoint N`)."
        )
        self._events.raise_alert(f"checkpoint:{task_id}", f"{message} Nothing was spent.", remedy, now, task_id=task_id)

    # -- letting go --------------------------------------------------------------------------------------------------

    def expire(self, ended_before: float, failed_before: float) -> int:
        dropped = self._sql.change("expire", ended_before=ended_before, failed_before=failed_before)
        dropped_choices = self._sql.change("expire_choices")
        if dropped or dropped_choices:
            faults.tx("checkpoint.expire")
        return dropped

    def strangers(self, repo_id: str, refs: Sequence[str]) -> Sequence[str]:
        known = {row["ref"] for row in self._sql.rows("refs", repo_id=repo_id)}
        unfinished = {row["id"] for row in self._sql.rows("unfinished", repo_id=repo_id)}
        return [ref for ref in refs if ref not in known and ref.split("/")[2] not in unfinished]

    def dropped(self) -> Sequence[Checkpoint]:
        return [_checkpoint(row) for row in self._sql.rows("dropped")]

    def forget(self, gone: Sequence[Checkpoint]) -> None:
        for one in gone:
            self._sql.change("forget", task_id=one.task_id, number=one.number, commit_id=one.commit)
        faults.tx("checkpoint.forget")

    def _emit(
        self,
        kind: str,
        task_id: str,
        run_id: str | None,
        message: str,
        reason: str,
        data: dict[str, object],
        now: Instant,
        level: Level = Level.INFO,
    ) -> None:
        event = Event(
            kind=kind,
            level=level,
            component="checkpoints",
            task_id=task_id,
            run_id=run_id,
            message=message,
            reason=reason,
            data=data,
        )
        self._events.emit(event, now)


@stored_data_errors
def _checkpoint(row: dict[str, Any]) -> Checkpoint:
    return Checkpoint(
        task_id=row["task_id"],
        number=row["number"],
        repo_id=row["repo_id"],
        workspace_id=row["workspace_id"],
        run_id=row["run_id"],
        stage=row["stage"],
        session_id=row["session_id"],
        output_offset=row["output_offset"],
        ref=row["ref"],
        commit=row["commit_id"],
        base=row["base"],
        key=row["key"],
        files=row["files"],
        partial=bool(row["partial"]),
        why=row["why"],
        details=rows.decode(row["details"]),
    )
