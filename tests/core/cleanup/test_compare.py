"""The comparison behind the sweep: what it may never touch, and that what it does leaves nothing more to do."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.cleanup.compare import PASSIVE_ACTIONS, Finding, SweepAction, compare_with_ledger
from holdfast.core.cleanup.observed import (
    Container,
    KnownTask,
    Ledger,
    LedgerWorkspace,
    ObservedBranch,
    ObservedState,
    OwnerMarker,
    StrayProcess,
    WorkspacePath,
    WorktreeEntry,
)
from holdfast.core.model import Strategy, Workspace
from holdfast.core.states import TASK_TERMINAL, TaskState, WorkspaceState

ROOT = "/home/workspaces"
TASKS = ("t1", "t2", "t3")
OPEN = tuple(state for state in WorkspaceState if state is not WorkspaceState.GONE)
PATHS = {task: f"{ROOT}/r1/{task}" for task in TASKS}
tasks = st.sampled_from(TASKS)
ids = st.sampled_from(("w1", "w2", "w3", "w4"))
trashed = st.sampled_from(("w1", "w9", "w2-half-made", "My x"))


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    states = {task: draw(st.sampled_from(TaskState)) for task in TASKS}
    known = draw(st.sets(tasks, min_size=1))
    holdings, current = [], set()
    for number, task in enumerate(sorted(known) + draw(st.lists(tasks, max_size=2))):
        state = draw(st.sampled_from(OPEN))
        if task not in known or (task in current and state is not WorkspaceState.TRASHED):
            continue
        current |= {task} if state is not WorkspaceState.TRASHED else set()
        holdings.append(
            LedgerWorkspace(
                workspace=Workspace(
                    id=f"w{number + 1}",
                    task_id=task,
                    repo_id="r1",
                    strategy=draw(st.sampled_from((Strategy.WORKTREE, Strategy.DIRECTORY))),
                    path=PATHS[task],
                    branch=f"holdfast/{task}",
                    base_commit="base",
                    state=state,
                    disposition=draw(st.sampled_from((None, "clean", "salvage", "preserve"))),
                    container=draw(st.sampled_from((None, "c1"))),
                ),
                task_state=states[task],
            )
        )
    return Ledger(
        holdings=holdings,
        tasks={task: KnownTask(state=states[task], branch=f"holdfast/{task}", base_commit="base") for task in known},
        open_runs=draw(st.frozensets(st.sampled_from(("run1", "run2")))),
    )


@st.composite
def marks(draw: st.DrawFn, task: str) -> OwnerMarker | None:
    if draw(st.booleans()):
        return None
    path = PATHS[draw(tasks)] if draw(st.integers(0, 3)) == 0 else PATHS[task]
    return OwnerMarker(workspace=draw(ids), task=draw(st.sampled_from((task, task, "t9"))), repo="r1", path=path)


@st.composite
def scenes(draw: st.DrawFn) -> ObservedState:
    places = [
        WorkspacePath(
            path=PATHS[task],
            repo="r1",
            is_there=draw(st.booleans()),
            mark=draw(marks(task)),
            spare_mark=draw(st.booleans()),
            git_entry_of=draw(st.sampled_from((None, task))),
        )
        for task in sorted(draw(st.sets(tasks)))
    ]
    there = {place.path for place in places if place.is_there}
    entries = [
        WorktreeEntry(
            repo="r1",
            folder=f"/repo/.git/worktrees/{number}",
            tree=tree,
            tree_is_there=tree in there,
            locked_for=draw(st.sampled_from((None, "t1", "t9"))) if tree else draw(st.sampled_from(("t1", "t9"))),
        )
        for number, tree in enumerate(draw(st.lists(st.sampled_from((None, *PATHS.values())), max_size=3)))
    ]
    run = st.sampled_from((None, "run1", "run3"))
    return ObservedState(
        places=places,
        entries=entries,
        branches=[
            ObservedBranch(repo="r1", name=f"holdfast/{task}", tip=draw(st.sampled_from(("base", "work"))))
            for task in sorted(draw(st.sets(st.sampled_from((*TASKS, "t9")))))
        ],
        trash=[f"{ROOT}/.trash/{name}" for name in sorted(draw(st.sets(trashed)))],
        strays=[
            StrayProcess(
                pid=number + 2,
                start_ticks=1,
                run=draw(run),
                place=draw(st.sampled_from((None, PATHS["t1"]))),
                proven=draw(st.booleans()),
                kept=draw(st.booleans()),
            )
            for number in range(draw(st.integers(0, 2)))
        ],
        containers=[
            Container(id=name, run=draw(run), task=None, running=draw(st.booleans()))
            for name in sorted(draw(st.sets(st.sampled_from(("c1", "c2")))))
        ],
    )


@settings(max_examples=100, deadline=None)
@given(scene=scenes(), ledger=ledgers())
def test_what_is_not_ours_or_not_finished_is_left_alone(scene: ObservedState, ledger: Ledger) -> None:
    """R-TREE-07: nothing without a record of ours, with a task that continues, with an open run, without proof."""
    recorded = {holding.workspace.path: holding for holding in ledger.holdings}
    places = {place.path: place for place in scene.places}
    strays = {stray.pid: stray for stray in scene.strays}
    for finding in compare_with_ledger(scene, ledger):
        if finding.action in PASSIVE_ACTIONS:
            continue
        if finding.what in ("workspace", "marker") and finding.action is not SweepAction.DROP_TRASH:
            place, holding = places.get(finding.where), recorded.get(finding.where)
            assert holding is not None or (place is not None and (place.mark is not None or not place.is_there))
        if finding.action in (SweepAction.DECIDE, SweepAction.LET_GO):
            assert finding.workspace is not None
            assert recorded[finding.workspace.path].is_finished
        if finding.action is SweepAction.LET_GO:
            assert not places[finding.where].is_there
        if finding.action is SweepAction.MARK and finding.workspace is not None:
            place = places[finding.where]
            assert place.git_entry_of == finding.workspace.task_id or (
                place.mark is not None and place.mark.task == finding.workspace.task_id
            )
        if finding.action is SweepAction.DROP_MARKER:
            assert not places[finding.where].is_there
        if finding.action is SweepAction.DROP_ENTRY:
            (entry,) = [entry for entry in scene.entries if entry.folder == finding.where]
            assert not entry.tree_is_there
            assert entry.locked_for is not None or (entry.tree or "").rpartition("/")[2] in ledger.tasks
        if finding.action is SweepAction.DROP_BRANCH:
            name, _, tip = finding.where.partition(" ")
            assert tip == "base"
            assert ledger.tasks[name.removeprefix("holdfast/")].state in TASK_TERMINAL
        if finding.action is SweepAction.DROP_TRASH:
            assert re.fullmatch(r"[a-z0-9]+(-half-made)?", finding.where.rpartition("/")[2])
        if finding.action is SweepAction.END_PROCESS:
            stray = strays[int(finding.where.removeprefix("pid "))]
            assert stray.proven
            assert not stray.kept
            assert stray.run not in ledger.open_runs


@settings(max_examples=100, deadline=None)
@given(scene=scenes(), ledger=ledgers())
def test_another_sweep_has_nothing_to_do(scene: ObservedState, ledger: Ledger) -> None:
    """R-TREE-06: idempotent. What is left in the end is kept, told, or healed by its task. The longest way: a tree that
    is to be preserved but vanished is preserved, let go, and leaves an empty branch."""
    for _sweep in range(3):
        findings = compare_with_ledger(scene, ledger)
        scene, ledger = carried_out(scene, ledger, findings)
    left = [
        found for found in compare_with_ledger(scene, ledger) if found.action not in PASSIVE_ACTIONS or found.in_backlog
    ]
    assert left == []


def carried_out(scene: ObservedState, ledger: Ledger, findings: list[Finding]) -> tuple[ObservedState, Ledger]:
    """The world after a sweep, as the doing parts promise to leave it."""
    going = [(f, f.workspace) for f in findings if f.workspace is not None and f.in_backlog]
    stays = [(f.action is not SweepAction.LET_GO and w.disposition == "preserve", w) for f, w in going]
    away = {workspace.id: workspace for is_kept, workspace in stays if not is_kept}
    kept = {workspace.id for is_kept, workspace in stays if is_kept}
    refused = {f.where for f in findings if f.what == "marker" and f.action is SweepAction.REPORT}
    gone_paths = {w.path for w in away.values() if w.state is not WorkspaceState.TRASHED and w.path not in refused}
    gone_ids = {key for key, w in away.items() if w.path in gone_paths or w.state is WorkspaceState.TRASHED}
    holdings = []
    for holding in ledger.holdings:
        workspace = holding.workspace
        if workspace.id in gone_ids:
            continue
        if workspace.id in kept and workspace.state is WorkspaceState.READY:
            workspace = replace(workspace, state=WorkspaceState.PRESERVED)
        elif workspace.id in kept or workspace.path in refused:
            continue  # nothing was made yet, or it is somebody's to look at: not what is tested here
        holdings.append(replace(holding, workspace=workspace))
    done = {finding.where: finding for finding in findings if finding.action not in PASSIVE_ACTIONS}
    places = []
    for place in scene.places:
        finding = done.get(place.path)
        if place.path in gone_paths or (finding is not None and finding.action is SweepAction.DROP_MARKER):
            continue
        if finding is not None and finding.action is SweepAction.TAKE_IN and place.mark is not None:
            if ledger.tasks[place.mark.task].state in TASK_TERMINAL:
                continue  # saved, and removed
            taken = Workspace(
                id=place.mark.workspace + "9",
                task_id=place.mark.task,
                repo_id="r1",
                strategy=Strategy.WORKTREE,
                path=place.path,
                branch=None,
                base_commit=None,
                state=WorkspaceState.READY,
                disposition=None,
            )
            holdings.append(LedgerWorkspace(workspace=taken, task_state=ledger.tasks[place.mark.task].state))
            place = replace(place, mark=replace(place.mark, workspace=taken.id))
        marked = [
            f.workspace for f in findings if f.action is SweepAction.MARK and f.where == place.path and f.workspace
        ]
        if marked:
            mark = OwnerMarker(workspace=marked[0].id, task=marked[0].task_id, repo="r1", path=place.path)
            place = replace(place, mark=mark)
        places.append(place)
    there = {place.path for place in places if place.is_there}
    entries = [
        replace(entry, tree_is_there=entry.tree in there)
        for entry in scene.entries
        if entry.folder not in done and entry.tree not in gone_paths
    ]
    trash = [path for path in scene.trash if path not in done and path.rpartition("/")[2].split("-")[0] not in gone_ids]
    branches = [branch for branch in scene.branches if f"{branch.name} {branch.tip}" not in done]
    strays = [stray for stray in scene.strays if f"pid {stray.pid}" not in done]
    containers = [container for container in scene.containers if container.id not in done]
    after = ObservedState(
        places=places, entries=entries, branches=branches, trash=trash, strays=strays, containers=containers
    )
    return after, Ledger(holdings=holdings, tasks=ledger.tasks, open_runs=ledger.open_runs)


def test_a_marker_outlasts_its_workspace_while_the_trash_is_deleted() -> None:
    """A large tree is deleted for minutes. Its marker goes last, and is nothing to report or to drop meanwhile."""
    mark = OwnerMarker(workspace="w1", task="t1", repo="r1", path=PATHS["t1"])
    place = WorkspacePath(path=PATHS["t1"], repo="r1", is_there=False, mark=mark)
    workspace = Workspace(
        id="w1",
        task_id="t1",
        repo_id="r1",
        strategy=Strategy.DIRECTORY,
        path=PATHS["t1"],
        branch=None,
        base_commit=None,
        state=WorkspaceState.TRASHED,
        disposition="clean",
    )
    done = {"t1": KnownTask(state=TaskState.COMPLETED, branch=None, base_commit=None)}
    ledger = Ledger(
        holdings=[LedgerWorkspace(workspace=workspace, task_state=TaskState.COMPLETED)],
        tasks=done,
        open_runs=frozenset(),
    )
    scene = ObservedState(places=[place])
    assert [finding.action for finding in compare_with_ledger(scene, ledger)] == [SweepAction.WAIT]
    found = compare_with_ledger(scene, replace(ledger, holdings=[]))
    assert [finding.action for finding in found] == [SweepAction.DROP_MARKER]
