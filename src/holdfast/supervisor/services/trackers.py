"""Issues of outside trackers: brought in while there is room, given back, closed. Each repository in a coroutine of
its own: a tracker that is slow or gone holds nobody up. What is due is read from the store, so any restart goes on."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.base.errors import HoldfastError, Unavailable
from holdfast.base.ids import new_id
from holdfast.core.model import Repo
from holdfast.core.states import TASK_TERMINAL
from holdfast.core.tasks.trackers import Link, LinkState, Step, next_step
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.log import say_trouble
from holdfast.supervisor.ports import TrackerSetup
from holdfast.supervisor.service import Service
from holdfast.supervisor.services.tracker_issues import Linking
from holdfast.trackers.port import Unknown

ENOUGH = 3  # an issue that nobody understands keeps no other waiting; a tracker that does not answer keeps us no longer
OUR_PAUSE = 1.0
NEAR = 3.0  # seconds; a tracker that is asked again so soon keeps `--idle-exit` here
_ORDER = (Step.RELEASE, Step.CLOSE, Step.LEAVE, Step.CLAIM, Step.CLAIM_AGAIN, Step.CHECK)
_OWED = (Step.RELEASE, Step.CLOSE, Step.LEAVE, Step.CLAIM)


@dataclass(frozen=True, kw_only=True, slots=True)
class Errand:
    """What is to be done at one tracker."""

    repo: Repo
    setup: TrackerSetup
    steps: Sequence[tuple[Step, Link]]
    looks: bool  # for ready work, and after the issues that we hold
    room: int


class Tracking(Service):
    def __init__(self, context: Context) -> None:
        self._context = context
        self._work: dict[str, asyncio.Task[None]] = {}
        self._matters: set[str] = set()  # repositories where somebody was sent for more than another look
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
        """Whether leaving would leave something undone. Only looking, again and again, is no reason to stay; a first
        look is. A claim that is under way is `owed`."""
        return bool(self._more or self._matters & self._work.keys())

    async def next_wake(self) -> float:
        return self._wait

    async def tick(self) -> None:
        """Only looks into the store, and sends somebody where something is due."""
        if self._context.ports.trackers is None or self.closed:
            return
        for errand in await self._plan():
            self._matters.discard(errand.repo.id)
            if errand.repo.id not in self._seen or any(step is not Step.CHECK for step, _link in errand.steps):
                self._matters.add(errand.repo.id)
            self._seen.add(errand.repo.id)
            work = asyncio.create_task(self._run(errand), name=f"tracker {errand.repo.id}")
            self._work[errand.repo.id] = work
            work.add_done_callback(lambda done, repo_id=errand.repo.id: self._over(repo_id, done))  # type: ignore[misc]  # a default, not a parameter

    def _over(self, repo_id: str, work: asyncio.Task[None]) -> None:
        if self._work.get(repo_id) is work:
            del self._work[repo_id]
        self._context.bell.ring()

    def owed(self, tx: Transaction) -> int:
        """Claims that have to go back, or issues to be closed, where the tracker answers, or soon may: not the time to
        leave."""
        if self._context.ports.trackers is None:
            return 0
        now = self._context.clock()
        waiting = tx.links.waiting_trackers(now)
        steps = (
            next_step(link, now, closes=True, room=False)
            for link in tx.links.unsettled()
            if waiting.get(link.repo_id, 0.0) < NEAR
        )
        return sum(1 for step in steps if step in _OWED)

    # -- what is due ---------------------------------------------------------------------------------------------

    async def _plan(self) -> list[Errand]:
        context = self._context
        assert context.ports.trackers is not None

        def read(tx: Transaction) -> tuple[Sequence[Repo], Sequence[Link], dict[str, float], int]:
            now = context.clock()
            links = tx.links.unsettled()
            waiting = dict(tx.links.waiting_trackers(now))
            lanes = context.settings.agents + len(context.settings.staff.workers)
            return tx.workspaces.repos(), links, waiting, tx.links.room(lanes)

        repos, links, waiting, room = await context.writer.write(read)
        found, self._wait = [], math.inf
        for repo in repos:
            if repo.id in self._work:
                continue
            if repo.id in waiting:
                self._wait = min(self._wait, waiting[repo.id])
                continue
            held = [link for link in links if link.repo_id == repo.id]
            errand = self._errand(repo, context.ports.trackers.of(repo), held, room)
            if errand is not None:
                found.append(errand)
        return found

    def _errand(self, repo: Repo, setup: TrackerSetup, held: Sequence[Link], room: int) -> Errand | None:
        if setup.kind == "builtin" and not held:
            return None
        looks, now = True, self._context.clock()
        if repo.id in self._looked:
            left = self._looked[repo.id] + setup.poll - asyncio.get_running_loop().time()
            looks = left <= 0
            self._wait = min(self._wait, setup.poll if looks else left)
        due = [(next_step(link, now, closes=setup.closes, room=room > 0), link) for link in held]
        steps = [(step, link) for step, link in due if step is not None and (looks or step is not Step.CHECK)]
        self._wait = min([self._wait, *(_until_due(link, now.wall) for link in held)])
        if not steps and not (looks and room):
            return None
        steps.sort(key=lambda pair: (_ORDER.index(pair[0]), pair[1].id))
        return Errand(repo=repo, setup=setup, steps=steps, looks=looks, room=room)

    # -- carrying it out -----------------------------------------------------------------------------------------

    async def _run(self, errand: Errand) -> None:
        repo, setup, context = errand.repo, errand.setup, self._context
        try:
            trouble = await self._visit(errand)
        except (Unavailable, OSError) as error:  # our own store, or this machine: the tracker is not to blame
            say_trouble(f"the tracker of {repo.path} is asked again in a moment: ", error)
            self._looked.pop(repo.id, None)
            await asyncio.sleep(OUR_PAUSE)
            return
        except HoldfastError as error:  # no agent is chosen, say
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - told, and tried again: nothing here may end the supervisor
            say_trouble(f"the tracker of {repo.path}: ", error)
            trouble = f"a fault of ours: {error}"
        now = context.clock()
        if trouble is not None:
            self._looked.pop(repo.id, None)  # looked at again after its back-off
            self._more.discard(repo.id)
        if trouble is None:
            await context.writer.write(lambda tx: tx.links.answered(repo.id, setup.kind, now))
        else:
            await context.writer.write(lambda tx: tx.links.troubled(repo.id, setup.kind, trouble, now))

    async def _visit(self, errand: Errand) -> str | None:
        """What went wrong, if anything did; then the rest waits for the next visit."""
        setup = errand.setup
        if setup.problem is not None:
            return setup.problem
        if setup.kind == "builtin":
            return "`tracker.kind` is builtin now, or there is no .beads directory; the issues that it holds stay so"
        if errand.looks:
            self._looked[errand.repo.id] = asyncio.get_running_loop().time()
        linking = Linking(self._context, errand.repo, setup, await self._our_name())
        room, troubles = errand.room, []
        for step, link in errand.steps:
            trouble = await linking.do(step, link)
            if trouble is not None:
                troubles.append(trouble)
            if len(troubles) == ENOUGH:
                break
            room -= step in (Step.CLAIM, Step.CLAIM_AGAIN)
        if troubles or not errand.looks or room <= 0 or self.closed:
            return troubles[0] if troubles else None
        self._more.discard(errand.repo.id)
        ready = await setup.tracker.ready()
        if isinstance(ready, Unknown):
            return ready.why
        for issue in ready:
            if room <= 0 or self.closed:
                self._more.add(errand.repo.id)
                self._looked.pop(errand.repo.id, None)  # looked at again as soon as there is room
                break
            taken = await linking.take(issue)
            if isinstance(taken, str):
                return taken
            room -= taken
        return None

    async def _our_name(self) -> str:
        """R-CRASH-08: unique to this home, so that two of them are never taken for one."""
        if not self._name:
            host = "".join(letter for letter in socket.gethostname() if letter.isalnum() or letter in "-.")
            suggested = f"holdfast-{host[:40] or 'host'}-{new_id(8)}"
            self._name = await self._context.writer.write(lambda tx: tx.links.our_name(suggested))
        return self._name


def _until_due(link: Link, now: float) -> float:
    """Until the task of an issue that was given back may start again."""
    waits = link.state in (LinkState.RELEASED, LinkState.LOST) and link.task_state not in TASK_TERMINAL
    is_ahead = waits and link.not_before is not None and link.not_before > now
    return link.not_before - now + 0.01 if is_ahead and link.not_before is not None else math.inf
