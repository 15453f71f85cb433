"""Functions that save work before its workspace is removed, for running tasks that end and for waiting tasks."""

from __future__ import annotations

import os
from dataclasses import replace

from holdfast.agents.port import AgentAdapter, Permission
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import HoldfastError, WorkspaceProblem, is_transient
from holdfast.base.files import listed
from holdfast.base.ids import new_id
from holdfast.core.model import Event, Level, Repo, Strategy, Task, TaskSpec, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.preserve import RETRY_TIER, Disposition
from holdfast.core.states import WorkspaceState
from holdfast.core.tasks.messages import is_rebase_request, task_commit_message
from holdfast.store.port.transaction import Salvaged, Transaction
from holdfast.store.port.values import vanished_alert
from holdfast.store.port.workspaces import Checkpoint
from holdfast.supervisor.context import Context
from holdfast.workspaces.names import identity_in
from holdfast.workspaces.port import CheckpointResult, SalvageResult


def litter_patterns(context: Context, spec: TaskSpec) -> tuple[str, ...]:
    """Return the patterns of unwanted files that the agents of all stages leave. They cover all stages, because an
    agent does not remove the files that another one left."""
    return tuple(pattern for agent in _agents_of(context, spec) for pattern in agent.litter)


def own_edits(context: Context, spec: TaskSpec) -> dict[str, str]:
    """Return the texts that the CLIs of all stages insert into files of the workspace by themselves."""
    return {file: text for agent in _agents_of(context, spec) for file, text in agent.own_edits.items()}


def _agents_of(context: Context, spec: TaskSpec) -> list[AgentAdapter]:
    names = [spec.agent]
    for stage in spec.stages:
        names += [stage.agent, *(member.agent for member in stage.members)]
    known = (context.ports.agents.get(name) for name in dict.fromkeys(names))
    return [agent for agent in known if agent is not None]


@dataclass(frozen=True, slots=True)
class SaveProblem:
    """A problem because of which work could not be saved."""

    text: str
    is_passing: bool = False  # a full or read-only disk, or a repository that is gone: tried again later

    def __str__(self) -> str:
        return self.text

    @property
    def disposition(self) -> Disposition:
        """The disposition that preserves the workspace, because only the workspace has the work."""
        return Disposition(preserve=True, tier=RETRY_TIER if self.is_passing else "safety", reason=self.text)


async def commit_leftovers(context: Context, task: Task, repo: Repo, workspace: Workspace) -> SaveProblem | None:
    """Commit what a successful agent left uncommitted. Return a problem only if it is temporary.

    Any other failure is only a warning, because the salvage saves what git cannot commit.
    """
    body = "Left uncommitted by the agent; committed by Holdfast."
    message = task_commit_message(task.id, task.spec.prompt, body)
    given = [one.text for one in await context.writer.write(lambda tx: tx.messages.of_task(task.id)) if one.run_id]
    asked = [text for text in given if not is_rebase_request(text)]
    later = task_commit_message(task.id, asked[-1], body) if asked else ""
    leave = (*task.spec.workspace.copy, *litter_patterns(context, task.spec))
    may_write = bool(task.spec.stages) or task.spec.agent_options.get("permission") != Permission.READ
    mode = task.spec.commit_leftovers if may_write else "none"  # a salvage keeps what there is all the same
    level = Level.INFO
    try:
        commit = await context.ports.strategy_of(task.spec).commit_leftovers(
            repo, workspace, mode, message, leave, task.spec.salvage, own_edits(context, task.spec),
            identity_in(task.spec.environment.get("set")), later,
        )  # fmt: skip
        if commit is None:
            return None
        text = f"The uncommitted work of task {task.id} is now commit {commit[:12]} on {workspace.branch}."
    except WorkspaceProblem as error:
        if is_transient(error):
            return SaveProblem(f"its uncommitted work could not be committed: {error}", is_passing=True)
        commit, level = None, Level.WARNING
        text = f"The uncommitted work of task {task.id} could not be committed, so it is saved as a salvage: {error}"
    event = Event(
        kind="workspace.kept" if commit else "workspace.not-committed",
        level=level,
        component="workspaces",
        task_id=task.id,
        message=text,
        data={"commit": commit, "branch": workspace.branch},
    )
    await context.writer.write(lambda tx: tx.events.emit(event, context.clock()))
    return None


