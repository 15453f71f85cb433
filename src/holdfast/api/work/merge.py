"""The merge of a task's branch into the branch that the task started from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.api.commands import operator_name
from holdfast.api.queries import Queries
from holdfast.base import clock
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, HoldfastError, NotFound, Refused, UsageError
from holdfast.base.text import clean_text, subject_line
from holdfast.core.model import Event
from holdfast.core.states import TASK_TERMINAL
from holdfast.core.tasks.messages import TRAILER, task_commit_message
from holdfast.store.open import open_store
from holdfast.workspaces.git.merge import (
    MergeConflict,
    MergeRequest,
    compute_merge,
    count_commits_ahead,
    find_checkout,
    has_commit,
    move_target,
    refuse_foreign_filters,
    refuse_rebase_under_way,
    refuse_unfinished,
    resolve_branch_name,
    tip_of,
)

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails

_LOOKED_BACK = 1000  # events of a task that are searched. Merges come last


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeResult:
    source: str
    target: str
    commit: str
    how: str  # already there | fast-forward | merge commit | squash
    checkout: str | None  # the user's checkout that was moved to the new commit


def branch_of(task: TaskDetails) -> str:
    """Return the branch that has the work of an ended task. Raises Conflict, Refused or NotFound if there is none."""
    if task["state"] not in {str(state) for state in TASK_TERMINAL}:
        raise Conflict(f"Task {task['id']} is {task['state']}: its branch may still change. See `holdfast why`.")
    branch = task["branch"]
    if not os.path.isdir(task["repo"]):
        raise Refused(f"The repository {task['repo']} is gone.")
    if not branch or tip_of(task["repo"], branch) is None:
        saved = f"; `holdfast salvage restore {task['id']} --branch NAME` makes one" if task["salvages"] else ""
        raise NotFound(f"Task {task['id']} has no branch with work of its own{saved}.")
    return str(branch)


def target_of(task: TaskDetails, into: str | None) -> str:
    target = into or str(task["base_ref"])
    if tip_of(task["repo"], target) is None:
        wrong = f"There is no branch '{target}' in {task['repo']}"
        raise UsageError(f"{wrong}: name one with --into BRANCH." if into is None else f"{wrong}.")
    return resolve_branch_name(task["repo"], target)


@dataclass(frozen=True, kw_only=True, slots=True)
class MergePreview:
    source: str
    target: str
    commits: int  # commits that the target does not have
    checkout: str | None  # the user's checkout that would be moved to the new commit


def preview(task: TaskDetails, into: str | None) -> MergePreview:
    """Return a preview of `merge`. Raises the refusals that `merge` raises before it computes anything."""
    source, target = branch_of(task), target_of(task, into)
    repo = str(task["repo"])
    refuse_rebase_under_way(repo, target)
    checkout = find_checkout(repo, target)
    commits = count_commits_ahead(repo, target, source)
    if checkout is not None and commits:
        refuse_unfinished(checkout)
    return MergePreview(source=source, target=target, commits=commits, checkout=checkout)


def merge(
    home: str, task: TaskDetails, into: str | None, *, no_ff: bool, squash: bool = False, message: str | None = None
) -> MergeResult:
    """Merge the branch of an ended task. `message`: of the new commit, which is then made in any case."""
    if message is not None and not message.strip():
        raise UsageError("The message of the merge is empty. Nothing was changed.")
    if squash and no_ff:
        raise UsageError("A squash makes no merge commit: choose --squash or --no-ff. Nothing was changed.")
    source, target = branch_of(task), target_of(task, into)
    repo = str(task["repo"])
    source_tip, target_tip = tip_of(repo, source), tip_of(repo, target)
    if source == target:
        raise UsageError(f"{source} cannot be merged into itself.")
    if source_tip is None or target_tip is None:
        raise Conflict(f"{source} or {target} was deleted meanwhile. Nothing was changed.")
    plan = MergeRequest(repo=repo, source=source, source_tip=source_tip, target=target, target_tip=target_tip)
    if has_commit(repo, target_tip, source_tip):
        return _already_there(home, task, plan)
    refuse_rebase_under_way(repo, target)
    checkout = find_checkout(repo, target)
    if checkout is not None:
        refuse_unfinished(checkout)
    text = _commit_message(task, plan, message, is_squash=squash)
    try:
        commit = compute_merge(plan, home, text, always_commit=no_ff or message is not None, is_squash=squash)
    except MergeConflict as error:
        offer = f" Or let its agent resolve the conflict: `holdfast send {task['id']} --rebase`."
        raise MergeConflict(f"{error}{offer if into in (None, task['base_ref']) else ''}") from error
    if commit == target_tip:
        return _already_there(home, task, plan)
    if checkout is not None:
        refuse_foreign_filters(plan, commit, home)
    move_target(plan, commit, checkout)
    how = "squash" if squash else "fast-forward" if commit == source_tip else "merge commit"
    merged = MergeResult(source=source, target=target, commit=commit, how=how, checkout=checkout)
    _emit_merged(home, task, merged, source_tip)
    return merged


def has_unmerged_work(queries: Queries, task: TaskDetails, into: str | None) -> bool:
    """True if a branch of the task has commits that its target lacks, and that were not merged as a squash.

    A task whose merge would be refused counts: the merge then reports the reason.
    """
    try:
        source, target = branch_of(task), target_of(task, into)
    except NotFound:
        return False
    except HoldfastError:
        return True
    tip, target_tip = tip_of(str(task["repo"]), source), tip_of(str(task["repo"]), target)
    if tip is None or target_tip is None or has_commit(str(task["repo"]), target_tip, tip):
        return False
    told = queries.last_events(task_id=task["id"], limit=_LOOKED_BACK)
    merged = [event["data"] for event in told if event["kind"] == "branch.merged"]
    return not any(data["into"] == target and data.get("source") == tip for data in merged)


def _already_there(home: str, task: TaskDetails, plan: MergeRequest) -> MergeResult:
    there = MergeResult(
        source=plan.source, target=plan.target, commit=plan.target_tip, how="already there", checkout=None
    )
    # No event yet: an earlier merge was killed before it recorded its event, or a person merged by hand.
    if not _has_merge_event(home, task, plan.target):
        _emit_merged(home, task, there, plan.source_tip)
    return there


def _commit_message(task: TaskDetails, plan: MergeRequest, message: str | None, *, is_squash: bool) -> str:
    """Return the message of the new commit: the person's own, or the subject of the prompt. Both name the task.

    A merge commit says that it is one: the commits that it merges may have the same subject.
    """
    if message is None:
        subject = subject_line(task["prompt"])
        title = subject if is_squash or not subject else f"Merge: {subject}"
        return task_commit_message(task["id"], title, f"The work of {plan.source}.")
    subject, _, body = clean_text(message).strip().partition("\n")
    return "\n\n".join([subject, *([body.strip()] if body.strip() else []), f"{TRAILER}: {task['id']}\n"])


def _has_merge_event(home: str, task: TaskDetails, target: str) -> bool:
    told = Queries(home).last_events(task_id=task["id"], limit=_LOOKED_BACK)
    return any(event["kind"] == "branch.merged" and event["data"]["into"] == target for event in told)


def _emit_merged(home: str, task: TaskDetails, merged: MergeResult, source_tip: str) -> None:
    event = Event(
        kind="branch.merged",
        component="workspaces",
        task_id=task["id"],
        message=f"{merged.source} was merged into {merged.target} by {operator_name()} "
        f"({merged.how}, {merged.commit[:12]}).",
        data={
            "branch": merged.source,
            "into": merged.target,
            "commit": merged.commit,
            "how": merged.how,
            "source": source_tip,
        },
    )
    open_store(home, create=False).write(lambda tx: tx.events.emit(event, clock.now()))
