"""The interface between the supervisor and the workspaces. Every step is idempotent, because recovery repeats it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Protocol

from holdfast.base.dataclass import dataclass
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.cleanup.compare import Finding
from holdfast.core.cleanup.observed import Container, ObservedState
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.core.workflows.result import GateResult

NO_EDITS: Mapping[str, str] = MappingProxyType({})
NO_CHECKPOINTS = "its agent works in your own checkout, which is yours to keep (workspace strategy `none`)"


class CommandRunner(Protocol):
    """A function that runs a helper command in its own process group, until the end of the whole group is proven."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        timeout: float,
        stdin: bytes = b"",
        output: int | None = None,
        mark: str | None = None,
    ) -> Awaitable[tuple[int, bytes, bytes]]:
        """Return exit code, output and errors of the command.

        `output`: a descriptor that receives everything the command prints. `mark`: an id that all processes started by
        the command inherit. Processes with that mark are ended together with the command.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class SalvageResult:
    """The result of a salvage: work that was copied from a workspace into the shadow repository."""

    ref: str
    commit: str
    base: str | None
    files: int
    partial: bool = False  # a file could not be read, so the workspace must be preserved too
    details: Mapping[str, object] = field(default_factory=dict)  # size, staged, unmerged, operation, …: for people

    @property
    def describe_missing(self) -> str:
        """Describe, for people, which files a partial salvage could not read."""
        names = self.details.get("not_saved")
        found = [str(name) for name in names] if isinstance(names, list) else []
        return f"{', '.join(found[:3])}{' and more' if len(found) > 3 else ''} cannot be read"


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointResult:
    """The result of a checkpoint: a whole workspace at one moment, in the shadow repository."""

    ref: str
    commit: str
    base: str | None  # the agent's HEAD
    files: int  # the number of files that differ from `base`
    key: str  # equal for equal files, index, HEAD and operation under way
    partial: bool = False  # a file changed during the checkpoint, or could not be read
    details: Mapping[str, object] = field(default_factory=dict)


class UnsavedWork(WorkspaceProblem):
    """Restoring a checkpoint would overwrite something that is saved nowhere else. Nothing was changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspacePlan:
    """The planned path, branch and base of a workspace, recorded before anything is created."""

    path: str
    branch: str | None
    base_commit: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseComparison:
    """A comparison of a task's branch with the branch that it started from."""

    fork: str  # the newest commit that both have
    conflicts: tuple[str, ...] = ()  # files that a merge of the two could not merge


class WorkspaceStrategy(Protocol):
    """One kind of workspace: how it is created, saved, restored and removed."""

    async def plan(self, repo: Repo, task_id: str, base_ref: str, branch: str | None, fresh_name: int) -> WorkspacePlan:
        """Resolve the base commit and choose path and branch. Raises LaunchError if the task cannot start there."""
        ...

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        """Create the workspace, even over a half-made one. `restore`: a salvaged commit whose files are put into it."""
        ...

    async def drop_stale_locks(self, repo: Repo, workspace: Workspace) -> None:
        """Remove the locks that a killed git of the agent left in our git entry. Requires the proof of death."""
        ...

    async def is_intact(self, repo: Repo, workspace: Workspace) -> bool: ...

    async def identity(self, workspace: Workspace) -> Mapping[str, str]:
        """Return variables with our identity for the agent's commits if the user has none: git would refuse them."""
        ...

    async def commit_leftovers(
        self,
        repo: Repo,
        workspace: Workspace,
        mode: str,
        message: str,
        leave: Sequence[str] = (),
        rules: SalvageRules = DEFAULT_SALVAGE,
        own_edits: Mapping[str, str] = NO_EDITS,
        author: Mapping[str, str] = NO_EDITS,
        later: str = "",
    ) -> str | None:
        """Commit what a successful agent left uncommitted. Return the commit, or None if there was nothing to commit.

        Raises WorkspaceProblem if git cannot commit it. Then the salvage saves it.

        `leave`: patterns of files that we copied in, and of agent litter. Untracked files that match them are not the
        agent's work. Nothing is committed if there is more than the rules of a salvage allow. `own_edits`: file → text
        that the agent's CLI inserts by itself. A file in which nothing else changed since the last commit gets its
        committed content back first, in every mode. `author`: variables that name author and committer. `later`: the
        message to use instead if the branch's newest commit already has the subject of `message`.
        """
        ...

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        """Bring the task's commits into the user's repository, unless the strategy already keeps them there."""
        ...

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> SalvageResult | None:
        """Save what no branch holds. Return None if removing the workspace would lose nothing.

        Raises WorkspaceProblem if the workspace cannot be examined or saved. `over`: the checkpoint that is about to be
        restored. That moves the branch, so the branch's tip is saved too. So is every file, ignored or not, at a path
        where the checkpoint has a file.
        """
        ...

    async def list_missing(self, repo: Repo, commits: Sequence[str]) -> list[str]:
        """Return the commits that the user's repository does not have, or not any more."""
        ...

    async def has_delivered(self, repo: Repo, workspace: Workspace) -> bool:
        """True if the task's branch is in the user's repository, with at least one commit beyond its base."""
        ...

    async def bring_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> None:
        """Make the present commit of the branch `base_ref` available in the workspace."""
        ...

    async def compare_with_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> BaseComparison | None:
        """Compare the task's branch with the branch `base_ref`, both in the user's repository. None: unknown."""
        ...

    async def salvage_checkpoint(
        self, repo: Repo, workspace: Workspace, checkpoint: CheckpointResult, reason: str
    ) -> SalvageResult | None:
        """Keep a checkpoint of a workspace that is gone as a salvage. None: the task's branch holds everything.

        Raises WorkspaceProblem if the checkpoint cannot be read.
        """
        ...

    async def checkpoint(
        self, repo: Repo, workspace: Workspace, ref: str, rules: SalvageRules, unless: str | None = None
    ) -> CheckpointResult | None:
        """Save the whole workspace as it is now, even while its agent works. Return None if the key of its content is
        `unless`.

        Writes nothing to the workspace or to the user's repository. Raises WorkspaceProblem if a commit cannot hold the
        workspace.
        """
        ...

    async def readable(self, repo: Repo, commit: str) -> str | None:
        """Return the reason why the checkpoint cannot be restored, or None if the checkpoint is complete."""
        ...

    async def keeps_branch_commits(self, repo: Repo, workspace: Workspace, commit: str) -> bool:
        """True if restoring the checkpoint removes no commit from the task's branch."""
        ...

    async def go_back(self, repo: Repo, workspace: Workspace, commit: str, rules: SalvageRules) -> str:
        """Restore files, index, HEAD and operation of a checkpoint. Return a text about what happened to the branch.

        No agent may be running. Repeating the restore changes nothing. Raises UnsavedWork if the workspace holds
        something that is newer than its last salvage.
        """
        ...

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        """Rename the workspace into the trash and drop our git entry, which frees its path. False: nothing existed."""
        ...

    async def drop_empty_branch(self, repo: Repo, workspace: Workspace) -> bool:
        """Delete our branch if it has no commit of its own. True if the branch does not exist afterwards."""
        ...

    async def delete_trash(self, workspace: Workspace) -> None:
        """Delete the workspace from the trash. This can take long, and can be interrupted and repeated."""
        ...


