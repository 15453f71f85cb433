"""The sweep: compares everything of ours with the ledger, in both directions, and removes what is ours and finished.

`begin` is quick and comes before the first claim and before anything is adopted: it looks, ends stray processes, and
puts the ledger right, so that nobody builds on a wrong one. `finish` works in the background: it removes single
leftovers, waits for the clean-up to put the finished workspaces away, and tells what was done in one event.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.base.errors import NoPermission, NotFound
from holdfast.base.instant import Instant
from holdfast.core.cleanup.compare import Action, Finding, compare
from holdfast.core.cleanup.observed import Container, Mark, Scene
from holdfast.core.cleanup.sweep_report import MANY, Swept, warning
from holdfast.core.model import Event, Level, Repo, Request, Workspace
from holdfast.core.runs.preserve import resolve
from holdfast.core.states import TASK_TERMINAL, WorkspaceState
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Transaction
from holdfast.store.port.workspaces import fates, read_ledger
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say_trouble
from holdfast.supervisor.service import Service
from holdfast.supervisor.workspaces.cleanup import Cleanup


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


CLEANUP_PATIENCE = 3600.0
GUARD_PAUSE = 0.2  # between two looks at what a guard has in hand: its teardown may take minutes
ENGINE_PATIENCE = 1.0  # a container engine that hangs must not hold the first claim up
_REMOVALS = (Action.DROP_ENTRY, Action.DROP_TRASH, Action.DROP_MARKER, Action.DROP_BRANCH)
_DENIED = ("Permission denied", "Operation not permitted", "sudo rm")  # in the reason why a workspace is still there
_OF_A_TREE = ("entry", "trash")  # what counts as a leftover tree; the rest is only put right


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    workspace: Workspace
    is_marked: bool  # False: its marker has to be written first; that it is ours is proven otherwise


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """A sweep whose quick part is done."""

    began: float
    findings: Sequence[Finding]
    repos: dict[str, Repo]
    backlog: frozenset[str]  # ids of workspaces that have to go
    undecided: Sequence[Undecided]  # those of them about which nobody has decided yet
    swept: Swept
    late: asyncio.Task[Sequence[Container]] | None  # an engine that has not told its containers yet


class Sweep(Service):
    """One at a time. Made once per supervisor, or alone for a sweep without one."""

    def __init__(self, context: Context, cleanup: Cleanup) -> None:
        self._context = context
        self._cleanup = cleanup
        self._work: asyncio.Task[None] | None = None
        self._asked: dict[int, Request] = {}
        self._asking: asyncio.Task[Sequence[Container]] | None = None
        self.last: Swept | None = None

    @property
    def busy(self) -> bool:
        return bool(self._asked) or (self._work is not None and not self._work.done())

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        return [task for task in (self._work, self._asking) if task is not None]

    async def at_start(self) -> None:
        """Before anything is adopted or claimed. What takes long goes on in the background."""
        begun = await self.begin()
        if begun.backlog or _to_remove(begun.findings):
            self._work = asyncio.create_task(_told(self._finish_and_tell(begun, [])), name="sweep")
        else:
            await self._finish_and_tell(begun, [])

    def asked(self, request: Request) -> None:
        """An operator wants one. Heard again and again until it is answered."""
        self._asked[request.id] = request

    async def tick(self) -> None:
        if self._asked and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(_told(self._on_demand()), name="sweep")

    async def once(self) -> Swept:
        """A whole sweep, to its end."""
        return await self.finish(await self.begin())

    async def _on_demand(self) -> None:
        requests = list(self._asked.values())
        await self._finish_and_tell(await self.begin(), requests)
        self._context.bell.ring()

    async def _finish_and_tell(self, begun: Begun, requests: Sequence[Request]) -> None:
        answer = RequestAnswer(RequestResult.SWEPT, json.dumps((await self.finish(begun)).data()))

        def reply(tx: Transaction) -> None:
            for request in requests:
                tx.requests.answer(request.id, answer, self._context.clock())

        if requests:
            await self._context.writer.write(reply)
        for request in requests:
            self._asked.pop(request.id, None)

    # -- the quick part ----------------------------------------------------------------------------------------------

    async def begin(self) -> Begun:
        began = time.monotonic()
        context = self._context
        assert context.ports.sweeper is not None
        await context.writer.write(lambda tx: tx.workspaces.retry_at_once())
        repos = await context.writer.write(lambda tx: tx.workspaces.repos())
        asked = asyncio.create_task(self._containers(), name="sweep-containers")
        self._asking = asked
        seen = await context.ports.sweeper.look(repos)
        await asyncio.wait([asked], timeout=ENGINE_PATIENCE)
        containers = asked.result() if asked.done() else ()
        scene = replace(seen, strays=context.ports.processes.strays(), containers=containers)
        ledger = read_ledger(context.store.view, scene)
        findings = compare(scene, ledger)
        swept = Swept(odd=len(scene.odd), failed=[f"{where}: {why}" for where, why in scene.unseen])
        swept.cgroups_removed = context.ports.processes.sweep(ledger.open_runs)
        swept.prune_succeeded = not scene.unseen
        await self._end_strays(findings, swept)
        undecided = await self._put_right(findings, swept)
        backlog = {f.workspace.id for f in findings if f.in_backlog and f.workspace is not None}
        backlog |= {one.workspace.id for one in undecided}
        await self._warn_of(len(backlog) + sum(1 for finding in _to_remove(findings) if finding.what in _OF_A_TREE))
        return Begun(
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
        except Exception:  # noqa: BLE001 - an engine's trouble must not stop the sweep of everything else
            return ()

    async def _end_strays(self, findings: Sequence[Finding], swept: Swept) -> None:
        """Before anything is adopted or removed: what they work on has to keep still."""
        strays = [f.stray for f in findings if f.action is Action.END_PROCESS and f.stray is not None]
        ended = await asyncio.gather(*(self._context.ports.processes.end_stray(stray) for stray in strays))
        swept.processes_ended = sum(ended)
        swept.failed += [
            f"pid {stray.pid} of run {stray.run} outlives SIGKILL"
            for stray, gone in zip(strays, ended, strict=True)
            if not gone
        ]

    async def _put_right(self, findings: Sequence[Finding], swept: Swept) -> list[Undecided]:
        """What somebody could build on: the ledger, in one transaction, and the markers of what goes on or goes now.
        Returns the workspaces of finished tasks about which nobody has decided: that can wait for the background."""
        assert self._context.ports.sweeper is not None
        wrong = [
            finding
            for finding in findings
            if finding.action in (Action.LET_GO, Action.TAKE_IN) and self._context.ports.sweeper.is_still_so(finding)
        ]
        taken = await self._context.writer.write(lambda tx: correct(tx, wrong, self._context.clock())) if wrong else []
        swept.healed += len(wrong)
        unmarked = {f.workspace.id: f.workspace for f in findings if f.action is Action.MARK and f.workspace}
        unmarked |= {workspace.id: workspace for workspace, _is_over in taken}
        undecided = [f.workspace for f in findings if f.action is Action.DECIDE and f.workspace is not None]
        undecided += [workspace for workspace, is_over in taken if is_over]
        later = {workspace.id for workspace in undecided}
        for workspace in unmarked.values():
            if workspace.id not in later:
                await self._mark(workspace, swept)
        return [Undecided(workspace=workspace, is_marked=workspace.id not in unmarked) for workspace in undecided]

    async def _mark(self, workspace: Workspace, swept: Swept) -> None:
        why = "put right"
        await self._try(
            Finding(action=Action.MARK, what="marker", where=workspace.path, why=why, workspace=workspace), None, swept
        )

    async def _warn_of(self, backlog: int) -> None:
        """R-TREE-08, at once: the event that tells the end may be minutes away."""
        if backlog > MANY:
            event = Event(
                kind="sweep.backlog",
                level=Level.WARNING,
                component="sweep",
                message=f"The start-up sweep has work to do:{warning(backlog)}",
                data={"backlog_count": backlog},
            )
            await self._context.writer.write(lambda tx: tx.events.emit(event, self._context.clock()))

    # -- the long part -------------------------------------------------------------------------------------------------

    async def finish(self, begun: Begun) -> Swept:
        swept = begun.swept
        await self._decide(begun.undecided, swept)
        for finding in _to_remove(begun.findings):
            repo = begun.repos.get(finding.repo or "")
            if await self._try(finding, repo, swept):
                swept.swept_count += finding.what in _OF_A_TREE
                swept.healed += finding.what not in _OF_A_TREE
        await self._drop_containers(begun, swept)
        await self._wait_for_cleanup(begun.backlog)
        self._count(begun, swept)
        swept.duration_ms = round((time.monotonic() - begun.began) * 1000, 1)
        await self._tell(swept)
        self.last = swept
        return swept

    async def _decide(self, undecided: Sequence[Undecided], swept: Swept) -> None:
        """Marked before the clean-up may see them, which removes nothing without its marker."""
        for one in undecided:
            if not one.is_marked:
                await self._mark(one.workspace, swept)
        workspaces = [one.workspace for one in undecided]
        if workspaces:
            await self._context.writer.write(lambda tx: decide(tx, workspaces, self._context.clock()))

    async def _drop_containers(self, begun: Begun, swept: Swept) -> None:
        findings = begun.findings
        if begun.late is not None:
            scene = Scene(containers=await begun.late)
            findings = compare(scene, read_ledger(self._context.store.view, scene))
        gone = [finding.where for finding in findings if finding.action is Action.DROP_CONTAINER]
        if gone:
            swept.containers_removed = await self._context.ports.containers.remove(gone)

    async def _try(self, finding: Finding, repo: Repo | None, swept: Swept) -> bool:
        assert self._context.ports.sweeper is not None
        try:
            return await self._context.ports.sweeper.carry_out(finding, repo)
        except (NoPermission, PermissionError) as error:
            swept.skipped.append(f"{finding.where}: {error}")
        except Exception as error:  # noqa: BLE001 - one leftover must never stop the sweep of all others
            swept.failed.append(f"{finding.where}: {type(error).__name__}: {error}")
        swept.prune_succeeded &= finding.action is not Action.DROP_ENTRY
        return False

    async def _wait_for_cleanup(self, backlog: frozenset[str]) -> None:
        """The clean-up goes over all of them; what fails is tried again by it later, and does not hold us up."""
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

    def _count(self, begun: Begun, swept: Swept) -> None:
        for row in fates(self._context.store.view, begun.backlog):
            words = f"{row['path']}: {row['reason']}"
            if row["state"] == WorkspaceState.GONE:
                swept.swept_count += 1
            elif any(denied in words for denied in _DENIED):
                swept.skipped.append(words)
            elif row["id"] in self._context.shared.in_use:
                swept.in_use.append(str(row["path"]))
            elif row["state"] != WorkspaceState.PRESERVED:
                swept.failed.append(words)
        kept = [f for f in begun.findings if f.action is Action.KEEP]
        swept.preserved = len(kept) + sum(
            1 for row in fates(self._context.store.view, begun.backlog) if row["state"] == WorkspaceState.PRESERVED
        )
        swept.foreign = [finding.where for finding in begun.findings if finding.foreign]
        reports = [f for f in begun.findings if f.action is Action.REPORT and not f.foreign]
        swept.reported = [str(finding) for finding in reports]

    async def _tell(self, swept: Swept) -> None:
        trouble = swept.failed or swept.skipped or swept.reported or swept.backlog_count > MANY
        event = Event(
            kind="sweep.completed",
            level=Level.WARNING if trouble else Level.INFO,
            component="sweep",
            message=swept.message(),
            data=swept.data(),
        )
        await self._context.writer.write(lambda tx: tx.events.emit(event, self._context.clock()))


def _to_remove(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.action in _REMOVALS]


async def _told(work: Coroutine[Any, Any, None]) -> None:
    """What it could not do, the clean-up or the next sweep does; but it must not end in silence."""
    try:
        await work
    except Exception as trouble:  # noqa: BLE001 - told, and everything else goes on
        say_trouble("the sweep stumbled: ", trouble)
