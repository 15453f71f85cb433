"""Commands that change the store. Each is one short transaction, after which the supervisor is woken.

A waiting task is paused or cancelled at once. For a running task, a durable request is recorded, which a supervisor
carries out. An operator can give a paused task more money or tokens: the task is then resumed, but only within a
spending cap.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.base import clock
from holdfast.base.errors import Conflict, NotFound, UsageError
from holdfast.base.home import find_user_name, home_directory
from holdfast.core.dispatch.spending_caps import SpendingCap, format_labels
from holdfast.core.model import PauseReason, Repo, RequestKind, Strategy, Task
from holdfast.core.runs.retry_budgets import ResumeDecision
from holdfast.core.states import TASK_TERMINAL, TaskState
from holdfast.intake import repository
from holdfast.intake.new_task import NewTask as NewTask
from holdfast.intake.resolve import BIGGEST_PROMPT as BIGGEST_PROMPT
from holdfast.intake.resolve import check_prompt as check_prompt
from holdfast.intake.resolve import resolve_task
from holdfast.processes.caller import find_caller
from holdfast.store import doorbell
from holdfast.store.open import open_store
from holdfast.store.port.transaction import Store, Transaction

if TYPE_CHECKING:
    from holdfast.api.tasks.changes import Given

T = TypeVar("T")


def change_store(home: str, operation: Callable[[Transaction], T], *, create: bool = False) -> T:
    """Carry out `operation` in one transaction on the store of `home`, then wake the supervisor."""
    with contextlib.closing(open_store(home, create=create)) as store:
        return _write_and_wake(home, store, operation)


def _write_and_wake(home: str, store: Store, operation: Callable[[Transaction], T]) -> T:
    """Write in one transaction, then ring the doorbell of the supervisor. No other function in api/ rings it."""
    result = store.write(operation)
    doorbell.ring(home)
    return result


def allow_or_refuse(tx: Transaction, task_id: str, given: SpendingCap, by: str, *, force: bool) -> None:
    """Record the new budget of a resume. Raise Conflict if the task has no budget left after that.

    Call this in the transaction of the resume. A task that is resumed without a budget would only be paused again, and
    one of its resumes would be spent.
    """
    if given.usd is not None and not 0 < given.usd < math.inf:  # also false for NaN
        raise UsageError("A budget (--budget-usd) is an amount of dollars above 0. Nothing was changed.")
    if given:
        refuse_unreported(tx.tasks.get(task_id), given)
        tx.spending.change_cap(task_id, given, by, clock.now())
        _allow_family(tx, tx.tasks.get(task_id), given, by)
    task = tx.tasks.get(task_id)
    refuse_spent(tx, task)
    if task.pause_reason is PauseReason.BUDGET and not force:
        _refuse_spent_shared(tx, task)


def refuse_unreported(task: Task, given: SpendingCap) -> None:
    """Raise UsageError if the agent does not report the usage that the budget would limit."""
    from holdfast.agents.registry import AGENTS

    tells = AGENTS[task.spec.agent].capabilities
    for part, is_told, what in ((given.usd, tells.cost, "its cost"), (given.tokens, tells.tokens, "its tokens")):
        if part is not None and not is_told:
            agent = task.spec.agent
            untold = f"The agent '{agent}' does not report {what}"
            raise UsageError(f"{untold}, so this budget cannot be enforced. Nothing was changed.")


def _allow_family(tx: Transaction, task: Task, given: SpendingCap, by: str) -> None:
    """Raise the budget of the root task by the amount that its subtask gets."""
    root = tx.tasks.get(tx.spending.root_of(task))
    if root.id == task.id:
        return
    from holdfast.store.port.dispatch import cap_of  # only a new budget needs it: `add` does not

    cap, used, mine = cap_of(root), tx.spending.of_task(root), tx.spending.of_task(task)
    usd = used.usd + given.usd - mine.usd if given.usd is not None and cap.usd is not None else None
    tokens = used.tokens + given.tokens - mine.tokens if given.tokens is not None and cap.tokens is not None else None
    more = SpendingCap(
        usd=usd if usd is not None and usd > (cap.usd or 0.0) else None,
        tokens=tokens if tokens is not None and tokens > (cap.tokens or 0) else None,
    )
    if more:
        tx.spending.change_cap(root.id, more, by, clock.now(), is_root=True)


def refuse_spent(tx: Transaction, task: Task) -> None:
    from holdfast.store.port.dispatch import allowances_of

    allowance = next((allowance for allowance in allowances_of(tx, task) if allowance.spent), None)
    if allowance is None:
        return
    spent = allowance.cap.describe_exceeded(allowance.used)
    which = "--budget-tokens N" if spent.endswith("tokens") and "$" not in spent else "--budget-usd N"
    raise Conflict(
        f"Task {task.id} has spent its budget ({allowance.spent}); nothing was changed. Raise the total: "
        f"`holdfast resume {task.id} {which}`. Or end it: `holdfast cancel {task.id}`."
    )


def _refuse_spent_shared(tx: Transaction, task: Task) -> None:
    labels = format_labels(task.spec.labels)
    for found in tx.spending.spent():
        if found.label is None or found.label in labels:
            raise Conflict(
                f"Task {task.id} has to wait: {found.reason}; nothing was changed. "
                f"`holdfast why {task.id}` shows when more becomes available. Or raise the budget in your settings."
            )


def operator_name() -> str:
    """Return the name of the user who runs this command, and the task if the command comes from inside a run.

    The name is looked up by the user id, because an agent can set $USER.
    """
    name = find_user_name(os.getuid()) or f"uid {os.getuid()}"
    caller = find_caller(home_directory())
    if caller is None:
        return name
    return f"{name} (inside {f'run {caller.run} of ' if caller.run else ''}task {caller.task})"


class Commands:
    """The commands of one home, on one open store."""

    def __init__(self, home: str, *, create: bool = True) -> None:
        self.home = home
        self._store: Store = open_store(home, create=create)
        self.notes: list[str] = []  # notes of the last `add`

    def register(self, directory: str, moved_from: str | None = None) -> Repo:
        """Record a repository. `moved_from`: its directory when its tasks were queued."""
        top, common = repository.locate_repository(directory)
        if moved_from is None:
            return self._store.write(lambda tx: tx.workspaces.register_repo(top, common, clock.now()))
        old = os.path.normpath(moved_from)
        if os.path.isdir(os.path.join(old, ".git")):
            raise Conflict(f"There is still a repository in {old}; nothing was changed.")
        return self.write(lambda tx: tx.workspaces.move_repo(old, top, common))

    def add(self, new: NewTask) -> Task:
        """Add a task. It is on disk when this returns."""
        resolved = resolve_task(self.home, new, self.place_of(new.directory))
        self.notes = list(resolved.notes)
        by = operator_name()
        return self.write(lambda tx: resolved.add(tx, by=by))

    def write(self, operation: Callable[[Transaction], T]) -> T:
        """Carry out `operation` in one transaction, then wake the supervisor."""
        return _write_and_wake(self.home, self._store, operation)

    def place_of(self, directory: str) -> tuple[str, str]:
        """Return the checkout and the git directory of the repository that tasks added from `directory` are for.

        An agent adds tasks from its workspace: they are for the repository that the workspace was made of.
        """
        repo_id = repository.repo_of_workspace(self.home, directory)
        if repo_id is not None:
            with contextlib.suppress(NotFound):
                repo = self._store.write(lambda tx: tx.workspaces.repo(repo_id))
                return repository.locate_repository(repo.path)
        return repository.locate_repository(directory)

    def cancel(self, task_id: str, why: str, *, assume_dead: bool = False, subtasks: bool = True) -> int | None:
        """Cancel a task, and its subtasks if `subtasks` is true.

        Return None if the task was waiting and is cancelled now. Return the number of the request if a supervisor has
        to carry it out.
        """

        by = operator_name()
        return self.write(lambda tx: cancel_in(tx, task_id, by, why, assume_dead=assume_dead, subtasks=subtasks))

    def retry(self, task_id: str, *, fresh: bool, given: Given | None = None) -> None:
        """Queue an ended task again, from its base if `fresh` is true. `given`: further changes."""
        if fresh and self._store.write(lambda tx: tx.tasks.get(task_id)).state in TASK_TERMINAL:  # else refused anyway
            self.refuse_in_use(task_id)
        self.write(lambda tx: retry_in(tx, task_id, operator_name(), fresh=fresh, given=given))

    def refuse_in_use(self, task_id: str) -> None:
        """Raise Conflict if a process works in the workspace: a fresh start would remove the workspace (R-CLEAN-08)."""
        from holdfast.workspaces.removal.in_use import WorkspaceUsers, lock_exclusive

        there = self._store.write(lambda tx: tx.workspaces.all_current(task_id))
        for workspace in (one for one in there if one.strategy is not Strategy.NONE):
            with lock_exclusive(self.home, workspace.id) as alone:
                if not alone or WorkspaceUsers().of(workspace.path):
                    raise Conflict(
                        f"{workspace.path} would be removed, but a process works in it. "
                        "Stop that process, then try again."
                    )

    def resume(
        self,
        task_id: str,
        *,
        force: bool = False,
        checkpoint: int | None = None,
        budget_usd: float | None = None,
        budget_tokens: int | None = None,
        given: Given | None = None,
    ) -> str:
        """Resume a paused task by one compare-and-set (R-RES-02). Return how many resumes are spent.

        Raise Conflict if no resume is left and `force` is false: nothing is changed then.

        `checkpoint`: the next attempt starts from it. The caller has checked that it can be read (R-RES-06).
        """

        cap = SpendingCap(usd=budget_usd, tokens=budget_tokens)
        by = operator_name()
        return self.write(
            lambda tx: resume_in(tx, task_id, by, force=force, checkpoint=checkpoint, cap=cap, given=given)
        ).message

    def down(self, mode: str) -> int:
        """Ask the supervisor to stop. Return the number of the request."""
        return self.write(
            lambda tx: tx.requests.ask(RequestKind.DOWN, None, operator_name(), "", {"mode": mode}, clock.now())
        )

    def ack_alert(self, alert_id: int, why: str = "") -> None:
        """Acknowledge one alert."""
        self.write(lambda tx: tx.events.ack_alert(alert_id, operator_name(), clock.now(), why))

    def ack_all_alerts(self, why: str = "", *, level: str | None = None) -> list[int]:
        """Acknowledge the open alerts of at least `level`. Return their numbers."""
        from holdfast.core.tasks.alerts import is_at_least

        def acknowledge(tx: Transaction) -> list[int]:
            chosen = [number for number, how in tx.events.open_alerts() if level is None or is_at_least(how, level)]
            for number in chosen:
                tx.events.ack_alert(number, operator_name(), clock.now(), why)
            return chosen

        return self.write(acknowledge)


def cancel_in(
    tx: Transaction,
    task_id: str,
    by: str,
    why: str,
    *,
    assume_dead: bool = False,
    subtasks: bool = True,
    may_be_cancelled: bool = False,
) -> int | None:
    """Cancel a task in the transaction `tx`. Return the number of the request if a supervisor has to carry it out.

    `may_be_cancelled`: do not raise Conflict for a task that is cancelled already.
    """
    task = tx.tasks.get(task_id)
    if may_be_cancelled and task.state is TaskState.CANCELLED:
        return None
    if task.state in (TaskState.QUEUED, TaskState.PAUSED):
        tx.tasks.cancel_waiting(task_id, by, why, clock.now(), subtasks=subtasks)
        return None
    if task.state is not TaskState.RUNNING:
        raise Conflict(
            f"Task {task_id} is {task.state} already; there is nothing to cancel. `holdfast show {task_id}` shows it."
        )
    data = {"assume_dead": assume_dead, "subtasks": subtasks}
    return tx.requests.ask(RequestKind.CANCEL, task_id, by, why, data, clock.now())


def retry_in(tx: Transaction, task_id: str, by: str, *, fresh: bool, given: Given | None) -> None:
    """Queue an ended task again in the transaction `tx`, with the options `given`."""
    change_first(tx, task_id, given, by)
    tx.tasks.retry(task_id, by, fresh, clock.now())
    tell_next_run(tx, task_id, given, by)


def resume_in(
    tx: Transaction,
    task_id: str,
    by: str,
    *,
    force: bool = False,
    checkpoint: int | None = None,
    cap: SpendingCap | None = None,
    given: Given | None = None,
) -> ResumeDecision:
    """Resume a paused task in the transaction `tx`, with the options `given`. Raise Conflict if no resume is left."""
    if given is not None and tx.tasks.get(task_id).state is TaskState.PAUSED:  # else the resume is refused anyway
        change_first(tx, task_id, given, by)
    if not force:
        _refuse_closed_account(tx, task_id)
    allow_or_refuse(tx, task_id, cap or SpendingCap(), by, force=force)
    decided = tx.tasks.resume(task_id, by, clock.now(), force=force)
    if not decided.allowed:
        raise _no_resume_left(tx.tasks.get(task_id))
    if checkpoint is not None:
        chosen = tx.checkpoints.choose(task_id, checkpoint, by, clock.now())
        tx.stages.return_to_checkpoint(task_id, chosen, clock.now())
    tell_next_run(tx, task_id, given, by)
    return decided


def change_first(tx: Transaction, task_id: str, given: Given | None, by: str) -> None:
    """Change a task as `given` says, in the transaction that also continues the task."""
    if given is not None and given.change:
        from holdfast.api.tasks.changes import change_in

        change_in(tx, task_id, given.change, by)


def tell_next_run(tx: Transaction, task_id: str, given: Given | None, by: str) -> None:
    """Give the next run of a task its changed prompt or further words, even in a session that continues."""
    if given is not None and (given.words or given.change.prompt is not None):
        from holdfast.api.tasks.changes import tell_in

        tell_in(tx, task_id, given.change.prompt, given.words, by)


def _no_resume_left(task: Task) -> Conflict:
    used = f"{task.resume_attempts} of {task.spec.max_resumes}"
    return Conflict(
        f"Task {task.id} has no resume left ({used}); nothing was changed. Resume it once more: "
        f"`holdfast resume {task.id} --force`. Or raise the limit: `holdfast resume {task.id} --max-resumes "
        f"{2 * task.resume_attempts + 2}`. Or end it: `holdfast cancel {task.id}`."
    )


def _refuse_closed_account(tx: Transaction, task_id: str) -> None:
    """Raise Conflict if the task waits for its account. Resuming the task would spend a resume, and the task would only
    wait in the queue."""
    account = tx.accounts.account_blocking(tx.tasks.get(task_id), clock.now())
    if account is not None:
        how = "stopped" if account.until is None else "parked"
        raise Conflict(
            f"Task {task_id} waits for its account {account.full_name}, which is {how}: {account.reason}. Nothing was "
            f"spent. `holdfast accounts resume {account.full_name}` opens it, and its tasks continue; "
            f"`holdfast resume {task_id} --force` lets this task try it."
        )


def pause(home: str, task_id: str, why: str = "", seconds: float | None = None, *, force: bool = False) -> int | None:
    """Pause a task: at once while it waits, by a durable request while its agent works.

    Return None if the task was queued and is paused now, else the number of the request.
    """

    by = operator_name()
    return change_store(home, lambda tx: pause_in(tx, task_id, by, why, seconds, force=force))


def pause_in(
    tx: Transaction, task_id: str, by: str, why: str = "", seconds: float | None = None, *, force: bool = False
) -> int | None:
    """Pause a task in the transaction `tx`. Return the number of the request if its agent works."""
    now, task = clock.now(), tx.tasks.get(task_id)
    until = None if seconds is None else now.wall + seconds
    if task.state is TaskState.QUEUED:
        tx.tasks.pause_waiting(task_id, by, why, until, now)
        return None
    if task.state is not TaskState.RUNNING:
        what = "says until when" if task.state is TaskState.PAUSED else "says how it ended"
        raise Conflict(f"Task {task_id} is {task.state} already; nothing was changed. `holdfast why {task_id}` {what}.")
    data = {"until": until, "seconds": seconds, "force": force}
    return tx.requests.ask(RequestKind.PAUSE, task_id, by, why, data, now)
