"""The private shadow repository: where salvaged work is kept.

Refs of ours in the user's repository broke it when an agent ran `git prune` at the wrong instant, so nothing but the
task's branch and worktree entry is ever written there. The shadow is a bare clone in our home: byte exact (no filters,
no end-of-line conversion), fsynced, and out of reach of anything an agent does to its own `.git`.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil

from holdfast import faults
from holdfast.core.model import Repo
from holdfast.errors import WorkspaceProblem
from holdfast.workspaces import scratch
from holdfast.workspaces.git import Git, GitFailed
from holdfast.workspaces.names import shadow_path
from holdfast.workspaces.repolock import file_lock
from holdfast.workspaces.trash import delete_tree

PRIVATE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}
_SETTINGS = (
    "core.fsync=all",
    "core.fsyncMethod=batch",
    "core.bigFileThreshold=32k",
    "core.logAllRefUpdates=false",
)
_IDENTITY = {
    "GIT_AUTHOR_NAME": "Holdfast",
    "GIT_AUTHOR_EMAIL": "holdfast@localhost",
    "GIT_COMMITTER_NAME": "Holdfast",
    "GIT_COMMITTER_EMAIL": "holdfast@localhost",
}
RAW = "* -text -filter -ident -eol -working-tree-encoding -diff -merge\n"


class Shadow:
    """The shadow of one repository. `ensure` before anything else."""

    def __init__(self, home: str, repo: Repo, git: Git, lender: str | None = None) -> None:
        """`lender` is the git directory whose objects may be borrowed; the user's own if not given."""
        self.path = shadow_path(home, repo.id)
        self._home = home
        self._repo = repo
        self._git = git
        self._lender = lender or repo.common_dir

    async def ensure(self) -> None:
        """Make it on first use, one at a time: tasks of one repository may end together."""
        faults.effect("shadow.ensure")
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        async with file_lock(f"{self.path}.lock"):
            if not os.path.isdir(self.path):
                await self._make()
            self._pass_on_excludes()

    async def _make(self) -> None:
        """Made aside and renamed into place: what stands at its path is whole."""
        folder = scratch.make(self._home, "shadow")
        try:
            await self._make_in(os.path.join(folder, "clone.git"))
        finally:
            scratch.drop(folder)

    async def _make_in(self, aside: str) -> None:
        faults.effect("shadow.clone")
        clone = ["clone", "--quiet", "--bare", "--local", "--no-tags", self._repo.common_dir, aside]
        try:
            await self._git.run(*clone, cwd="/", env=PRIVATE)
        except GitFailed:
            delete_tree(aside)  # an empty, shallow or vanished repository: a bare one of our own serves as well
            await self._git.run("init", "--quiet", "--bare", aside, cwd="/", env=PRIVATE)
        os.makedirs(os.path.join(aside, "info"), exist_ok=True)
        with open(os.path.join(aside, "info", "attributes"), "w", encoding="ascii") as file:
            file.write(RAW)
        faults.effect("shadow.rename")
        os.rename(aside, self.path)
        faults.passed("shadow.made")

    def _pass_on_excludes(self) -> None:
        """What the user's repository excludes privately is excluded here too."""
        theirs = os.path.join(self._repo.common_dir, "info", "exclude")
        ours = os.path.join(self.path, "info", "exclude")
        if os.path.isfile(theirs) and not (os.path.isfile(ours) and filecmp.cmp(theirs, ours, shallow=False)):
            faults.effect("shadow.excludes")
            shutil.copyfile(theirs, f"{ours}.new")
            os.rename(f"{ours}.new", ours)

    async def run(
        self,
        *arguments: str,
        work_tree: str | None = None,
        index: str | None = None,
        borrow: bool = False,
        stdin: bytes = b"",
    ) -> str:
        """Git on the shadow. `borrow` lets it read the lender's objects for this call only."""
        env = {**PRIVATE, **_IDENTITY, "GIT_DIR": self.path}
        if work_tree is not None:
            env["GIT_WORK_TREE"] = work_tree
        if index is not None:
            env["GIT_INDEX_FILE"] = index
        if borrow:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.path.join(self._lender, "objects")
        excludes = await self._user_excludes()
        return await self._git.run(
            *arguments, cwd=work_tree or self.path, env=env, settings=(*_SETTINGS, *excludes), stdin=stdin
        )

    async def _user_excludes(self) -> list[str]:
        """The user's global ignore file still counts: what git would not add, we do not save."""
        try:
            found = (await self._git.run("config", "--global", "--type=path", "core.excludesFile", cwd="/")).strip()
        except GitFailed:
            found = ""
        default = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "ignore")
        return [f"core.excludesFile={found or default}"]

    def unlock(self, ref: str) -> None:
        """Remove what a killed git left. A task's refs are written by its one attempt only: nobody holds the lock."""
        with contextlib.suppress(FileNotFoundError):
            faults.effect("shadow.unlock")
            os.unlink(os.path.join(self.path, f"{ref}.lock"))

    async def fetch(self, source: str, what: str, ref: str) -> str:
        """Bring a commit of the user's repository in; its id."""
        self.unlock(ref)
        await self.run("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", source, f"+{what}:{ref}")
        return (await self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")).strip()

    async def has(self, commit: str) -> bool:
        try:
            await self.run("cat-file", "-e", f"{commit}^{{commit}}")
        except GitFailed:
            return False
        return True

    async def copy_objects(self, tree: str) -> None:
        """Copy what `tree` needs out of the user's objects into the shadow, so that it stands alone."""
        listed = await self.run("rev-list", "--objects", "--no-object-names", tree, "--not", "--all", borrow=True)
        wanted = "\n".join(listed.split()).encode() + b"\n"
        base = os.path.join(self.path, "objects", "pack", "pack")
        try:
            await self.run("pack-objects", "--quiet", base, borrow=True, stdin=wanted)
        except GitFailed as error:
            raise WorkspaceProblem(f"Staged content could not be copied: {error}") from error
