"""The comparison of disk and ledger, in both directions: a list of findings, each with an action.

Other modules observe (`workspaces/removal/inventory.py`, `processes/strays.py`) and act
(`supervisor/workspaces/sweep.py`). An object without a record of ours is foreign: reported, never touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from holdfast.base.dataclass import dataclass
from holdfast.core.cleanup.observed import (
    Ledger,
    LedgerWorkspace,
    ObservedState,
    OwnerMarker,
    StrayProcess,
    WorkspacePath,
    task_of_branch,
    workspace_of_trash,
)
from holdfast.core.model import Strategy, Workspace
from holdfast.core.states import TASK_TERMINAL, WorkspaceState

# -- findings ----------------------------------------------------------------------------------------------------------


class SweepAction(StrEnum):
    WAIT = "wait"  # the clean-up handles it already, or its task repairs it when it continues
    KEEP = "keep"  # preserved
    DECIDE = "decide"  # its task is over without a disposition: resolved from its settings, work saved first
    LET_GO = "let-go"  # preserved, but removed by other means: what git still has of it is saved, then it is gone
    TAKE_IN = "take-in"  # it has our marker, but the ledger lost it (a restored backup): recorded in the ledger again
    MARK = "mark"  # ours by ledger and git entry, but its marker is gone
    DROP_MARKER = "drop-marker"
    DROP_ENTRY = "drop-entry"
    DROP_TRASH = "drop-trash"
    DROP_BRANCH = "drop-branch"
    END_PROCESS = "end-process"
    DROP_CONTAINER = "drop-container"
    REPORT = "report"  # for a person; `foreign`: it is simply not ours


PASSIVE_ACTIONS = frozenset({SweepAction.WAIT, SweepAction.KEEP, SweepAction.REPORT})


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One object, the action for it, and the reason as text."""

    action: SweepAction
    what: str  # workspace, marker, entry, trash, branch, process, container
    where: str
    why: str
    workspace: Workspace | None = None
    mark: OwnerMarker | None = None
    repo: str | None = None
    stray: StrayProcess | None = None
    foreign: bool = False
    in_backlog: bool = False  # a finished workspace that has to be removed

    def __str__(self) -> str:
        return f"{self.what} {self.where}: {self.why}"


def compare_with_ledger(scene: ObservedState, ledger: Ledger) -> list[Finding]:
    """Return every finding, in a stable order. When the actions of all findings are carried out, another call finds
    nothing to do."""
    return [
        *_workspaces(scene, ledger),
        *_find_unrecorded(scene, ledger),
        *_entries(scene, ledger),
        *_trash(scene, ledger),
        *_branches(scene, ledger),
        *_strays(scene, ledger),
        *_containers(scene, ledger),
    ]


