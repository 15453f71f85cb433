"""The private shadow repository: the home of salvages and checkpoints.

Refs of ours in the user's repository broke it when an agent ran `git prune` at the wrong instant. So only the task's
branch and worktree entry are ever written there. The shadow is a bare clone in our home. It is byte exact (no filters,
no end-of-line conversion), fsynced, and has its own objects. Nothing that an agent does to its `.git` reaches the
shadow.

Users of the shadow hold its lock shared. Only its creation and the reclaim (reclaim.py) hold the lock exclusively. So
objects that a salvage has brought in need no ref before the salvage's own ref is written.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import listed
from holdfast.core.model import Repo
from holdfast.workspaces import scratch
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.repo_lock import hold_file_lock
from holdfast.workspaces.names import shadow_path
from holdfast.workspaces.removal.trash import delete_tree

PRIVATE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_ATTR_NOSYSTEM": "1"}
_SETTINGS = (
    "core.fsync=all",
    "core.fsyncMethod=batch",
    "core.bigFileThreshold=32k",
    "core.logAllRefUpdates=false",
    "core.untrackedCache=false",
    "core.protectNTFS=false",  # a file named `git~1` is work too
    "core.protectHFS=false",
    "protocol.version=2",  # allows fetching a commit by its id
    "protocol.file.allow=always",
)
_IDENTITY = {
    "GIT_AUTHOR_NAME": "Holdfast",
    "GIT_AUTHOR_EMAIL": "holdfast@localhost",
    "GIT_COMMITTER_NAME": "Holdfast",
    "GIT_COMMITTER_EMAIL": "holdfast@localhost",
}
RAW = "* -text -filter -ident -eol -working-tree-encoding !diff !merge\n"
MOST_EXCLUDES = 1024 * 1024


class ShadowRepo:
    """The shadow of one repository. Every method except `ensure` must be called inside `held`."""

    def __init__(self, home: str, repo: Repo, git: Git, lender: str | None = None) -> None:
        """`lender`: the git directory whose objects may be borrowed. The default is the user's repository."""
        self.path = shadow_path(home, repo.id)
        self.lock = f"{self.path}.lock"
        self._home = home
        self._repo = repo
        self._git = git
        self._lender = lender or repo.common_dir
        self._excludes: list[str] | None = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Create the shadow if needed, and hold its lock shared, so that nothing is reclaimed meanwhile."""
        await self.ensure()
        async with hold_file_lock(self.lock, shared=True):
            yield

    async def ensure(self) -> None:
        """Create the shadow on first use, under a lock, because tasks of one repository may end at the same time."""
        faults.effect("shadow.ensure")
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if not os.path.isdir(self.path):
            async with hold_file_lock(self.lock):
                if not os.path.isdir(self.path):
                    await self._make()
        # git makes directories that others can read. Only the top is changed: files inside may be links to the user's.
        if os.stat(self.path).st_mode & 0o077:
            os.chmod(self.path, 0o700)
        self._write_info("attributes", RAW.encode())
        self._write_info("exclude", self._read_user_excludes())

    async def _make(self) -> None:
        """Create the shadow in a scratch directory and rename it into place, so that its path never shows a part."""
        folder = scratch.make_scratch(self._home, "shadow")
        try:
            await self._make_in(os.path.join(folder, "clone.git"))
        finally:
            scratch.drop_scratch(folder)

    async def _make_in(self, aside: str) -> None:
        faults.effect("shadow.clone")
        try:
            await self._clone(aside)
        except GitFailed as error:
            if error.passing:
                raise
            delete_tree(aside)  # the repository is empty, gone or changing: use a new bare repository instead
            kind = f"--object-format={await self._object_format()}"
            await self._git.run("init", "--quiet", "--bare", kind, aside, cwd="/", env=PRIVATE)
        os.makedirs(os.path.join(aside, "info"), exist_ok=True)
        packs = os.path.join(aside, "objects", "pack")
        for name in [name for name in listed(packs) if name.endswith(".pack")]:
            # The packs are hard links to the user's history. `.keep` stops a repack from writing them out again.
            with open(os.path.join(packs, f"{name.removesuffix('.pack')}.keep"), "w", encoding="ascii"):
                pass
        faults.effect("shadow.rename")
        os.rename(aside, self.path)
        faults.passed("shadow.made")

    async def _clone(self, aside: str) -> None:
        clone = ["clone", "--quiet", "--bare", "--local", "--no-tags", self._repo.common_dir, aside]
        await self._git.run(*clone, cwd="/", env=PRIVATE, timeout=3600)
        borrowed = os.path.join(aside, "objects", "info", "alternates")
        if os.path.exists(borrowed):  # a local clone keeps borrowing what its source borrows: copy those objects
            faults.effect("shadow.own")
            await self._git.run("repack", "-a", "-d", "--quiet", cwd=aside, env=PRIVATE, timeout=3600)
            os.unlink(borrowed)

    async def _object_format(self) -> str:
        try:
            return (await self._git.run("rev-parse", "--show-object-format", cwd=self._repo.common_dir)).strip()
        except (GitFailed, OSError):
            return "sha1"

    def _read_user_excludes(self) -> bytes:
        """Return the private excludes of the user's repository, which apply to the shadow too."""
        theirs = os.path.join(self._repo.common_dir, "info", "exclude")
        if not os.path.isfile(theirs):
            return b""
        with open(theirs, "rb") as file:
            return file.read(MOST_EXCLUDES)

    def _write_info(self, name: str, content: bytes) -> None:
        """Write a file of `info`, if its content differs. Several processes may do this at the same time."""
        ours = os.path.join(self.path, "info", name)
        try:
            with open(ours, "rb") as file:
                if file.read() == content:
                    return
        except FileNotFoundError:
            pass
        faults.effect("shadow.info")
        aside = scratch.make_scratch(self._home, "info")
        try:
            with open(os.path.join(aside, name), "wb") as file:
                file.write(content)
            os.rename(os.path.join(aside, name), ours)
        finally:
            scratch.drop_scratch(aside)

    async def run(
        self,
        *arguments: str,
        git_dir: str | None = None,
        work_tree: str | None = None,
        index: str | None = None,
        borrow: bool = False,
        stdin: bytes = b"",
    ) -> str:
        """Run git on the shadow. `borrow` lets git read the lender's objects, for this call only."""
        code, out, err = await self.ask(
            *arguments, git_dir=git_dir, work_tree=work_tree, index=index, borrow=borrow, stdin=stdin
        )
        if code != 0:
            raise GitFailed(arguments, code, err)
        return out

    async def ask(
        self,
        *arguments: str,
        git_dir: str | None = None,
        work_tree: str | None = None,
        index: str | None = None,
        borrow: bool = False,
        stdin: bytes = b"",
    ) -> tuple[int, str, str]:
        """Run git as `run` does, and return its exit code, output and error output."""
        env = {**PRIVATE, **_IDENTITY, "GIT_DIR": git_dir or self.path, "GIT_NO_LAZY_FETCH": "1"}
        if work_tree is not None:
            env["GIT_WORK_TREE"] = work_tree
        if index is not None:
            env["GIT_INDEX_FILE"] = index
        if borrow:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = os.path.join(self._lender, "objects")
        if self._excludes is None:
            self._excludes = await self._user_excludes()
        return await self._git.ask(
            *arguments, cwd=work_tree or self.path, env=env, settings=(*_SETTINGS, *self._excludes), stdin=stdin
        )

    async def _user_excludes(self) -> list[str]:
        """Return settings with the user's global ignore file: files that git would not add are not saved."""
        found = os.path.expanduser(await self._git.setting("core.excludesfile", "/") or "")
        default = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "ignore")
        return [f"core.excludesFile={found or default}", "core.attributesFile=/dev/null"]

    async def keep(self, ref: str, commit: str) -> None:
        """Write the ref. From then on the commit is saved.

        Only one process writes a task's refs, so an existing lock was left by a killed git and is removed.
        """
        with contextlib.suppress(FileNotFoundError):
            faults.effect("shadow.unlock")
            os.unlink(os.path.join(self.path, f"{ref}.lock"))
        await self.run("update-ref", ref, commit)

    async def fetch(self, source: str, *commits: str) -> None:
        """Fetch commits by id, with their history as far as the source has it."""
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--no-auto-maintenance"]
        await self.run("fetch", *options, source, *commits)

    async def has(self, commit: str) -> bool:
        try:
            await self.run("cat-file", "-e", f"{commit}^{{commit}}")
        except GitFailed as error:
            if not error.answered:
                raise
            return False
        return True

    async def copy_objects(self, tree: str, *known: str) -> None:
        """Copy the objects of `tree` from the lender into the shadow, so that the shadow no longer needs the lender."""
        beyond = ["--not", "--all", *known]
        listed_ids = await self.run("rev-list", "--objects", "--no-object-names", tree, *beyond, borrow=True)
        if not listed_ids.strip():
            return
        wanted = "\n".join(listed_ids.split()).encode() + b"\n"
        base = os.path.join(self.path, "objects", "pack", "pack")
        try:
            faults.effect("shadow.copy")
            await self.run("pack-objects", "--quiet", base, borrow=True, stdin=wanted)
        except GitFailed as error:
            raise WorkspaceProblem(f"Staged content could not be copied: {error}") from error
