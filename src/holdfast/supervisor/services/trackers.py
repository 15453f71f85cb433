"""The service for issues of outside trackers: takes issues while there is room, gives them back, closes them.

Each repository has its own coroutine, so a tracker that is slow or gone delays no other. What is due is read from the
store, so it survives any restart.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Sequence

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError, Unavailable
from holdfast.base.ids import new_id
from holdfast.core.model import Repo
from holdfast.core.states import TASK_TERMINAL
from holdfast.core.tasks.trackers import IssueLink, LinkState, LinkStep, next_link_step
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import log_error
from holdfast.supervisor.ports import TrackerSetup
from holdfast.supervisor.service import Service
from holdfast.supervisor.services.tracker_issues import IssueSteps
from holdfast.trackers.port import UnknownAnswer

# failures per visit: one bad issue must not block the others, but a tracker that does not answer ends the visit
MOST_FAILURES = 3
OUR_PAUSE = 1.0
SOON_AGAIN = 3.0  # seconds: a tracker that is asked again so soon keeps an idle supervisor (`--idle-exit`) running
_ORDER = (LinkStep.RELEASE, LinkStep.CLOSE, LinkStep.LEAVE, LinkStep.CLAIM, LinkStep.CLAIM_AGAIN, LinkStep.CHECK)
_OWED = (LinkStep.RELEASE, LinkStep.CLOSE, LinkStep.LEAVE, LinkStep.CLAIM)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackerVisit:
    """The work that is due at one tracker."""

    repo: Repo
    setup: TrackerSetup
    steps: Sequence[tuple[LinkStep, IssueLink]]
    reads_ready_issues: bool  # also read ready issues, and check the issues that we hold
    room: int


class TrackerService(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._work: dict[str, asyncio.Task[None]] = {}
        self._matters: set[str] = set()  # repositories with a visit that does more than look again
        self._looked: dict[str, float] = {}  # repository → when, in the loop's time
        self._more: set[str] = set()  # repositories that had more ready work than there was room for
        self._seen: set[str] = set()  # repositories that were looked at by this supervisor
        self._name = ""
        self._wait = math.inf
        self.closed = False

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._work.values())

    @property
    def busy(self) -> bool:
        """True if work would be left undone if the supervisor stopped now.

        The first look at a tracker counts as work, a repeated look does not. Claims under way are counted by `owed`.
        """
        return bool(self._more or self._matters & self._work.keys())

    async def next_wake(self) -> float:
        return self._wait

    async def tick(self) -> None:
        """Read what is due from the store, and start a visit for each tracker that has something due."""
        if self._context.ports.trackers is None or self.closed:
            return
        for visit in await self._plan():
            self._matters.discard(visit.repo.id)
            if visit.repo.id not in self._seen or any(step is not LinkStep.CHECK for step, _link in visit.steps):
                self._matters.add(visit.repo.id)
            self._seen.add(visit.repo.id)
            work = asyncio.create_task(self._run_visit(visit), name=f"tracker {visit.repo.id}")
            self._work[visit.repo.id] = work
            work.add_done_callback(lambda done, repo_id=visit.repo.id: self._on_visit_done(repo_id, done))  # type: ignore[misc]  # a default, not a parameter

    def _on_visit_done(self, repo_id: str, work: asyncio.Task[None]) -> None:
        if self._work.get(repo_id) is work:
            del self._work[repo_id]
        self._context.bell.ring()

    def owed(self, tx: Transaction) -> int:
        """Count the claims to give back and the issues to close, if their tracker answers or may answer soon. They keep
        an idle supervisor running."""
        if self._context.ports.trackers is None:
            return 0
        now = self._context.clock()
        waiting = tx.issue_links.waiting_trackers(now)
        steps = (
            next_link_step(link, now, closes=True, room=False)
            for link in tx.issue_links.open_links()
            if waiting.get(link.repo_id, 0.0) < SOON_AGAIN
        )
        return sum(1 for step in steps if step in _OWED)

    # -- what is due ---------------------------------------------------------------------------------------------

    async def _plan(self) -> list[TrackerVisit]:
        context = self._context
        assert context.ports.trackers is not None

        def read(tx: Transaction) -> tuple[Sequence[Repo], Sequence[IssueLink], dict[str, float], int]:
            now = context.clock()
            links = tx.issue_links.open_links()
            waiting = dict(tx.issue_links.waiting_trackers(now))
            lanes = context.settings.agents + len(context.settings.staff.workers)
            return tx.workspaces.repos(), links, waiting, tx.issue_links.room(lanes)

        repos, links, waiting, room = await context.writer.write(read)
        found, self._wait = [], math.inf
        for repo in repos:
            if repo.id in self._work:
                continue
            if repo.id in waiting:
                self._wait = min(self._wait, waiting[repo.id])
                continue
            held = [link for link in links if link.repo_id == repo.id]
            visit = self._plan_visit(repo, context.ports.trackers.of(repo), held, room)
            if visit is not None:
                found.append(visit)
        return found

    def _plan_visit(self, repo: Repo, setup: TrackerSetup, held: Sequence[IssueLink], room: int) -> TrackerVisit | None:
        if setup.kind == "builtin" and not held:
            return None
        looks, now = True, self._context.clock()
        if repo.id in self._looked:
            left = self._looked[repo.id] + setup.poll - asyncio.get_running_loop().time()
            looks = left <= 0
            self._wait = min(self._wait, setup.poll if looks else left)
        due = [(next_link_step(link, now, closes=setup.closes, room=room > 0), link) for link in held]
        steps = [(step, link) for step, link in due if step is not None and (looks or step is not LinkStep.CHECK)]
        self._wait = min([self._wait, *(_until_due(link, now.wall) for link in held)])
        if not steps and not (looks and room):
            return None
        steps.sort(key=lambda pair: (_ORDER.index(pair[0]), pair[1].id))
        return TrackerVisit(repo=repo, setup=setup, steps=steps, reads_ready_issues=looks, room=room)

    # -- a visit -----------------------------------------------------------------------------------------

    async def _run_visit(self, visit: TrackerVisit) -> None:
        repo, setup, context = visit.repo, visit.setup, self._context
        try:
            trouble = await self._visit(visit)
        except (Unavailable, OSError) as error:  # Our own store or this machine failed, not the tracker.
            log_error(f"the tracker of {repo.path} is asked again in a moment: ", error)
            self._looked.pop(repo.id, None)
            await asyncio.sleep(OUR_PAUSE)
            return
        except HoldfastError as error:  # for example, no agent is chosen
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - logged, and tried again: nothing here may end the supervisor
            log_error(f"the tracker of {repo.path}: ", error)
            trouble = f"a defect of Holdfast: {error}"
        now = context.clock()
        if trouble is not None:
            self._looked.pop(repo.id, None)  # looked at again after its back-off
            self._more.discard(repo.id)
        if trouble is None:
            await context.writer.write(lambda tx: tx.issue_links.answered(repo.id, setup.kind, now))
        else:
            longest = context.settings.thresholds.tracker_delay
            await context.writer.write(
                lambda tx: tx.issue_links.record_trouble(repo.id, setup.kind, trouble, now, longest)
            )

    async def _visit(self, visit: TrackerVisit) -> str | None:
        """Carry out the work at one tracker. Return what went wrong, or None. After a failure the rest waits for the
        next visit."""
        setup = visit.setup
        if setup.problem is not None:
            return setup.problem
        if setup.kind == "builtin":
            return "`tracker.kind` is builtin now, or there is no .beads directory. Claimed issues stay claimed"
        if visit.reads_ready_issues:
            self._looked[visit.repo.id] = asyncio.get_running_loop().time()
        linking = IssueSteps(self._context, visit.repo, setup, await self._our_name())
        room, troubles = visit.room, []
        for step, link in visit.steps:
            trouble = await linking.do(step, link)
            if trouble is not None:
                troubles.append(trouble)
            if len(troubles) == MOST_FAILURES:
                break
            room -= step in (LinkStep.CLAIM, LinkStep.CLAIM_AGAIN)
        if troubles or not visit.reads_ready_issues or room <= 0 or self.closed:
            return troubles[0] if troubles else None
        self._more.discard(visit.repo.id)
        ready = await setup.tracker.ready()
        if isinstance(ready, UnknownAnswer):
            return ready.why
        for issue in ready:
            if room <= 0 or self.closed:
                self._more.add(visit.repo.id)
                self._looked.pop(visit.repo.id, None)  # looked at again as soon as there is room
                break
            taken = await linking.take(issue)
            if isinstance(taken, str):
                return taken
            room -= taken
        return None

    async def _our_name(self) -> str:
        """Return Holdfast's name in trackers. The name is unique to this home, so two homes are never confused
        (R-CRASH-08)."""
        if not self._name:
            host = "".join(letter for letter in socket.gethostname() if letter.isalnum() or letter in "-.")
            suggested = f"holdfast-{host[:40] or 'host'}-{new_id(8)}"
            self._name = await self._context.writer.write(lambda tx: tx.issue_links.our_name(suggested))
        return self._name


def _until_due(link: IssueLink, now: float) -> float:
    """Return the seconds until the task of a released issue may start again."""
    waits = link.state in (LinkState.RELEASED, LinkState.LOST) and link.task_state not in TASK_TERMINAL
    is_ahead = waits and link.not_before is not None and link.not_before > now
    return link.not_before - now + 0.01 if is_ahead and link.not_before is not None else math.inf