class WorkspaceSweeper(Protocol):
    """A finder of everything of ours on disk and in the repositories, and the remover of single leftovers, with
    proof."""

    async def look(self, repos: Sequence[Repo]) -> ObservedState:
        """List directories, markers, trash, git entries and branches. Starts at most one git process per repository."""
        ...

    def is_still_true(self, finding: Finding) -> bool:
        """True if a finding about a workspace still holds. It is checked again, after the ledger was read."""
        ...

    async def carry_out(self, finding: Finding, repo: Repo | None) -> bool:
        """Carry out DROP_MARKER, DROP_TRASH, DROP_ENTRY, DROP_BRANCH or MARK, if a second check confirms the finding.

        False: nothing was left to do. Raises WorkspaceProblem if the action is not possible.
        """
        ...


class ContainerSweeper(Protocol):
    """A finder and remover of containers with our labels."""

    async def find(self) -> Sequence[Container]:
        """Return the containers of this home. The containers of an engine that does not answer are missing."""
        ...

    async def remove(self, containers: Iterable[str]) -> int:
        """Stop and remove the containers. Return how many are gone."""
        ...


class NoContainers:
    """A container sweeper for a home that uses no container engine."""

    async def find(self) -> Sequence[Container]:
        return ()

    async def remove(self, containers: Iterable[str]) -> int:
        return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CopiedFiles:
    """The files that were copied from the user's checkout, and the reason for each file that was not."""

    copied: tuple[str, ...]
    left: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailedCommand:
    """A set-up or teardown command that failed."""

    command: str
    how: str
    tail: str  # the end of the command's output
    log: str  # the path of the whole output


class WorkspaceSetup(Protocol):
    """Copied files, set-up commands, gates and teardown commands of a workspace.

    `runner`: what runs the commands, for example in a container. None: they run on this machine.
    """

    async def copy(self, repo: Repo, workspace: Workspace, patterns: Sequence[str]) -> CopiedFiles: ...

    async def set_up(
        self,
        workspace: Workspace,
        commands: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None = None,
    ) -> FailedCommand | None:
        """Run the commands in this order until one fails. `timeout` applies to each command."""
        ...

    async def tear_down(
        self,
        workspace: Workspace,
        commands: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None = None,
    ) -> FailedCommand | None:
        """Run all commands, even after a failure. Return the first failure."""
        ...

    async def gate(
        self,
        workspace: Workspace,
        kind: str,
        command: str,
        env: Mapping[str, str],
        timeout: float,
        runner: CommandRunner | None = None,
    ) -> GateResult:
        """Run one command whose exit code decides. The result has the end of its output. `kind` names the full log."""
        ...

    def cut_short(self, task_id: str) -> None:
        """End the teardown of the task, now or as soon as it begins, because the supervisor stops."""
        ...
