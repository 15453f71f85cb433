"""The sweep: a comparison of everything that Holdfast made with the ledger, in both directions, and the removal of
leftovers.

`begin` is quick. It runs before the first claim and before any run is adopted. It ends stray processes and corrects the
ledger, so that nothing is built on a wrong ledger. `finish` works in the background. It removes single leftovers, waits
for the clean-up of finished workspaces, and emits one event with the results.

`correct` and `decide` change the ledger. Each runs inside one transaction and may be repeated.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import NoPermission, NotFound
from holdfast.base.instant import Instant
from holdfast.core.cleanup.compare import Finding, SweepAction, compare_with_ledger
from holdfast.core.cleanup.observed import Container, ObservedState, OwnerMarker
from holdfast.core.cleanup.sweep_report import SweepReport, backlog_warning
from holdfast.core.model import Event, Level, Repo, Request, Workspace
from holdfast.core.runs.preserve import resolve_disposition
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.workspaces import read_ledger, read_workspace_states
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_error
from holdfast.supervisor.service import Service
from holdfast.supervisor.workspaces.cleanup import CleanupService


def correct_ledger(tx: Transaction, wrong: Sequence[Finding], now: Instant) -> list[tuple[Workspace, bool]]:
    """Mark vanished workspaces for disposal, and record workspaces that the ledger had lost. Return each recorded
    workspace, and whether its task has ended."""
    taken = []
    for finding in wrong:
        if finding.action is SweepAction.LET_GO and finding.workspace is not None:
            tx.workspaces.dispose(finding.workspace, "salvage", "it vanished", now)
        elif finding.mark is not None:
            found = _record_found_workspace(tx, finding.mark, now)
            taken += [found] if found is not None else []
    return taken


def _record_found_workspace(tx: Transaction, mark: OwnerMarker, now: Instant) -> tuple[Workspace, bool] | None:
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


def decide_dispositions(tx: Transaction, undecided: Sequence[Workspace], now: Instant) -> None:
    """Decide about these workspaces by the settings of their tasks. Each decision includes saving the work first,
    because it was not saved yet."""
    for workspace in undecided:
        task = tx.tasks.get(workspace.task_id)
        if task.state in TASK_TERMINAL:
            how = resolve_disposition(task.spec, task.state)
            word = "preserve" if how.preserve else "salvage"
            tx.workspaces.dispose(workspace, word, f"{how.reason} ({how.tier})", now)


CLEANUP_PATIENCE = 3600.0
GUARD_PAUSE = 0.2  # seconds between two looks at workspaces that a guard owns: a teardown may take minutes
ENGINE_PATIENCE = 1.0  # seconds: a container engine that hangs must not delay the first claim
_REMOVALS = (SweepAction.DROP_ENTRY, SweepAction.DROP_TRASH, SweepAction.DROP_MARKER, SweepAction.DROP_BRANCH)
_DENIED = ("Permission denied", "Operation not permitted", "sudo rm")  # in the reason why a workspace still exists
_TREE_FINDINGS = ("entry", "trash")  # findings that count as a leftover tree; the others are only corrected


@dataclass(frozen=True, kw_only=True, slots=True)
class UndecidedWorkspace:
    workspace: Workspace
    is_marked: bool  # False: the marker has to be written first; that the workspace is ours is proven in another way


@dataclass(frozen=True, kw_only=True, slots=True)
class BegunSweep:
    """A sweep whose quick part (`begin`) is done."""

    began: float
    findings: Sequence[Finding]
    repos: dict[str, Repo]
    backlog: frozenset[str]  # ids of workspaces that have to be removed
    undecided: Sequence[UndecidedWorkspace]  # workspaces of the backlog without a decision
    swept: SweepReport
    late: asyncio.Task[Sequence[Container]] | None  # an engine that has not listed its containers yet


class SweepService(Service):
    """The sweep service, one sweep at a time. A supervisor has one. A sweep without a supervisor has its own."""

    def __init__(self, context: Context, cleanup: CleanupService) -> None:
        self._context = context
        self._cleanup = cleanup
        self._work: asyncio.Task[None] | None = None
        self._asked: dict[int, Request] = {}
        self._asking: asyncio.Task[Sequence[Container]] | None = None
        self.last: SweepReport | None = None

    @property
    def busy(self) -> bool:
        return bool(self._asked) or (self._work is not None and not self._work.done())

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in (self._work, self._asking) if task is not None]

    async def at_start(self) -> None:
        """Sweep at the start of a supervisor, before any run is adopted and any task is claimed. Long work continues in
        the background."""
        begun = await self.begin()
        if begun.backlog or _to_remove(begun.findings):
            self._work = asyncio.create_task(_run_logged(self._finish_and_answer(begun, [])), name="sweep")
        else:
            await self._finish_and_answer(begun, [])

    def asked(self, request: Request) -> None:
        """Start a sweep soon, for an operator's request. The same request arrives again and again until it is
        answered."""
        self._asked[request.id] = request

    async def tick(self) -> None:
        if self._asked and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(_run_logged(self._on_demand()), name="sweep")

    async def run_whole_sweep(self) -> SweepReport:
        """Run a whole sweep to its end."""
        return await self.finish(await self.begin())

    async def _on_demand(self) -> None:
        requests = list(self._asked.values())
        await self._finish_and_answer(await self.begin(), requests)
        self._context.bell.ring()

    async def _finish_and_answer(self, begun: BegunSweep, requests: Sequence[Request]) -> None:
        answer = RequestAnswer(RequestResult.SWEPT, json.dumps((await self.finish(begun)).data()))

        def reply(tx: Transaction) -> None:
            for request in requests:
                tx.requests.answer(request.id, answer, self._context.clock())

        if requests:
            await self._context.writer.write(reply)
        for request in requests:
            self._asked.pop(request.id, None)

    # -- the quick part ----------------------------------------------------------------------------------------------

    async def begin(self) -> BegunSweep:
        began = time.monotonic()
        context = self._context
        assert context.ports.sweeper is not None
        await context.writer.write(lambda tx: tx.workspaces.make_cleanups_due())
        repos = await context.writer.write(lambda tx: tx.workspaces.repos())
        asked = asyncio.create_task(self._containers(), name="sweep-containers")
        self._asking = asked
        seen = await context.ports.sweeper.look(repos)
        await asyncio.wait([asked], timeout=ENGINE_PATIENCE)
        containers = asked.result() if asked.done() else ()
        scene = replace(seen, strays=context.ports.processes.strays(), containers=containers)
        ledger = read_ledger(context.store.view, scene)
        findings = compare_with_ledger(scene, ledger)
        swept = SweepReport(odd=len(scene.odd), failed=[f"{where}: {why}" for where, why in scene.unseen])
        swept.cgroups_removed = context.ports.processes.sweep(ledger.open_runs)
        swept.prune_succeeded = not scene.unseen
        await self._end_strays(findings, swept)
        undecided = await self._correct_ledger(findings, swept)
        backlog = {f.workspace.id for f in findings if f.in_backlog and f.workspace is not None}
        backlog |= {one.workspace.id for one in undecided}
        await self._warn_of_backlog(
            len(backlog) + sum(1 for finding in _to_remove(findings) if finding.what in _TREE_FINDINGS)
        )
        return BegunSweep(
            began=began,
            findings=findings,
            repos={repo.id: repo for repo in repos},
            backlog=frozenset(backlog),
            undecided=undecided,
            swept=swept,
            late=None if asked.done() else asked,
        )

    async def _containers(self) -> Sequence[Container]:
        try:
            return await self._context.ports.containers.find()
        except Exception:  # noqa: BLE001 - an engine's failure must not stop the sweep of everything else
            return ()

    async def _end_strays(self, findings: Sequence[Finding], swept: SweepReport) -> None:
        """End stray processes before anything is adopted or removed: the files that they work on must not change any
        more."""
        strays = [f.stray for f in findings if f.action is SweepAction.END_PROCESS and f.stray is not None]
        ended = await asyncio.gather(*(self._context.ports.processes.end_stray(stray) for stray in strays))
        swept.processes_ended = sum(ended)
        swept.failed += [
            f"pid {stray.pid} of run {stray.run} outlives SIGKILL"
            for stray, gone in zip(strays, ended, strict=True)
            if not gone
        ]

    async def _correct_ledger(self, findings: Sequence[Finding], swept: SweepReport) -> list[UndecidedWorkspace]:
        """Correct the ledger in one transaction, and write the missing markers of workspaces that are needed now. Other
        steps build on both.

        Return the workspaces of finished tasks that have no decision yet. They are decided in the background part.
        """
        assert self._context.ports.sweeper is not None
        wrong = [
            finding
            for finding in findings
            if finding.action in (SweepAction.LET_GO, SweepAction.TAKE_IN)
            and self._context.ports.sweeper.is_still_true(finding)
        ]
        taken = (
            await self._context.writer.write(lambda tx: correct_ledger(tx, wrong, self._context.clock()))
            if wrong
            else []
        )
        swept.healed += len(wrong)
        unmarked = {f.workspace.id: f.workspace for f in findings if f.action is SweepAction.MARK and f.workspace}
        unmarked |= {workspace.id: workspace for workspace, _is_over in taken}
        undecided = [f.workspace for f in findings if f.action is SweepAction.DECIDE and f.workspace is not None]
        undecided += [workspace for workspace, is_over in taken if is_over]
        later = {workspace.id for workspace in undecided}
        for workspace in unmarked.values():
            if workspace.id not in later:
                await self._mark(workspace, swept)
        return [
            UndecidedWorkspace(workspace=workspace, is_marked=workspace.id not in unmarked) for workspace in undecided
        ]

    async def _mark(self, workspace: Workspace, swept: SweepReport) -> None:
        why = "corrected"
        await self._carry_out_finding(
            Finding(action=SweepAction.MARK, what="marker", where=workspace.path, why=why, workspace=workspace),
            None,
            swept,
        )

    async def _warn_of_backlog(self, backlog: int) -> None:
        """Emit a warning about a large backlog at once (R-TREE-08): the event at the end of the sweep may be minutes
        away."""
        numbers = self._context.settings.thresholds
        warning = backlog_warning(backlog, numbers.backlog_many, numbers.backlog_slow)
        if warning:
            event = Event(
                kind="sweep.backlog",
                level=Level.WARNING,
                component="sweep",
                message=f"The start-up sweep found leftovers:{warning}",
                data={"backlog_count": backlog},
            )
            await self._context.writer.write(lambda tx: tx.events.emit(event, self._context.clock()))

    # -- the long part -------------------------------------------------------------------------------------------------

    async def finish(self, begun: BegunSweep) -> SweepReport:
        swept = begun.swept
        await self._decide(begun.undecided, swept)
        for finding in _to_remove(begun.findings):
            repo = begun.repos.get(finding.repo or "")
            if await self._carry_out_finding(finding, repo, swept):
                swept.swept_count += finding.what in _TREE_FINDINGS
                swept.healed += finding.what not in _TREE_FINDINGS
        await self._drop_containers(begun, swept)
        await self._wait_for_cleanup(begun.backlog)
        self._count(begun, swept)
        swept.duration_ms = round((time.monotonic() - begun.began) * 1000, 1)
        await self._emit_summary(swept)
        self.last = swept
        return swept

    async def _decide(self, undecided: Sequence[UndecidedWorkspace], swept: SweepReport) -> None:
        """Decide about workspaces after their markers are written: the clean-up removes nothing without its marker."""
        for one in undecided:
            if not one.is_marked:
                await self._mark(one.workspace, swept)
        workspaces = [one.workspace for one in undecided]
        if workspaces:
            await self._context.writer.write(lambda tx: decide_dispositions(tx, workspaces, self._context.clock()))

    async def _drop_containers(self, begun: BegunSweep, swept: SweepReport) -> None:
        findings = begun.findings
        if begun.late is not None:
            scene = ObservedState(containers=await begun.late)
            findings = compare_with_ledger(scene, read_ledger(self._context.store.view, scene))
        gone = [finding.where for finding in findings if finding.action is SweepAction.DROP_CONTAINER]
        if gone:
            swept.containers_removed = await self._context.ports.containers.remove(gone)

    async def _carry_out_finding(self, finding: Finding, repo: Repo | None, swept: SweepReport) -> bool:
        assert self._context.ports.sweeper is not None
        try:
            return await self._context.ports.sweeper.carry_out(finding, repo)
        except (NoPermission, PermissionError) as error:
            swept.skipped.append(f"{finding.where}: {error}")
        except Exception as error:  # noqa: BLE001 - one leftover must never stop the sweep of all others
            swept.failed.append(f"{finding.where}: {type(error).__name__}: {error}")
        swept.prune_succeeded &= finding.action is not SweepAction.DROP_ENTRY
        return False

    async def _wait_for_cleanup(self, backlog: frozenset[str]) -> None:
        """Wait until the clean-up has tried every workspace of the backlog. The clean-up retries failures later, which
        does not delay the sweep."""
        while backlog:
            now = self._context.clock()
            waiting = {w.id for w in await self._context.writer.write(lambda tx: tx.workspaces.to_clean(now))}  # noqa: B023 - awaited at once
            if not waiting & backlog:
                return
            await self._cleanup.tick()
            if self._cleanup.busy:
                await self._cleanup.wait_idle(CLEANUP_PATIENCE)
            else:
                await asyncio.sleep(GUARD_PAUSE)

    def _count(self, begun: BegunSweep, swept: SweepReport) -> None:
        for row in read_workspace_states(self._context.store.view, begun.backlog):
            words = f"{row['path']}: {row['reason']}"
            if row["state"] == WorkspaceState.GONE:
                swept.swept_count += 1
            elif any(denied in words for denied in _DENIED):
                swept.skipped.append(words)
            elif row["id"] in self._context.shared.in_use:
                swept.in_use.append(str(row["path"]))
            elif row["state"] != WorkspaceState.PRESERVED:
                swept.failed.append(words)
        kept = [f for f in begun.findings if f.action is SweepAction.KEEP]
        swept.preserved = len(kept) + sum(
            1
            for row in read_workspace_states(self._context.store.view, begun.backlog)
            if row["state"] == WorkspaceState.PRESERVED
        )
        swept.foreign = [finding.where for finding in begun.findings if finding.foreign]
        reports = [f for f in begun.findings if f.action is SweepAction.REPORT and not f.foreign]
        swept.reported = [str(finding) for finding in reports]

    async def _emit_summary(self, swept: SweepReport) -> None:
        numbers = self._context.settings.thresholds
        many, slow = numbers.backlog_many, numbers.backlog_slow
        trouble = swept.failed or swept.skipped or swept.reported or backlog_warning(swept.backlog_count, many, slow)
        event = Event(
            kind="sweep.completed",
            level=Level.WARNING if trouble else Level.INFO,
            component="sweep",
            message=swept.message(many, slow),
            data=swept.data(),
        )
        await self._context.writer.write(lambda tx: tx.events.emit(event, self._context.clock()))


def _to_remove(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.action in _REMOVALS]


async def _run_logged(work: Coroutine[Any, Any, None]) -> None:
    """Await the work and log a failure. The clean-up or the next sweep does what is left, but a failure must be
    visible."""
    try:
        await work
    except Exception as trouble:  # noqa: BLE001 - logged, and everything else continues
        log_error("the sweep failed, and the next one continues: ", trouble)
