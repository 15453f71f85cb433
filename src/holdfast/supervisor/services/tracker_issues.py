"""The steps of one tracker issue: record the intent, change the tracker, read the issue back, record the result.

After a crash between any two steps, the intent shows which steps are left, and the issue itself shows what was done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.base.concurrency import run_in_thread
from holdfast.base.instant import Instant
from holdfast.core.model import Event, Level, Repo, Task
from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.core.tasks.trackers import Issue, IssueLink, LinkState, LinkStep
from holdfast.store.port.trackers import overwritten_alert
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context
from holdfast.supervisor.ports import TrackerSetup
from holdfast.trackers.port import ChangeDone, ChangeRefused, FoundIssue, MissingIssue, OverwrittenChange, UnknownAnswer

T = TypeVar("T")


class IssueSteps:
    """The steps for the issues of one repository. `name` is Holdfast's name in the tracker."""

    def __init__(self, context: Context, repo: Repo, setup: TrackerSetup, name: str) -> None:
        self._context = context
        self._repo = repo
        self._setup = setup
        self._tracker = setup.tracker
        self._name = name

    async def do(self, step: LinkStep, link: IssueLink) -> str | None:
        """Carry out one step. Return the reason if the tracker did not answer, else None."""
        if step is LinkStep.RELEASE:
            return await self._release(link)
        if step is LinkStep.CLOSE:
            return await self._close(link)
        if step is LinkStep.LEAVE:
            return await self._leave(link)
        if step is LinkStep.CLAIM:
            return await self._continue_claim(link)
        if step is LinkStep.CLAIM_AGAIN:
            return await self._claim_again(link)
        return await self._check_still_ours(link)

    async def take(self, issue: Issue) -> bool | str:
        """Turn a ready issue into a task.

        Return True if the issue became a task, or the reason why the tracker did not answer.
        """
        # Everything that can be refused is refused before the claim.
        operation = await run_in_thread(self._resolve_task, issue)
        link = await self._write(lambda tx: tx.issue_links.intend(self._repo.id, issue.id, self._name, self._now()))
        return False if link is None else await self._claim_new(link, operation)

    # -- taking --------------------------------------------------------------------------------------------------

    async def _continue_claim(self, link: IssueLink) -> str | None:
        """Continue an intent whose supervisor died: read from the tracker whether the issue was assigned to this
        home."""
        shown = await self._tracker.show(link.issue)
        if isinstance(shown, UnknownAnswer):
            return shown.why
        if isinstance(shown, MissingIssue) or not (shown.issue.is_free or shown.issue.is_held_by(link.assignee)):
            await self._write(lambda tx: tx.issue_links.drop(link, "it is not ours", self._now()))
            return None
        taken = await self._claim_new(link, await run_in_thread(self._resolve_task, shown.issue))
        return taken if isinstance(taken, str) else None

    async def _claim_new(self, link: IssueLink, operation: Callable[[Transaction], Task]) -> bool | str:
        answer = await self._tracker.claim(link.issue, link.assignee)
        if isinstance(answer, UnknownAnswer):
            return answer.why  # the intent stays, and is looked at again
        if isinstance(answer, ChangeRefused) or answer.overwrote is not None:
            overwrote = answer.overwrote if isinstance(answer, ChangeDone) else None

            def give_up(tx: Transaction) -> None:
                tx.issue_links.drop(link, "it is not ours", self._now())
                self._report_overwritten(tx, link, overwrote)

            await self._write(give_up)
            return False

        def accept(tx: Transaction) -> None:
            task = operation(tx)
            tx.issue_links.link_task(link, task.id, self._now())

        await self._write(accept)
        self._context.bell.ring()
        return True

    async def _claim_again(self, link: IssueLink) -> str | None:
        """Claim again an issue that was free for a while. If another took the issue meanwhile, its task here gives it
        up."""
        if link.state is not LinkState.INTENDED:
            intended = await self._write(lambda tx: tx.issue_links.record_intent_again(link, self._name, self._now()))
            if intended is None:
                await self._give_up_issue(link, "another task of this home has it", None)
                return None
            link = intended
        answer = await self._tracker.claim(link.issue, link.assignee)
        if isinstance(answer, UnknownAnswer):
            return answer.why
        if isinstance(answer, ChangeDone) and answer.overwrote is None:
            held = await self._write(
                lambda tx: tx.issue_links.move(link, LinkState.CLAIMED, "claimed again for its task", self._now())
            )
            self._context.bell.ring()
            return None if held is not None else "its link was changed under us"
        if isinstance(answer, ChangeRefused):
            if answer.is_free:
                return f"it refuses the claim of issue {link.issue}, although nobody has it"
            await self._give_up_issue(link, answer.holder, None)
        else:
            await self._give_up_issue(link, "somebody took it at the same moment", answer.overwrote)
        return None

    async def _give_up_issue(self, link: IssueLink, holder: str, overwrote: OverwrittenChange | None) -> None:
        reason = f"Holdfast no longer holds its issue {link.issue}: {holder}"

        def stand_back(tx: Transaction) -> None:
            self._report_overwritten(tx, link, overwrote)
            if tx.issue_links.release_lost_claim(link, holder, self._now()) and link.task_id is not None:
                tx.tasks.cancel_waiting(link.task_id, "Holdfast", reason, self._now())

        await self._write(stand_back)
        self._context.bell.ring()

    # -- giving back ---------------------------------------------------------------------------------------------

    async def _release(self, link: IssueLink) -> str | None:
        releasing = await self._record_intent(link, LinkState.RELEASING)
        if releasing is None:
            return None
        answer = await self._tracker.release(link.issue, link.assignee)
        if isinstance(answer, UnknownAnswer):
            return answer.why
        if isinstance(answer, ChangeRefused) and not answer.is_free:
            await self._record_loss(releasing, answer.holder)
            return None
        overwrote = answer.overwrote if isinstance(answer, ChangeDone) else None
        if overwrote is not None:
            await self._record_loss(
                releasing, f"{overwrote.assignee or 'somebody'} changed it at the same moment", overwrote
            )
            return None
        is_ended = link.task_state in TASK_TERMINAL
        why = f"its task {link.task_state}: {link.reason}" if is_ended else "its agent is dead"
        await self._write(lambda tx: tx.issue_links.move(releasing, LinkState.RELEASED, why, self._now()))
        if is_ended and link.task_id is not None and isinstance(answer, ChangeDone):
            kept = f" Its work is on branch {link.branch}." if link.branch else ""
            await self._add_note(link, f"Holdfast task {link.task_id} {link.task_state}: {link.reason}.{kept}")
        return None

    async def _close(self, link: IssueLink) -> str | None:
        closing = await self._record_intent(link, LinkState.CLOSING)
        if closing is None:
            return None
        answer = await self._tracker.close(link.issue, link.assignee, self._result(link))
        if isinstance(answer, UnknownAnswer):
            return answer.why
        if isinstance(answer, ChangeRefused) and not answer.is_over:
            await self._record_loss(closing, answer.holder)
        elif isinstance(answer, ChangeDone) and answer.overwrote is not None:
            await self._record_loss(closing, "somebody took it over in the same moment", answer.overwrote)
        else:
            how = "its task completed" if isinstance(answer, ChangeDone) else answer.holder
            await self._write(lambda tx: tx.issue_links.move(closing, LinkState.CLOSED, how, self._now()))
        return None

    async def _leave(self, link: IssueLink) -> str | None:
        left = await self._write(
            lambda tx: tx.issue_links.move(link, LinkState.LEFT, "its task completed", self._now())
        )
        if left is not None:
            await self._add_note(link, self._result(link))
        return None

    async def _check_still_ours(self, link: IssueLink) -> str | None:
        """Check whether the issue is still claimed by this home. If a person changed the issue, the claim ends,
        whatever the change was. A running task continues."""
        shown = await self._tracker.show(link.issue)
        if isinstance(shown, UnknownAnswer):
            return shown.why
        if isinstance(shown, FoundIssue) and shown.issue.is_held_by(link.assignee):
            return None
        holder = shown.issue.holder if isinstance(shown, FoundIssue) else "it is gone"
        goes_on = "; its task continues" if link.task_state is TaskState.RUNNING else ""
        await self._record_loss(link, f"{holder}{goes_on}")
        return None

    # -- pieces --------------------------------------------------------------------------------------------------

    async def _record_intent(self, link: IssueLink, state: LinkState) -> IssueLink | None:
        """Record the intent to change the issue. An earlier supervisor, or a settlement, may have recorded it
        already."""
        if link.state is state:
            return link
        return await self._write(lambda tx: tx.issue_links.move(link, state, link.reason, self._now()))

    async def _record_loss(self, link: IssueLink, holder: str, overwrote: OverwrittenChange | None = None) -> None:
        def lose(tx: Transaction) -> None:
            tx.issue_links.move(link, LinkState.LOST, holder, self._now())
            self._report_overwritten(tx, link, overwrote)

        await self._write(lose)

    async def _add_note(self, link: IssueLink, text: str) -> None:
        """Add a note for people to the issue, after everything else is done. The note is sent at most once."""
        await self._tracker.note(link.issue, link.assignee, text)

    def _result(self, link: IssueLink) -> str:
        work = f"its work is on branch {link.branch}" if link.branch else "it left no branch"
        return f"Holdfast task {link.task_id} completed; {work}."

    def _report_overwritten(self, tx: Transaction, link: IssueLink, overwrote: OverwrittenChange | None) -> None:
        if overwrote is None:
            return
        theirs = f"{overwrote.assignee or 'nobody'}, {overwrote.status}"
        done = (
            "The change was undone."
            if overwrote.restored
            else "The change could not be undone, because the issue changed again."
        )
        message = (
            f"Issue {link.issue} of {self._repo.path} was changed (to: {theirs}) after Holdfast had read it, "
            f"and Holdfast overwrote the change. {done}"
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