async def deliver_work(context: Context, spec: TaskSpec, repo: Repo, workspace: Workspace) -> SaveProblem | None:
    """Bring the task's commits into the user's repository. Return None if they are there, otherwise the reason."""
    try:
        await context.ports.strategy_of(spec).deliver(repo, workspace)
    except Exception as error:  # noqa: BLE001 - whatever failed, the consequence is the same: do not remove it
        return SaveProblem(f"its commits could not be brought into the repository: {error}", is_transient(error))
    return None


async def save_work(
    context: Context, spec: TaskSpec, repo: Repo, workspace: Workspace, reason: str, *, over: str | None = None
) -> SaveProblem | None:
    """Salvage what no branch holds. Return None if the workspace may be removed, otherwise the reason why it must be
    preserved.

    `over`: a checkpoint that will replace the content. Then the branch is saved too.
    """
    if workspace.state is WorkspaceState.INTENDED and over is None:
        return None  # never finished, so no agent has worked in it
    return (await salvage_work(context, spec, repo, workspace, reason, over=over))[0]


async def salvage_work(
    context: Context, spec: TaskSpec, repo: Repo, workspace: Workspace, reason: str, *, over: str | None = None
) -> tuple[SaveProblem | None, bool]:
    """Salvage what no branch holds. Return the problem or None, and True if everything was on a branch already."""
    try:
        rules = replace(spec.salvage, litter=litter_patterns(context, spec))
        saved = await context.ports.strategy_of(spec).salvage(repo, workspace, reason, rules, over=over)
    except Exception as error:  # noqa: BLE001 - whatever failed, the consequence is the same: do not remove it
        return SaveProblem(f"its work could not be saved: {error}", is_transient(error)), False
    if saved is None:
        return None, True
    await _record_salvage(context, workspace, saved, reason)
    if saved.partial:
        return SaveProblem(f"its work could only be saved in part: {saved.describe_missing}"), False
    return None, False


async def _record_salvage(context: Context, workspace: Workspace, saved: SalvageResult, reason: str) -> None:
    salvaged = Salvaged(
        id=new_id(),
        ref=saved.ref,
        commit=saved.commit,
        base=saved.base,
        files=saved.files,
        reason=reason,
        partial=saved.partial,
        details=saved.details,
    )
    await context.writer.write(lambda tx: tx.workspaces.record_salvage(workspace, salvaged, context.clock()))


# -- workspaces that vanished ------------------------------------------------------------------------------------------


def is_gone(workspace: Workspace) -> bool:
    """True if a finished workspace does not exist any more, or if the `.git` of a clone is gone: only that directory
    has the clone's commits."""
    if workspace.strategy is Strategy.NONE or workspace.state is WorkspaceState.INTENDED:
        return False
    if os.path.islink(workspace.path) or not os.path.isdir(workspace.path):
        return True
    if workspace.strategy in (Strategy.CLONE, Strategy.CONTAINER):
        return not os.path.lexists(os.path.join(workspace.path, ".git"))
    return workspace.branch is not None and not listed(workspace.path)


async def check_workspace(context: Context, task: Task, verdict: Verdict) -> Verdict:
    """Return the verdict, or `workspace_gone` for an agent that succeeded without leaving its workspace."""
    if verdict.outcome is not Outcome.COMPLETED:
        return verdict
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    if workspace is None or not is_gone(workspace):
        return verdict
    reason = f"its workspace {workspace.path} was gone when its agent ended ({verdict.reason})"
    return replace(verdict, outcome=Outcome.WORKSPACE_GONE, reason=reason)


