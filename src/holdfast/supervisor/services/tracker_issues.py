"""One issue, one step: the intent in the store, the word to the tracker, what it then reads, the record. A crash
between any two of them is found again by the intent, and settled by reading the issue."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.base.concurrency import in_thread
from holdfast.base.instant import Instant
from holdfast.core.model import Event, Level, Repo, Task
from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.core.tasks.trackers import Issue, Link, LinkState, Step
from holdfast.store.port.trackers import overwritten_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.ports import TrackerSetup
from holdfast.trackers.port import Done, Found, Missing, Overwrote, Refused, Unknown

T = TypeVar("T")


class Linking:
    """`name` is who we are to the tracker."""

    def __init__(self, context: Context, repo: Repo, setup: TrackerSetup, name: str) -> None:
        self._context = context
        self._repo = repo
        self._setup = setup
        self._tracker = setup.tracker
        self._name = name

    async def do(self, step: Step, link: Link) -> str | None:
        """Why the tracker did not answer, if it did not."""
        if step is Step.RELEASE:
            return await self._release(link)
        if step is Step.CLOSE:
            return await self._close(link)
        if step is Step.LEAVE:
            return await self._leave(link)
        if step is Step.CLAIM:
            return await self._take_up(link)
        if step is Step.CLAIM_AGAIN:
            return await self._claim_again(link)
        return await self._check(link)

    async def take(self, issue: Issue) -> bool | str:
        """A ready issue becomes a task. Whether it did, or why the tracker did not answer."""
        operation = await in_thread(self._resolve_task, issue)  # whatever can be refused is refused before the claim
        link = await self._write(lambda tx: tx.links.intend(self._repo.id, issue.id, self._name, self._now()))
        return False if link is None else await self._claim_new(link, operation)

    # -- taking --------------------------------------------------------------------------------------------------

    async def _take_up(self, link: Link) -> str | None:
        """An intent whose supervisor died: was the issue given to us?"""
        shown = await self._tracker.show(link.issue)
        if isinstance(shown, Unknown):
            return shown.why
        if isinstance(shown, Missing) or not (shown.issue.is_free or shown.issue.is_held_by(link.assignee)):
            await self._write(lambda tx: tx.links.drop(link, "it is not ours", self._now()))
            return None
        taken = await self._claim_new(link, await in_thread(self._resolve_task, shown.issue))
        return taken if isinstance(taken, str) else None

    async def _claim_new(self, link: Link, operation: Callable[[Transaction], Task]) -> bool | str:
        answer = await self._tracker.claim(link.issue, link.assignee)
        if isinstance(answer, Unknown):
            return answer.why  # the intent stays, and is looked at again
        if isinstance(answer, Refused) or answer.overwrote is not None:
            overwrote = answer.overwrote if isinstance(answer, Done) else None

            def give_up(tx: Transaction) -> None:
                tx.links.drop(link, "it is not ours", self._now())
                self._tell(tx, link, overwrote)

            await self._write(give_up)
            return False

        def accept(tx: Transaction) -> None:
            task = operation(tx)
            tx.links.belongs_to(link, task.id, self._now())

        await self._write(accept)
        self._context.bell.ring()
        return True

    async def _claim_again(self, link: Link) -> str | None:
        """The issue was free for a while. If somebody took it meanwhile, our task stands back."""
        if link.state is not LinkState.INTENDED:
            intended = await self._write(lambda tx: tx.links.intend_again(link, self._name, self._now()))
            if intended is None:
                await self._stand_back(link, "another task of this home has it", None)
                return None
            link = intended
        answer = await self._tracker.claim(link.issue, link.assignee)
        if isinstance(answer, Unknown):
            return answer.why
        if isinstance(answer, Done) and answer.overwrote is None:
            held = await self._write(
                lambda tx: tx.links.move(link, LinkState.CLAIMED, "claimed again for its task", self._now())
            )
            self._context.bell.ring()
            return None if held is not None else "its link was changed under us"
        if isinstance(answer, Refused):
            if answer.is_free:
                return f"it does not give issue {link.issue} to us, though nobody has it"
            await self._stand_back(link, answer.holder, None)
        else:
            await self._stand_back(link, "somebody took it in the same moment", answer.overwrote)
        return None

    async def _stand_back(self, link: Link, holder: str, overwrote: Overwrote | None) -> None:
        reason = f"its issue {link.issue} is not ours any more: {holder}"

        def stand_back(tx: Transaction) -> None:
            self._tell(tx, link, overwrote)
            if tx.links.stand_back(link, holder, self._now()) and link.task_id is not None:
                tx.tasks.cancel_waiting(link.task_id, "Holdfast", reason, self._now())

        await self._write(stand_back)
        self._context.bell.ring()

    # -- giving back ---------------------------------------------------------------------------------------------

    async def _release(self, link: Link) -> str | None:
        releasing = await self._begin(link, LinkState.RELEASING)
        if releasing is None:
            return None
        answer = await self._tracker.release(link.issue, link.assignee)
        if isinstance(answer, Unknown):
            return answer.why
        if isinstance(answer, Refused) and not answer.is_free:
            await self._lost(releasing, answer.holder)
            return None
        overwrote = answer.overwrote if isinstance(answer, Done) else None
        if overwrote is not None:
            await self._lost(releasing, f"{overwrote.assignee or 'somebody'} changed it in the same moment", overwrote)
            return None
        is_ended = link.task_state in TASK_TERMINAL
        why = f"its task {link.task_state}: {link.reason}" if is_ended else "its agent is dead"
        await self._write(lambda tx: tx.links.move(releasing, LinkState.RELEASED, why, self._now()))
        if is_ended and link.task_id is not None and isinstance(answer, Done):
            kept = f" What it did is on branch {link.branch}." if link.branch else ""
            await self._note(link, f"Holdfast task {link.task_id} {link.task_state}: {link.reason}.{kept}")
        return None

    async def _close(self, link: Link) -> str | None:
        closing = await self._begin(link, LinkState.CLOSING)
        if closing is None:
            return None
        answer = await self._tracker.close(link.issue, link.assignee, self._result(link))
        if isinstance(answer, Unknown):
            return answer.why
        if isinstance(answer, Refused) and not answer.is_over:
            await self._lost(closing, answer.holder)
        elif isinstance(answer, Done) and answer.overwrote is not None:
            await self._lost(closing, "somebody took it over in the same moment", answer.overwrote)
        else:
            how = "its task completed" if isinstance(answer, Done) else answer.holder
            await self._write(lambda tx: tx.links.move(closing, LinkState.CLOSED, how, self._now()))
        return None

    async def _leave(self, link: Link) -> str | None:
        left = await self._write(lambda tx: tx.links.move(link, LinkState.LEFT, "its task completed", self._now()))
        if left is not None:
            await self._note(link, self._result(link))
        return None

    async def _check(self, link: Link) -> str | None:
        """A person may have changed it since: then it is theirs, whatever they did. A running task goes on."""
        shown = await self._tracker.show(link.issue)
        if isinstance(shown, Unknown):
            return shown.why
        if isinstance(shown, Found) and shown.issue.is_held_by(link.assignee):
            return None
        holder = shown.issue.holder if isinstance(shown, Found) else "it is gone"
        goes_on = "; its task goes on" if link.task_state is TaskState.RUNNING else ""
        await self._lost(link, f"{holder}{goes_on}")
        return None

    # -- pieces --------------------------------------------------------------------------------------------------

    async def _begin(self, link: Link, state: LinkState) -> Link | None:
        """The intent; it stands already when an earlier supervisor, or a settle, recorded it."""
        if link.state is state:
            return link
        return await self._write(lambda tx: tx.links.move(link, state, link.reason, self._now()))

    async def _lost(self, link: Link, holder: str, overwrote: Overwrote | None = None) -> None:
        def lose(tx: Transaction) -> None:
            tx.links.move(link, LinkState.LOST, holder, self._now())
            self._tell(tx, link, overwrote)

        await self._write(lose)

    async def _note(self, link: Link, text: str) -> None:
        """For people; what matters is done. At most once: a tracker that does not take it is not asked again."""
        await self._tracker.note(link.issue, link.assignee, text)

    def _result(self, link: Link) -> str:
        work = f"its work is on branch {link.branch}" if link.branch else "it left no branch"
        return f"Holdfast task {link.task_id} completed; {work}."

    def _tell(self, tx: Transaction, link: Link, overwrote: Overwrote | None) -> None:
        if overwrote is None:
            return
        theirs = f"{overwrote.assignee or 'nobody'}, {overwrote.status}"
        done = "It was put back." if overwrote.restored else "It could not be put back, because it changed again since."
        message = (
            f"Issue {link.issue} of {self._repo.path} was changed (to: {theirs}) between our look and our word, which "
            f"went over it. {done}"
        )
        data = {"issue": link.issue, "assignee": overwrote.assignee, "status": overwrote.status}
        event = Event(
            kind="issue.overwritten",
            level=Level.WARNING,
            component="trackers",
            task_id=link.task_id,
            message=message,
            data={**data, "restored": overwrote.restored},
        )
        tx.events.emit(event, self._now())
        tx.events.raise_alert(
            overwritten_alert(link.repo_id, link.issue),
            message,
            f"Look at issue {link.issue} in your tracker; acknowledge with `holdfast alerts ack`.",
            self._now(),
            task_id=link.task_id,
        )

    def _resolve_task(self, issue: Issue) -> Callable[[Transaction], Task]:
        assert self._context.ports.trackers is not None
        return self._context.ports.trackers.resolve_task(self._repo, issue)

    def _now(self) -> Instant:
        return self._context.clock()

    async def _write(self, operation: Callable[[Transaction], T]) -> T:
        return await self._context.writer.write(operation)
