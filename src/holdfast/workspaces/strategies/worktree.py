"""Git worktrees: one per task, on a branch of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import stat
from collections.abc import Mapping, Sequence

from holdfast.base import faults
from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import LaunchError, WorkspaceProblem, is_transient
from holdfast.base.text import make_text
from holdfast.core.model import Repo, Workspace
from holdfast.core.task_settings import DEFAULT_SALVAGE, SalvageRules
from holdfast.workspaces import names
from holdfast.workspaces.git import refs
from holdfast.workspaces.git.branch_files import create_branch, delete_branch, drop_deletion_locks
from holdfast.workspaces.git.commit_history import descends_from
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.git_state import READ_ONLY_ENV
from holdfast.workspaces.git.git_versions import version
from holdfast.workspaces.git.merge import MERGE_TREE
from holdfast.workspaces.git.repo_lock import UserGcWaiter, hold_repo_lock
from holdfast.workspaces.git.worktree_entries import (
    can_make_entry,
    complete_entry,
    drop_branch_lock,
    drop_entry,
    drop_entry_locks,
    find_entry,
    is_checked_out,
    make_entry,
    prepare_for_git,
)
from holdfast.workspaces.port import NO_EDITS, BaseComparison, CheckpointResult, SalvageResult, WorkspacePlan
from holdfast.workspaces.removal import owner_marker
from holdfast.workspaces.removal.trash import delete_remains, delete_tree, move_to_trash
from holdfast.workspaces.snapshots.checkout_state import CheckoutNote, has_index_of, is_untouched, note_checkout
from holdfast.workspaces.snapshots.checkpoint import take_checkpoint
from holdfast.workspaces.snapshots.checkpoint_restore import fits, go_back, unreadable
from holdfast.workspaces.snapshots.collect_files import (
    is_sparse,
    refuse_giant_leftovers,
    refuse_pipes,
    refuse_what_git_cannot_hold,
)
from holdfast.workspaces.snapshots.nothing_to_save import has_nothing_to_save
from holdfast.workspaces.snapshots.salvage import restore_salvage, salvage_checkpoint, salvage_workspace

_IDENTITY = (f"user.name={names.OUR_NAME}", f"user.email={names.OUR_EMAIL}")
_SPARSE_ADD = (2, 34)  # the first git that refuses to add files outside of a sparse checkout without `--sparse`
_UNDER_WAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD")
TRIES = 5
MAX_OWN_FILE = 1 << 20  # bytes of a file into which a CLI inserts a text of its own


class WorktreeStrategy:
    """A git worktree per task, as a checkout of the task's branch in the user's repository."""

    own_git = False  # True for clones: the workspace's `.git` is a repository of its own

    def __init__(self, home: str, git: Git) -> None:
        self._home = home
        self._git = git
        self._users_gc = UserGcWaiter()
        self._notes: dict[str, CheckoutNote] = {}  # workspace → its checkout

    async def plan(self, repo: Repo, task_id: str, base_ref: str, branch: str | None, fresh_name: int) -> WorkspacePlan:
        await self._refuse_damaged(repo, task_id)
        path = names.workspace_path(self._home, repo.id, task_id)
        if branch is not None and fresh_name == 0:
            return WorkspacePlan(path=path, branch=branch, base_commit=await self._resolve(repo, base_ref))
        branch = names.task_branch(task_id, fresh_name)
        return WorkspacePlan(path=path, branch=branch, base_commit=await self._resolve(repo, base_ref))

    async def _refuse_damaged(self, repo: Repo, task_id: str) -> None:
        if not os.path.isdir(repo.common_dir):
            raise LaunchError(names.repo_gone_message(repo.path, f"holdfast retry {task_id}") + ".")
        if await refs.resolve_ref(self._git, repo.common_dir, "refs/heads/holdfast") is not None:
            raise LaunchError(
                f"The repository {repo.path} has a branch named 'holdfast', which blocks our branches "
                f"'holdfast/…'. Rename it: git -C {repo.path} branch -m holdfast SOMETHING-ELSE"
            )

    async def _resolve(self, repo: Repo, base_ref: str) -> str:
        plain = refs.read_branch_tip(repo.path, repo.common_dir, base_ref)
        if plain is not None:
            return plain
        try:
            out = await self._git.run(
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                f"{base_ref}^{{commit}}",
                cwd=repo.path,
            )
        except (GitFailed, FileNotFoundError, NotADirectoryError) as error:
            if is_transient(error):
                raise
            raise LaunchError(
                f"The base '{base_ref}' is not a commit in {repo.path}. Choose another one with --base, "
                "or make a first commit if the repository is empty."
            ) from error
        return out.split()[-1].strip()

    async def prepare(self, repo: Repo, workspace: Workspace, restore: str | None) -> None:
        """Create the worktree. A failure raises: an agent never works in the user's checkout instead (R-TREE-05)."""
        owner_marker.write_marker(workspace)
        async with hold_repo_lock(repo.common_dir):
            await self._clear_half_made(repo, workspace)
            await self._add(repo, workspace)
        env = await self._git.checkout_environment(workspace.path)
        workers = f"checkout.workers={min(4, os.cpu_count() or 1)}"
        faults.effect("worktree.checkout")
        await self._git.run(
            "reset", "--quiet", "--hard", cwd=workspace.path, env=env, settings=(workers,), timeout=3600
        )
        faults.passed("worktree.ready")
        if restore is not None:
            await restore_salvage(self._git, self._home, repo, workspace, restore)
        else:
            await self._note_checkout(repo, workspace)

    async def _note_checkout(self, repo: Repo, workspace: Workspace) -> None:
        entry, marker = find_entry(repo.common_dir, workspace.path), owner_marker.path_of(workspace)
        note = None if entry is None else await run_in_thread(note_checkout, workspace.path, entry, marker)
        if note is None:
            self._notes.pop(workspace.id, None)
        else:
            self._notes[workspace.id] = note

    async def _is_untouched(self, repo: Repo, workspace: Workspace) -> bool:
        """True if it is proven that nobody has written to the workspace, its git directory or its branch."""
        note = self._notes.get(workspace.id)
        entry = None if note is None else find_entry(repo.common_dir, workspace.path)
        if note is None or entry is None:
            return False
        try:
            tip = refs.read_ref(repo.common_dir, repo.common_dir, f"refs/heads/{workspace.branch}")
        except (refs.UnusualRef, OSError):
            return False
        return tip == workspace.base_commit and await run_in_thread(is_untouched, note, workspace.path, entry)

    def _has_staged_nothing(self, repo: Repo, workspace: Workspace) -> bool:
        note = self._notes.get(workspace.id)
        entry = None if note is None else find_entry(repo.common_dir, workspace.path)
        return note is not None and entry is not None and has_index_of(note, entry)

    async def _clear_half_made(self, repo: Repo, workspace: Workspace) -> None:
        """Remove a half-made worktree of a killed supervisor. No agent has worked in it: there is nothing to save."""
        if os.path.lexists(workspace.path):
            leftover = names.half_made_path(self._home, workspace.id)
            await run_in_thread(delete_tree, leftover)
            move_to_trash(workspace.path, leftover)
            await run_in_thread(delete_tree, leftover)
        drop_entry(repo.common_dir, workspace.path)
        await drop_branch_lock(self._git, repo.common_dir, workspace.branch)

    async def _add(self, repo: Repo, workspace: Workspace) -> None:
        assert workspace.branch is not None
        reason = f"holdfast task={workspace.task_id}"
        is_new = await refs.resolve_ref(self._git, repo.common_dir, f"refs/heads/{workspace.branch}") is None
        faults.effect("worktree.add")
        if is_new and can_make_entry(repo.common_dir):
            if not create_branch(repo.common_dir, workspace.branch, str(workspace.base_commit)):
                arguments = ["branch", "--no-track", workspace.branch, str(workspace.base_commit)]
                await self._run_with_retries(*arguments, cwd=repo.common_dir)
            make_entry(repo.common_dir, workspace.path, workspace.branch, reason)
        else:  # git also checks that the branch is not checked out elsewhere
            what = ["--no-track", "-b", workspace.branch] if is_new else []
            start = str(workspace.base_commit) if is_new else workspace.branch
            options = ["--quiet", "--no-checkout", "--lock", "--reason", reason, *what]
            prepare_for_git(repo.common_dir)
            await self._run_with_retries("worktree", "add", *options, workspace.path, start, cwd=repo.common_dir)
            complete_entry(repo.common_dir, workspace.path)
        faults.passed("worktree.added")

    async def _run_with_retries(
        self, *arguments: str, cwd: str, env: Mapping[str, str] | None = None, settings: Sequence[str] = ()
    ) -> None:
        """Run git, and retry while a lock file exists. The user's own git holds repository locks for short moments."""
        for attempt in range(1, TRIES + 1):
            faults.effect("worktree.git")
            try:
                await self._git.run(*arguments, cwd=cwd, env=env, settings=settings)
                return
            except GitFailed as error:
                if attempt == TRIES or ".lock" not in error.err:
                    raise
                await asyncio.sleep(0.05 * attempt)

    async def drop_stale_locks(self, repo: Repo, workspace: Workspace) -> None:
        """Remove `index.lock` and other locks in our entry (R-TREE-15). No process of the task lives to use them."""
        await drop_branch_lock(self._git, repo.common_dir, workspace.branch)
        entry = find_entry(repo.common_dir, workspace.path)
        if entry is not None:
            await drop_entry_locks(self._git, repo.common_dir, entry)

    async def is_intact(self, repo: Repo, workspace: Workspace) -> bool:
        return os.path.lexists(os.path.join(workspace.path, ".git")) and (
            find_entry(repo.common_dir, workspace.path) is not None
        )

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
        await self._trusted_git(workspace)
        if await self._is_untouched(repo, workspace) or not await self._is_on_its_branch(repo, workspace):
            return None
        for file, text in own_edits.items():
            await self._put_back(workspace, file, text)
        if mode == "none":
            return None
        but = [f":(top,glob,exclude){pattern.lstrip('/')}" for pattern in leave]
        await self._refuse_pipes(repo, workspace)
        files, size = await run_in_thread(
            refuse_what_git_cannot_hold, workspace.path, self.own_git
        )  # git would also run the commands that a nested repository names
        filters = await self._git.disable_filters(workspace.path)
        filters |= {**author, **(READ_ONLY_ENV if self.own_git else {})}
        if files > rules.max_files or size > rules.max_size:
            await refuse_giant_leftovers(self._git, workspace.path, filters, but, rules)
        identity = await self._identity(workspace)
        if later and refs.read_head(workspace.path) != workspace.base_commit:  # the base's message is not ours
            newest = await self._git.run("log", "-1", "--format=%s", cwd=workspace.path, env=filters)
            message = later if newest.strip() == message.partition("\n")[0] else message
        if not self._has_staged_nothing(repo, workspace):
            await self._commit_staged(workspace, message, filters, identity)
        add = ("add", *self._sparse_option(repo, workspace))
        if mode == "all":  # except files that we copied in: a secret that git does not ignore would be published
            await self._git.run(*add, "--all", ".", *but, cwd=workspace.path, env=filters, settings=identity)
        if mode == "tracked" or leave:
            await self._git.run(*add, "--update", ".", cwd=workspace.path, env=filters, settings=identity)
        faults.effect("worktree.commit")
        commit = ["commit", "--quiet", "--no-verify", "-m", message]
        try:
            await self._run_with_retries(*commit, cwd=workspace.path, env=filters, settings=identity)
        except GitFailed as error:
            if error.code == 1 and not error.err.strip():
                return None  # there is nothing to commit
            raise
        faults.passed("worktree.committed")
        where = os.path.join(workspace.path, ".git") if self.own_git else repo.common_dir
        return await refs.resolve_ref(self._git, where, f"refs/heads/{workspace.branch}")

    async def _refuse_pipes(self, repo: Repo, workspace: Workspace) -> None:
        entry = find_entry(repo.common_dir, workspace.path)
        await run_in_thread(refuse_pipes, workspace.path, entry, None if self.own_git else repo.common_dir)

    def _sparse_option(self, repo: Repo, workspace: Workspace) -> tuple[str, ...]:
        """Return the option without which git refuses new files outside of a sparse checkout's patterns."""
        entry = find_entry(repo.common_dir, workspace.path)
        return ("--sparse",) if entry and is_sparse(entry, repo.common_dir) and _knows_sparse_add() else ()

    async def _put_back(self, workspace: Workspace, file: str, inserted: str) -> None:
        """Give a file the content of the last commit back, if `inserted` is the only difference."""
        path = os.path.join(workspace.path, file)
        with contextlib.suppress(OSError, WorkspaceProblem):  # not there, a link, not in the last commit, …
            content = await run_in_thread(_read_plain_file, path)
            before = content.replace(inserted.encode(), b"", 1)
            if before == content or content.count(inserted.encode()) > 1:
                return
            env = READ_ONLY_ENV if self.own_git else {}
            if await self._git.run("cat-file", "blob", f"HEAD:{file}", cwd=workspace.path, env=env) == before.decode():
                await run_in_thread(_write_plain_file, path, before)

    async def _commit_staged(
        self, workspace: Workspace, message: str, filters: dict[str, str], identity: Sequence[str]
    ) -> None:
        """Commit staged content that changed again since: only the index holds it, and `add` would overwrite it."""
        status = ("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
        listed = await self._git.run(*status, cwd=workspace.path, env=filters)
        if any(line[0] not in " ?" and line[1] not in " ?" for line in listed.split("\0") if line):
            faults.effect("worktree.commit_staged")
            commit = [
                "commit",
                "--quiet",
                "--no-verify",
                "-m",
                message.replace("\n", " (as staged)\n", 1),
            ]
            await self._run_with_retries(*commit, cwd=workspace.path, env=filters, settings=identity)

    async def _is_on_its_branch(self, repo: Repo, workspace: Workspace) -> bool:
        """True if `.git` is the one that we made, no merge is under way, and HEAD is the task's branch.

        In an emptied directory git would use a parent repository. We never conclude a merge: the salvage saves it as it
        is.
        """
        git_dir = refs.find_git_dir(workspace.path)
        ours = workspace.path + "/.git" if self.own_git else find_entry(repo.common_dir, workspace.path)
        if git_dir is None or ours is None or os.path.realpath(git_dir) != os.path.realpath(ours):
            return False
        if any(os.path.lexists(os.path.join(git_dir, name)) for name in _UNDER_WAY):
            return False
        head = refs.read_head_ref(git_dir)
        if head == refs.IN_TABLES:
            words, env = ("symbolic-ref", "--quiet", "HEAD"), {"GIT_DIR": git_dir}
            head = (await self._git.ask(*words, cwd=workspace.path, env=env))[1].strip()
        return head == f"refs/heads/{workspace.branch}"

    async def _identity(self, workspace: Workspace) -> list[str]:
        """Return an empty list if the user has an identity, else settings with ours, so that git accepts the commit."""
        if not await self._git.setting("user.email", workspace.path):
            return list(_IDENTITY)
        name = await self._git.setting("user.name", workspace.path)
        if name or await self._git.ok("var", "GIT_COMMITTER_IDENT", cwd=workspace.path):
            return []  # without user.name, git uses the name of the system account, if that has one
        return list(_IDENTITY)

    async def identity(self, workspace: Workspace) -> Mapping[str, str]:
        try:
            return names.our_identity() if await self._identity(workspace) else {}
        except WorkspaceProblem:  # git gave no answer: the agent's own git may
            return {}

    async def deliver(self, repo: Repo, workspace: Workspace) -> None:
        return  # the branch is already in the user's repository

    async def salvage(
        self,
        repo: Repo,
        workspace: Workspace,
        reason: str,
        rules: SalvageRules = DEFAULT_SALVAGE,
        *,
        over: str | None = None,
    ) -> SalvageResult | None:
        if over is None and await self._is_untouched(repo, workspace):
            return None
        await self._refuse_pipes(repo, workspace)
        if over is None and await has_nothing_to_save(self._git, repo, workspace, rules):
            return None
        moved = self._find_moved_tree(workspace)
        return await salvage_workspace(self._git, self._home, repo, workspace, reason, rules, tree=moved, over=over)

    def _own_git(self, workspace: Workspace) -> str | None:
        return None

    async def _trusted_git(self, workspace: Workspace) -> str | None:
        """Return the own `.git` of a clone, after the gate of `clone_git_dir.py`. None: this is not a clone."""
        return None

    async def list_missing(self, repo: Repo, commits: Sequence[str]) -> list[str]:
        text = "".join(f"{commit}\n" for commit in commits).encode()
        listed = await self._git.run("cat-file", "--batch-check=%(objectname)", cwd=repo.common_dir, stdin=text)
        return [line.split()[0] for line in listed.splitlines() if line.endswith(" missing")]

    async def has_delivered(self, repo: Repo, workspace: Workspace) -> bool:
        tip = await refs.resolve_ref(self._git, repo.common_dir, f"refs/heads/{workspace.branch}")
        if tip is None or tip == workspace.base_commit:
            return False
        return not await self._is_ancestor(repo, tip, str(workspace.base_commit))

    async def bring_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> None:
        return  # a worktree has all branches of its repository

    async def compare_with_base(self, repo: Repo, workspace: Workspace, base_ref: str) -> BaseComparison | None:
        where = repo.common_dir
        tips = [await refs.resolve_ref(self._git, where, f"refs/heads/{name}") for name in (base_ref, workspace.branch)]
        if None in tips or version() < MERGE_TREE:
            return None
        code, out, _err = await self._git.ask("merge-base", *map(str, tips), cwd=where)
        fork = out.strip()
        words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", *map(str, tips))
        merged, listed, _err = (1, "", "") if code != 0 else await self._git.ask(*words, cwd=where)
        if code != 0 or merged not in (0, 1):
            return None
        names = [make_text(name) for name in listed.split("\0")[1:] if name] if merged == 1 else []
        return BaseComparison(fork=fork, conflicts=tuple(names))

    async def salvage_checkpoint(
        self, repo: Repo, workspace: Workspace, checkpoint: CheckpointResult, reason: str
    ) -> SalvageResult | None:
        return await salvage_checkpoint(self._git, self._home, repo, workspace, checkpoint, reason)

    async def checkpoint(
        self, repo: Repo, workspace: Workspace, ref: str, rules: SalvageRules, unless: str | None = None
    ) -> CheckpointResult | None:
        return await take_checkpoint(
            self._git, self._home, repo, workspace, ref, rules, unless, self._own_git(workspace)
        )

    async def readable(self, repo: Repo, commit: str) -> str | None:
        return await unreadable(self._git, self._home, repo, commit)

    async def keeps_branch_commits(self, repo: Repo, workspace: Workspace, commit: str) -> bool:
        return await fits(self._git, self._home, repo, workspace, commit)

    async def go_back(self, repo: Repo, workspace: Workspace, commit: str, rules: SalvageRules) -> str:
        return await go_back(self._git, self._home, repo, workspace, commit, rules, await self._trusted_git(workspace))

    def _find_moved_tree(self, workspace: Workspace) -> str | None:
        """Return where the directory is, if we were killed after its rename: a second salvage must find its files."""
        places = (names.trash_path(self._home, workspace.id), names.stranded_path(workspace.path, workspace.id))
        found = [] if os.path.lexists(workspace.path) else [place for place in places if os.path.isdir(place)]
        return found[0] if found else None

    async def put_away(self, repo: Repo, workspace: Workspace) -> bool:
        target = names.trash_path(self._home, workspace.id)
        self._notes.pop(workspace.id, None)
        moved = False
        if os.path.lexists(workspace.path):
            if owner_marker.read_owner(workspace.path) != workspace.id:
                raise WorkspaceProblem(f"{workspace.path} carries no record of ours; it was left alone")
            moved = move_to_trash(workspace.path, target)
        dropped = os.path.isdir(repo.common_dir) and await self._drop_entry(repo, workspace)
        return moved or dropped or os.path.lexists(target)

    async def _drop_entry(self, repo: Repo, workspace: Workspace) -> bool:
        while True:
            await self._users_gc.over(repo.common_dir)
            async with hold_repo_lock(repo.common_dir):
                if self._users_gc.runs(repo.common_dir):
                    continue  # a gc began while we waited for the lock; release the lock, others want it too
                await drop_deletion_locks(self._git, repo.common_dir)
                await drop_branch_lock(self._git, repo.common_dir, workspace.branch)
                # In a thread, because the entry may hold the objects of submodules.
                return await run_in_thread(drop_entry, repo.common_dir, workspace.path)

    async def drop_empty_branch(self, repo: Repo, workspace: Workspace) -> bool:
        """Delete the branch if it has no commit beyond its base."""
        if workspace.branch is None or workspace.base_commit is None or not os.path.isdir(repo.common_dir):
            return False
        if not workspace.branch.startswith(names.BRANCH_PREFIX):
            return False
        ref = f"refs/heads/{workspace.branch}"
        tip = await refs.resolve_ref(self._git, repo.common_dir, ref)
        if tip is None:
            return True
        if tip != workspace.base_commit and not await self._is_ancestor(repo, tip, workspace.base_commit):
            return False
        if is_checked_out(repo.common_dir, workspace.branch, but_locked=True):
            return False  # the user has it checked out: deleting it would leave that checkout without a branch
        faults.effect("branch.delete")
        await delete_branch(self._git, repo.common_dir, ref, tip)
        faults.passed("branch.deleted")
        return True

    async def _is_ancestor(self, repo: Repo, tip: str, base: str) -> bool:
        if tip != base and descends_from(repo.common_dir, tip, base):
            return False
        try:
            return await self._git.is_true("merge-base", "--is-ancestor", tip, base, cwd=repo.common_dir)
        except GitFailed:
            if await self._git.is_true("cat-file", "-e", base, cwd=repo.common_dir):
                raise
            return False  # the base is gone from the repository, so the answer is unknown and the branch stays

    async def delete_trash(self, workspace: Workspace) -> None:
        await delete_remains(self._home, workspace)


@functools.cache
def _knows_sparse_add() -> bool:
    return version() >= _SPARSE_ADD


def _read_plain_file(path: str) -> bytes:
    """Return the content of a small regular file. Raise OSError for a link, a pipe or a large file."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_OWN_FILE:
            raise OSError(f"{path} is not a small regular file")
        return file.read()


def _write_plain_file(path: str, content: bytes) -> None:
    faults.effect("worktree.put_back")
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "wb") as file:
        file.write(content)