async def report_vanished(context: Context, task: Task, repo: Repo, workspace: Workspace) -> None:
    """Save what the last checkpoint of a vanished workspace holds. Emit an event and raise an alert about it."""
    task_id = task.id
    kept = await context.writer.write(lambda tx: tx.checkpoints.of_workspace(workspace))
    last = kept[-1] if kept else None
    is_on_branch = await _has_delivered(context, task, repo, workspace)
    left = [f"Its commits are on branch {workspace.branch}."] if is_on_branch else []
    saved = None
    if last is not None:
        saved, how = await _save_last_checkpoint(context, task, repo, workspace, last)
        left += [how]
    message = f"The workspace {workspace.path} of task {task_id} was gone when its agent ended."
    text = " ".join(left) or "No checkpoint and no branch hold its work."
    event = Event(
        kind="workspace.vanished",
        level=Level.WARNING,
        component="workspaces",
        task_id=task_id,
        message=f"{message} {text}",
        reason="its workspace was removed while its agent worked, by the agent or from outside Holdfast",
        data={
            "workspace": workspace.id,
            "path": workspace.path,
            "branch": workspace.branch if is_on_branch else None,
            "checkpoint": None if last is None else last.number,
            "files": saved,
        },
    )
    restore = f"`holdfast salvage restore {task_id} --branch NAME` brings the saved work back. " if saved else ""

    def record(tx: Transaction) -> None:
        now = context.clock()
        tx.events.emit(event, now)
        tx.events.raise_alert(
            vanished_alert(workspace.id),
            f"{message} {text}",
            f"{restore}Find out what removed it, then run it again with `holdfast retry {task_id}`.",
            now,
            task_id=task_id,
        )

    await context.writer.write(record)


async def _has_delivered(context: Context, task: Task, repo: Repo, workspace: Workspace) -> bool:
    try:
        return await context.ports.strategy_of(task.spec).has_delivered(repo, workspace)
    except (HoldfastError, OSError):
        return False  # the repository cannot be read: no branch is named


async def _save_last_checkpoint(
    context: Context, task: Task, repo: Repo, workspace: Workspace, last: Checkpoint
) -> tuple[int | None, str]:
    """Make a salvage of the checkpoint. Return the number of saved files (None: no salvage was made), and a sentence
    for people."""
    reason = f"checkpoint {last.number} of a workspace that is gone"
    strategy = context.ports.strategy_of(task.spec)
    try:
        saved = await strategy.salvage_checkpoint(repo, workspace, _as_result(last), reason)
    except (HoldfastError, OSError) as error:
        return None, f"Its last checkpoint {last.number} could not be saved: {error}."
    if saved is None:
        return None, f"Its last checkpoint {last.number} has no further work."
    await _record_salvage(context, workspace, saved, reason)
    return saved.files, f"Its last checkpoint {last.number}, with {saved.files} changed file(s), is saved as a salvage."


def _as_result(last: Checkpoint) -> CheckpointResult:
    return CheckpointResult(
        ref=last.ref, commit=last.commit, base=last.base, files=last.files, key=last.key, details=last.details
    )


async def save_lost_stashes(context: Context, task: Task, repo: Repo, workspace: Workspace) -> SaveProblem | None:
    """Make a salvage of each checkpoint with a stash that the user's repository does not have any more.

    All worktrees share the user's list of stashes. A garbage collection by the user can destroy an agent's stash in
    that list.
    """
    strategy = context.ports.strategy_of(task.spec)
    lost: set[str] = set()
    for kept in await context.writer.write(lambda tx: tx.checkpoints.of_workspace(workspace)):
        stashes = kept.details.get("stashes")
        names = [str(name) for name in stashes if str(name) not in lost] if isinstance(stashes, list) else []
        try:
            missing = await strategy.list_missing(repo, names) if names else []
            if not missing:
                continue
            reason = f"checkpoint {kept.number} has {len(missing)} stash(es) that are not in the repository any more"
            saved = await strategy.salvage_checkpoint(repo, workspace, _as_result(kept), reason)
        except (HoldfastError, OSError) as error:
            return SaveProblem(f"a stash of its agent could not be saved: {error}", is_transient(error))
        lost.update(missing)
        if saved is not None:  # set aside: no later workspace starts with these files, which may be old
            saved = replace(saved, details={**saved.details, "set_aside": True})
            await _record_salvage(context, workspace, saved, reason)
    return None
