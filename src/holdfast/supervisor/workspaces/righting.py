"""Putting the ledger right about workspaces, for the sweep: each function inside one transaction, and repeatable."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.base.errors import NotFound
from holdfast.core.cleanup.compare import Action, Finding
from holdfast.core.cleanup.observed import Mark
from holdfast.core.model import Instant, Workspace
from holdfast.core.runs.preserve import resolve
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.store.port.transaction import Transaction


def correct(tx: Transaction, wrong: Sequence[Finding], now: Instant) -> list[tuple[Workspace, bool]]:
    """Let go of what vanished, take in what was lost. What was taken in, and whether its task is over."""
    taken = []
    for finding in wrong:
        if finding.action is Action.LET_GO and finding.workspace is not None:
            tx.workspaces.dispose(finding.workspace, "salvage", "it vanished", now)
        elif finding.mark is not None:
            found = _take_in(tx, finding.mark, now)
            taken += [found] if found is not None else []
    return taken


def _take_in(tx: Transaction, mark: Mark, now: Instant) -> tuple[Workspace, bool] | None:
    try:
        task = tx.tasks.get(mark.task)
    except NotFound:
        return None
    if task.spec.repo_id != mark.repo or tx.workspaces.current(task.id, mark.member) is not None:
        return None
    lost = Workspace(
        id=mark.workspace,
        task_id=task.id,
        repo_id=mark.repo,
        strategy=task.spec.strategy,
        path=mark.path,
        branch=mark.branch or task.branch,
        base_commit=mark.base_commit or task.base_commit,
        state=WorkspaceState.INTENDED,
        disposition=None,
        member=mark.member,
    )
    why = "found by the sweep: it has our marker, and the ledger had lost it"
    return tx.workspaces.take_in(lost, why, now), task.state in TASK_TERMINAL


def decide(tx: Transaction, undecided: Sequence[Workspace], now: Instant) -> None:
    """By the settings of their tasks. Nobody has saved their work yet: that comes first."""
    for workspace in undecided:
        task = tx.tasks.get(workspace.task_id)
        if task.state in TASK_TERMINAL:
            how = resolve(task.spec, task.state)
            word = "preserve" if how.preserve else "salvage"
            tx.workspaces.dispose(workspace, word, f"{how.reason} ({how.tier})", now)