def _workspaces(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    """Compare from the ledger to the disk."""
    places = {place.path: place for place in scene.places}
    for holding in ledger.holdings:
        workspace = holding.workspace
        if workspace.strategy is Strategy.NONE:
            continue  # the user's own checkout: there is nothing of ours to compare
        place = places.get(workspace.path)
        yield from _judge_workspace(holding, place)
        if place is not None and place.is_there and workspace.state is not WorkspaceState.TRASHED:
            yield from _check_marker(workspace, place)


def _judge_workspace(holding: LedgerWorkspace, place: WorkspacePath | None) -> Iterator[Finding]:
    workspace, is_there = holding.workspace, place is not None and place.is_there

    def found(action: SweepAction, why: str, *, in_backlog: bool = False) -> Finding:
        return Finding(
            action=action,
            what="workspace",
            where=workspace.path,
            why=why,
            workspace=workspace,
            repo=workspace.repo_id,
            in_backlog=in_backlog,
        )

    if workspace.state is WorkspaceState.TRASHED:
        yield found(SweepAction.WAIT, "is in the trash and being deleted", in_backlog=True)
    elif not holding.is_finished:
        if workspace.state is not WorkspaceState.INTENDED and not is_there:
            yield found(
                SweepAction.WAIT, f"is {workspace.state} in the ledger, but not on disk; its task makes it again"
            )
    elif workspace.state is WorkspaceState.PRESERVED and workspace.disposition != "salvage":
        if is_there:
            yield found(SweepAction.KEEP, workspace.reason or "preserved")
        elif place is not None and place.mark is not None:
            why = "is preserved in the ledger, but not on disk any more: it was removed by other means"
            yield found(SweepAction.LET_GO, why, in_backlog=True)
        else:  # its file system may just not be mounted
            yield found(
                SweepAction.REPORT,
                "is preserved in the ledger, but neither it nor its marker is on disk; if it is really gone: "
                f"`holdfast workspaces clean {workspace.task_id}`",
            )
    elif workspace.disposition is None:
        yield found(SweepAction.DECIDE, f"its task is {holding.task_state}, and it was not removed", in_backlog=True)
    else:
        yield found(SweepAction.WAIT, f"its task is {holding.task_state}; it is being removed", in_backlog=True)


def _check_marker(workspace: Workspace, place: WorkspacePath) -> Iterator[Finding]:
    """Yield a finding for a workspace without its marker. Nothing is deleted without its marker. The ledger and a
    second record of ours together are enough to restore the marker."""
    mark = place.mark
    if (mark is not None and mark.workspace == workspace.id) or workspace.state is WorkspaceState.INTENDED:
        return  # an intended workspace gets its marker when it is made
    is_ours = place.git_entry_of == workspace.task_id or (
        mark is not None and mark.task == workspace.task_id and mark.path == workspace.path
    )
    yield Finding(
        action=SweepAction.MARK if is_ours else SweepAction.REPORT,
        what="marker",
        where=workspace.path,
        why="its marker is gone, but ledger and git entry prove that it is ours"
        if is_ours
        else "the ledger has it, but it carries no record of ours: it stays until you remove it by hand",
        workspace=workspace,
        repo=workspace.repo_id,
        foreign=not is_ours,
    )


def _find_unrecorded(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    """Compare from the disk to the ledger: yield findings for directories and markers that no open row knows."""
    known = {h.workspace.path for h in ledger.holdings if h.workspace.state is not WorkspaceState.TRASHED}
    busy = {h.workspace.task_id for h in ledger.holdings if h.workspace.state is not WorkspaceState.TRASHED}
    # Their markers are deleted last, after their trash.
    trashed = {h.workspace.id for h in ledger.holdings if h.workspace.state is WorkspaceState.TRASHED}
    for place in scene.places:
        is_deleted = not place.is_there and place.mark is not None and place.mark.workspace in trashed
        if place.path not in known and not is_deleted:
            yield from _judge_unrecorded(place, ledger, busy)


def _judge_unrecorded(place: WorkspacePath, ledger: Ledger, busy: set[str]) -> Iterator[Finding]:
    mark = place.mark

    def found(action: SweepAction, what: str, why: str, *, foreign: bool = False) -> Finding:
        return Finding(
            action=action, what=what, where=place.path, why=why, mark=mark, repo=place.repo, foreign=foreign,
            in_backlog=action is SweepAction.TAKE_IN,
        )  # fmt: skip

    if mark is None or mark.path != place.path:
        if place.is_there:
            yield found(SweepAction.REPORT, "workspace", "carries no record of ours; it was left alone", foreign=True)
        elif place.spare_mark or mark is not None:
            yield found(SweepAction.DROP_MARKER, "marker", "belongs to no workspace")
        return
    if not place.is_there:
        yield found(SweepAction.DROP_MARKER, "marker", "its workspace is gone")
    elif mark.task not in ledger.tasks or mark.task in busy:
        yield found(
            SweepAction.REPORT,
            "workspace",
            f"has our marker, but the store knows no task {mark.task} that it could belong to; take what you need, "
            "then remove it by hand",
        )
    else:
        yield found(SweepAction.TAKE_IN, "workspace", "has our marker, but the ledger had lost it")


def _entries(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    live = {h.workspace.path for h in ledger.holdings if h.workspace.state is not WorkspaceState.TRASHED}
    for entry in scene.entries:
        if entry.tree_is_there or (entry.tree is not None and entry.tree in live):
            continue
        task = entry.locked_for or (entry.tree.rpartition("/")[2] if entry.tree is not None else None)
        is_ours = task in ledger.tasks or (entry.tree is not None and entry.locked_for is not None)
        if entry.tree is None and not is_ours:
            continue  # an entry of another home
        yield Finding(
            action=SweepAction.DROP_ENTRY if is_ours else SweepAction.REPORT,
            what="entry",
            where=entry.folder,
            why="belongs to a workspace that is gone" if is_ours else "is among our workspaces, but is not ours",
            repo=entry.repo,
            foreign=not is_ours,
        )


def _trash(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    in_hand = {holding.workspace.id for holding in ledger.holdings}
    for path in scene.trash:
        owner = workspace_of_trash(path)
        if owner is None:
            yield Finding(
                action=SweepAction.REPORT,
                what="trash",
                where=path,
                why="is not a name that Holdfast gives",
                foreign=True,
            )
        elif owner not in in_hand:
            what = "marker" if path.endswith(".json") else "trash"
            yield Finding(
                action=SweepAction.DROP_TRASH, what=what, where=path, why="nothing in the ledger waits for it"
            )


def _branches(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    """Yield empty branches of tasks that are over. Branches with commits are results. Unknown branches may belong to
    another home."""
    in_use = {(h.workspace.repo_id, h.workspace.branch) for h in ledger.holdings}
    for branch in scene.branches:
        task = ledger.tasks.get(task_of_branch(branch.name) or "")
        if (
            task is not None
            and task.state in TASK_TERMINAL
            and task.base_commit == branch.tip
            and (branch.repo, branch.name) not in in_use
        ):
            why = f"its task is {task.state}, and it has no commit of its own"
            yield Finding(
                action=SweepAction.DROP_BRANCH,
                what="branch",
                where=f"{branch.name} {branch.tip}",
                why=why,
                repo=branch.repo,
            )


def _strays(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    finished = {h.workspace.path for h in ledger.holdings if h.is_finished}
    for stray in scene.strays:
        if stray.run is not None and stray.run not in ledger.open_runs:
            ends = stray.proven and not stray.kept
            why = f"belongs to run {stray.run}, which is over"
            if not ends:
                why += "; a keeper of it still lives" if stray.kept else "; that it is ours is not proven"
            action = SweepAction.END_PROCESS if ends else SweepAction.REPORT
        elif stray.run is None and stray.place in finished:
            action, why = SweepAction.REPORT, f"works in {stray.place}, whose task is over; it is not ours to end"
        else:
            continue
        yield Finding(action=action, what="process", where=f"pid {stray.pid}", why=why, stray=stray)


def _containers(scene: ObservedState, ledger: Ledger) -> Iterator[Finding]:
    # The container of an open workspace goes with the workspace, or before its next run. The workspace may be about to
    # be preserved.
    open_states = (WorkspaceState.READY, WorkspaceState.PRESERVED)
    kept = {h.workspace.container for h in ledger.holdings if h.workspace.state in open_states}
    for container in scene.containers:
        if container.run in ledger.open_runs or container.id in kept:
            continue
        why = f"its run {container.run or '(unknown)'} is over"
        yield Finding(action=SweepAction.DROP_CONTAINER, what="container", where=container.id, why=why)
