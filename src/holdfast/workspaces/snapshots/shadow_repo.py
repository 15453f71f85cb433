"""The private shadow repository: where salvaged work is kept.

Refs of ours in the user's repository broke it when an agent ran `git prune` at the wrong instant, so nothing but the
task's branch and worktree entry is ever written there. The shadow is a bare clone in our home: byte exact (no filters,
no end-of-line conversion), fsynced, with objects of its own, and out of reach of anything an agent does to its `.git`.

Whoever uses it holds its lock shared; only its making and its reclaiming (reclaim.py) hold it alone. So what a salvage
has brought in needs no ref until the salvage's own.
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
from holdfast.workspaces.git.repo_lock import file_lock
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
    "protocol.version=2",  # lets us fetch a commit by its id
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


class Shadow:
    """The shadow of one repository. Everything but `ensure` inside `held`."""

    def __init__(self, home: str, repo: Repo, git: Git, lender: str | None = None) -> None:
        """`lender` is the git directory whose objects may be borrowed; the user's own if not given."""
        self.path = shadow_path(home, repo.id)
        self.lock = f"{self.path}.lock"
        self._home = home
        self._repo = repo
        self._git = git
        self._lender = lender or repo.common_dir
        self._excludes: list[str] | None = None

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Made if need be, and nothing is cleared up in it meanwhile."""
        await self.ensure()
        async with file_lock(self.lock, shared=True):
            yield

    async def ensure(self) -> None:
        """Make it on first use, one at a time: tasks of one repository may end together."""
        faults.effect("shadow.ensure")
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        if not os.path.isdir(self.path):
            async with file_lock(self.lock):
                if not os.path.isdir(self.path):
                    await self._make()
        if os.stat(self.path).st_mode & 0o077:  # as git makes directories; what is inside may be linked to the user's
            os.chmod(self.path, 0o700)
        self._keep("attributes", RAW.encode())
        self._keep("exclude", self._their_excludes())

    async def _make(self) -> None:
        """Made aside and renamed into place: what stands at its path is whole."""
        folder = scratch.make(self._home, "shadow")
        try:
            await self._make_in(os.path.join(folder, "clone.git"))
        finally:
            scratch.drop(folder)

    async def _make_in(self, aside: str) -> None:
        faults.effect("shadow.clone")
        try:
            await self._clone(aside)
        except GitFailed as error:
            if error.passing:
                raise
            delete_tree(aside)  # an empty or vanished repository, or one that changes: a bare one of our own serves
            kind = f"--object-format={await self._object_format()}"
            await self._git.run("init", "--quiet", "--bare", kind, aside, cwd="/", env=PRIVATE)
        os.makedirs(os.path.join(aside, "info"), exist_ok=True)
        packs = os.path.join(aside, "objects", "pack")
        for name in [name for name in listed(packs) if name.endswith(".pack")]:
            # The user's history, by hard links: reclaiming room must not write it out once more.
            with open(os.path.join(packs, f"{name.removesuffix('.pack')}.keep"), "w", encoding="ascii"):
                pass
        faults.effect("shadow.rename")
        os.rename(aside, self.path)
        faults.passed("shadow.made")

    async def _clone(self, aside: str) -> None:
        clone = ["clone", "--quiet", "--bare", "--local", "--no-tags", self._repo.common_dir, aside]
        await self._git.run(*clone, cwd="/", env=PRIVATE, timeout=3600)
        borrowed = os.path.join(aside, "objects", "info", "alternates")
        if os.path.exists(borrowed):  # a local clone goes on borrowing what its source borrows: copy that
            faults.effect("shadow.own")
            await self._git.run("repack", "-a", "-d", "--quiet", cwd=aside, env=PRIVATE, timeout=3600)
            os.unlink(borrowed)

    async def _object_format(self) -> str:
        try:
            return (await self._git.run("rev-parse", "--show-object-format", cwd=self._repo.common_dir)).strip()
        except (GitFailed, OSError):
            return "sha1"

    def _their_excludes(self) -> bytes:
        """What the user's repository excludes privately is excluded here too."""
        theirs = os.path.join(self._repo.common_dir, "info", "exclude")
        if not os.path.isfile(theirs):
            return b""
        with open(theirs, "rb") as file:
            return file.read(MOST_EXCLUDES)

    def _keep(self, name: str, content: bytes) -> None:
        """A file of `info` with this content; several of us may see to it at once."""
        ours = os.path.join(self.path, "info", name)
        try:
            with open(ours, "rb") as file:
                if file.read() == content:
                    return
        except FileNotFoundError:
            pass
        faults.effect("shadow.info")
        aside = scratch.make(self._home, "info")
        try:
            with open(os.path.join(aside, name), "wb") as file:
                file.write(content)
            os.rename(os.path.join(aside, name), ours)
        finally:
            scratch.drop(aside)

    async def run(
        self,
        *arguments: str,
        git_dir: str | None = None,
        work_tree: str | None = None,
        index: str | None = None,
        borrow: bool = False,
        stdin: bytes = b"",
    ) -> str:
        """Git on the shadow. `borrow` lets it read the lender's objects for this call only."""
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
        """The same with its exit code and what it complained of."""
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
        """The user's global ignore file still counts: what git would not add, we do not save."""
        try:
            found = (await self._git.run("config", "--global", "--type=path", "core.excludesFile", cwd="/")).strip()
        except GitFailed as error:
            if not error.answered:
                raise
            found = ""
        default = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), "git", "ignore")
        return [f"core.excludesFile={found or default}", "core.attributesFile=/dev/null"]

    async def keep(self, ref: str, commit: str) -> None:
        """From here on it is saved. A lock there was left by a killed git: a task's refs are written by one of us."""
        with contextlib.suppress(FileNotFoundError):
            faults.effect("shadow.unlock")
            os.unlink(os.path.join(self.path, f"{ref}.lock"))
        await self.run("update-ref", ref, commit)

    async def fetch(self, source: str, *commits: str) -> None:
        """Bring commits of the user's repository in, by id, with their history as far as that goes."""
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
        """Copy what `tree` needs out of the lender's objects into the shadow, so that it stands alone."""
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
