"""What the supervisor may ask of a workspace strategy. Every step is idempotent: recovery repeats it."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.base.errors import WorkspaceProblem
from holdfast.core.cleanup.compare import Finding
from holdfast.core.cleanup.observed import Container, Scene
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.core.workflows.result import GateResult

NO_CHECKPOINTS = "its agent works in your own checkout, which is yours to keep (workspace strategy `none`)"


class CommandRunner(Protocol):
    """Runs a helper command in a group of its own, to its proven end."""

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
        """`output`: a descriptor for all that it prints. `mark`: carried by all that it starts, and ended with it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """Work that left a workspace for the shadow repository."""

    ref: str
    commit: str
    base: str | None
    files: int
    partial: bool = False  # something could not be read: it must be preserved too
    details: Mapping[str, object] = field(default_factory=dict)  # size, staged, unmerged, operation, …: for people

    @property
    def missing(self) -> str:
        """For people: what a partial salvage could not read."""
        names = self.details.get("not_saved")
        found = [str(name) for name in names] if isinstance(names, list) else []
        return f"{', '.join(found[:3])}{' and more' if len(found) > 3 else ''} cannot be read"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A whole workspace as it was at one moment, in the shadow repository."""

    ref: str
    commit: str
    base: str | None  # the agent's HEAD
    files: int  # how many differ from it
    key: str  # the same for the same files, index, HEAD and operation
    partial: bool = False  # something changed while it was looked at, or could not be read
    details: Mapping[str, object] = field(default_factory=dict)


class Unsaved(WorkspaceProblem):
    """Going back would write over something that nothing else holds. Nothing was changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Where a task will work: decided once, recorded before anything is made."""

    path: str
    branch: str | None
    base_commit: str | None


class WorkspaceStrategy(Protocol):
    async def plan(self, repo: Repo, task_id: str, base_ref: str, branch: str | None, fresh_name: int) -> Plan:
        """Resolve the base and name the place. Raises LaunchError when the task cannot start from there."""
        ...

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        """Make it (again), from nothing or from a half-made one; put a salvaged commit's files into it if given."""
        ...

    async def tidy(self, repo: Repo, workspace: Workspace) -> None:
        """After the proof of death: remove what a killed git of the agent left locked in our own git entry."""
        ...

    async def is_intact(self, repo: Repo, workspace: Workspace) -> bool: ...

    async def commit_leftovers(
        self, repo: Repo, workspace: Workspace, mode: str, message: str, leave: Sequence[str] = ()
    ) -> str | None:
        """Commit what a successful agent left uncommitted; the commit, or None when there was nothing to do.

        `leave`: patterns of files that we copied in, and of an agent's litter: what git does not track of them is not
        its work."""
        ...

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        """Bring the task's commits into the user's repository, where they are not there already."""
        ...

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> Saved | None:
        """Save what no branch holds; None when nothing would be lost. Raises WorkspaceProblem when it cannot tell.

        `over`: the checkpoint that is about to be gone back to. Then the branch's tip, which will be moved, is saved
        too, and whatever lies where the checkpoint has a file, ignored or not."""
        ...

    async def checkpoint(
        self, repo: Repo, workspace: Workspace, ref: str, rules: SalvageRules, unless: str | None = None
    ) -> Kept | None:
        """The whole of it as it is now, also while its agent works; None: its key is still `unless`. Writes nothing to
        the workspace or the user's repository. Raises WorkspaceProblem when it cannot be held."""
        ...

    async def readable(self, repo: Repo, commit: str) -> str | None:
        """Why that checkpoint could not be gone back to; None: it is whole."""
        ...

    async def fits(self, repo: Repo, workspace: Workspace, commit: str) -> bool:
        """Whether going back to that checkpoint takes no commit off the task's branch."""
        ...

    async def go_back(self, repo: Repo, workspace: Workspace, commit: str, rules: SalvageRules) -> str:
        """Files, index, HEAD and operation as they were; in words, what became of the branch. No agent runs. Repeating
        it changes nothing. Raises Unsaved where something came since the last salvage of this workspace."""
        ...

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        """Rename into the trash and drop our git entry; False when nothing was there. The name is free afterwards."""
        ...

    async def drop_empty_branch(self, repo: Repo, workspace: Workspace) -> bool:
        """Delete our branch if it has no commit of its own; True when there is none (any more)."""
        ...

    async def delete_trash(self, workspace: Workspace) -> None:
        """Delete from the trash; may take long; may be interrupted and repeated."""
        ...


class Sweeper(Protocol):
    """Looks at everything of ours on disk and in the repositories, and removes single leftovers, with proof."""

    async def look(self, repos: Sequence[Repo]) -> Scene:
        """Directories, markers, trash, git entries and branches. At most one git process per repository."""
        ...

    def is_still_so(self, finding: Finding) -> bool:
        """Another look at one finding about a workspace, now that the ledger was read."""
        ...

    async def carry_out(self, finding: Finding, repo: Repo | None) -> bool:
        """DROP_MARKER, DROP_TRASH, DROP_ENTRY, DROP_BRANCH or MARK, after another look: what was seen may be over.
        False: there was nothing to do any more. Raises WorkspaceProblem when it cannot be done."""
        ...


class ContainerSweeper(Protocol):
    """Finds and removes containers with our labels."""

    async def find(self) -> Sequence[Container]:
        """Those of this home. An engine that does not answer has none that we could see."""
        ...

    async def remove(self, containers: Iterable[str]) -> int:
        """Stop and remove them; how many are gone."""
        ...


class NoContainers:
    """Where no engine is used."""

    async def find(self) -> Sequence[Container]:
        return ()

    async def remove(self, containers: Iterable[str]) -> int:
        return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """What came along from the user's checkout, and what did not and why."""

    copied: tuple[str, ...]
    left: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A command of set-up or teardown that did not end well."""

    command: str
    how: str
    tail: str  # the end of its output
    log: str  # where all of it is


class Furnishing(Protocol):
    """Files and commands around the making of a workspace."""

    async def copy(self, repo: Repo, workspace: Workspace, patterns: Sequence[str]) -> Copied: ...

    async def set_up(
        self, workspace: Workspace, commands: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> Failed | None:
        """In this order, until one fails. `timeout` is for each of them."""
        ...

    async def tear_down(
        self, workspace: Workspace, commands: Sequence[str], env: Mapping[str, str], timeout: float
    ) -> Failed | None:
        """All of them, whatever fails; the first failure."""
        ...

    async def gate(
        self, workspace: Workspace, kind: str, command: str, env: Mapping[str, str], timeout: float
    ) -> GateResult:
        """One command whose exit decides; with the end of what it printed. All of that is in a log named by `kind`."""
        ...

    def cut_short(self, task_id: str) -> None:
        """End the teardown of that task, now or when it would begin: the supervisor goes."""
        ...
