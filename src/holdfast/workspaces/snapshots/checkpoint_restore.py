"""Restore of a checkpoint: files, index, HEAD and an operation under way become what they were, at the same path.

No agent runs meanwhile. The current content was salvaged before, and that is checked. Every step can be repeated: after
a kill at any point, the next start does all steps again. Files that git ignores stay, unless the checkpoint has a file
at their path. See ADR 0021.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import WorkspaceProblem
from holdfast.core.model import Repo, Workspace
from holdfast.core.states import WorkspaceState
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces import scratch
from holdfast.workspaces.git import git_state, refs
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.index_entries import LIST_ENTRIES, parse_entries
from holdfast.workspaces.git.repo_lock import hold_repo_lock
from holdfast.workspaces.git.worktree_entries import is_checked_out
from holdfast.workspaces.names import salvage_ref
from holdfast.workspaces.port import UnsavedWork
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.checkpoint import ABSENT, STASHES
from holdfast.workspaces.snapshots.collect_files import (
    collect_files_in_the_way,
    collect_work_tree,
    is_sparse,
    may_convert_content,
)
from holdfast.workspaces.snapshots.private_index import GITLINK, REMOVED_MODE, PrivateIndex, open_private_index
from holdfast.workspaces.snapshots.shadow_repo import ShadowRepo
from holdfast.workspaces.snapshots.snapshot import BRANCHES, SnapshotSource, make_source, resolve_commit

_BY_ID = ("protocol.version=2", "protocol.file.allow=always")
_NO_LIMIT = 2**62


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The commits that a checkpoint's message names."""

    commit: str
    head: str | None = None
    index: str | None = None
    state: str | None = None


async def parts_of(shadow: ShadowRepo, commit: str) -> Parts:
    """Return the parts of a checkpoint. Raises GitFailed if the commit does not exist."""
    text = await shadow.run("cat-file", "commit", commit)
    found = dict(line.split(": ", 1) for line in text.partition("\n\n")[2].splitlines() if ": " in line)
    named = {name: found[name].strip() for name in ("head", "index", "state") if name in found}
    return Parts(commit=commit, **named)


async def unreadable(git: Git, home: str, repo: Repo, commit: str) -> str | None:
    """Return why the checkpoint cannot be restored. None: every object of it can be read (R-RES-06)."""
    shadow = ShadowRepo(home, repo, git)
    if not os.path.isdir(shadow.path):
        return f"the repository that holds it ({shadow.path}) is gone"
    try:
        async with shadow.held():
            parts = await parts_of(shadow, commit)
            wanted = [f"{oid}^{{tree}}" for oid in (commit, parts.index, parts.state) if oid]
            await shadow.run("rev-list", "--objects", "--quiet", *wanted)
            if parts.head is not None and not await shadow.has(parts.head):
                return f"the commit {parts.head[:12]} that it is based on is gone"
    except GitFailed as error:
        if not error.answered:
            raise
        return f"git cannot read it: {error.err.strip() or 'no message'}"
    return None


async def fits(git: Git, home: str, repo: Repo, workspace: Workspace, commit: str) -> bool:
    """True if the task's branch, in the user's repository, has no commit that the checkpoint lacks."""
    if workspace.branch is None:
        return True
    shadow = ShadowRepo(home, repo, git)
    async with shadow.held():
        head = (await parts_of(shadow, commit)).head
        tip = await refs.resolve_ref(git, repo.common_dir, f"refs/heads/{workspace.branch}")
        if tip is None or head is None or tip == head:
            return True
        return await shadow.has(tip) and await _is_ancestor(shadow, tip, head)


async def _is_ancestor(shadow: ShadowRepo, older: str, newer: str) -> bool:
    code, _out, err = await shadow.ask("merge-base", "--is-ancestor", older, newer)
    if code not in (0, 1):
        raise GitFailed(["merge-base", "--is-ancestor"], code, err)
    return code == 0


async def go_back(
    git: Git,
    home: str,
    repo: Repo,
    workspace: Workspace,
    commit: str,
    rules: SalvageRules,
    own_git: str | None = None,
) -> str:
    """Restore the checkpoint. Return a text about the branch. `own_git`: the `.git` of a workspace that is a clone."""
    shadow = ShadowRepo(home, repo, git, lender=own_git)
    source = make_source(git, repo, workspace, own_git)
    aside = scratch.make_scratch(home, "goback")
    try:
        async with shadow.held():
            parts = await parts_of(shadow, commit)
            saved = await _write_out(shadow, parts, aside)
            written = await _put_files(shadow, home, source, parts, saved, rules)
            if source.git_dir is None or workspace.branch is None:
                return "it has no branch"
            await _bring_objects(shadow, source, parts, saved, aside)
            if own_git is not None:
                await _put_branches(source, saved)
            told = await _put_head(source, parts, saved)
            _put_operation(source.git_dir, saved)
            await _put_index(source, saved)
            await _convert(shadow, source, parts, written)
    finally:
        scratch.drop_scratch(aside)
    faults.passed("goback.done")
    return told


async def _put_files(
    shadow: ShadowRepo, home: str, source: SnapshotSource, parts: Parts, saved: str, rules: SalvageRules
) -> list[str]:
    """Restore the files byte for byte. Litter and ignored files stay. Return the names of the written files."""
    everything = replace(rules, max_files=_NO_LIMIT, max_size=_NO_LIMIT)
    head = source.head = await _known_head(shadow, source)
    async with open_private_index(shadow, home, source.tree) as table:
        seeded = await table.start_from_head(source.git_dir, head)
        unsure = not seeded and is_sparse(source.git_dir, source.common_dir)
        await collect_work_tree(source.git, table, source.git_dir, source.common_dir, everything, keep_absent=unsure)
        wanted = await _without_absent(table, parts.commit, saved)
        await collect_files_in_the_way(table, wanted)
        await _refuse_unsaved(shadow, table, source, parts)
        differing = await table.run("diff-index", "--cached", "--name-only", "-z", "--diff-filter=d", wanted)
        faults.effect("goback.files")
        await table.run("read-tree", "-u", "--reset", wanted)
        faults.passed("goback.files_done")
    return [name for name in differing.split("\0") if name]


async def _refuse_unsaved(shadow: ShadowRepo, table: PrivateIndex, source: SnapshotSource, parts: Parts) -> None:
    """Raise UnsavedWork for a file that is neither in the last salvage nor in the checkpoint.

    Files of the checkpoint come from an earlier try. Any other file is newer than the salvage, for example from a shell
    in the workspace. A workspace that was just made has no salvage, and nothing to lose.
    """
    workspace = source.workspace
    aside = await refs.resolve_ref(source.git, shadow.path, salvage_ref(workspace.task_id, workspace.id))
    if aside is None or workspace.state is WorkspaceState.INTENDED:
        return
    known = set()
    for commit in (aside, parts.commit):
        known.update((await shadow.run("ls-tree", "-r", "-z", commit)).split("\0"))
    for entry in await table.entries():
        if f"{entry.mode} {'commit' if entry.mode == GITLINK else 'blob'} {entry.oid}\t{entry.path}" not in known:
            raise UnsavedWork(f"{entry.path} was changed meanwhile")


async def _without_absent(table: PrivateIndex, commit: str, saved: str) -> str:
    """Return the checkpoint's tree without the files that a sparse checkout had left out of the workspace."""
    try:
        with open(os.path.join(saved, ABSENT), "rb") as file:
            absent = [os.fsdecode(raw) for raw in file.read().split(b"\0") if raw]
    except FileNotFoundError:
        return commit
    index = os.path.join(table.path, "present")
    await table.run("read-tree", commit, index=index)
    await table.put([(REMOVED_MODE, "0" * len(commit), path) for path in absent], index=index)
    return (await table.run("write-tree", index=index)).strip()


async def _convert(shadow: ShadowRepo, source: SnapshotSource, parts: Parts, written: list[str]) -> None:
    """Check out again the files that git called unchanged, to get this checkout's line ends and LFS content."""
    assert source.git_dir is not None
    env = {**await source.git.disable_filters(source.tree), "GIT_DIR": source.git_dir}
    staged = parse_entries(await source.git.run(*LIST_ENTRIES, cwd=source.tree, env=env))
    names = [entry.path for entry in staged]
    if not written or not await may_convert_content(source.git, source.git_dir, source.common_dir, names):
        return
    listed = (await shadow.run("ls-tree", "-r", "-z", parts.commit)).split("\0")
    kept = {path: line.split()[2] for line, _, path in (text.partition("\t") for text in listed) if path}
    wanted = set(written)
    same = [
        entry.path for entry in staged if entry.path in wanted and entry.is_plain and kept.get(entry.path) == entry.oid
    ]
    if same:
        faults.effect("goback.convert")
        text = b"".join(os.fsencode(path) + b"\0" for path in same)
        await source.git.run("checkout-index", "--force", "-u", "-z", "--stdin", cwd=source.tree, env=env, stdin=text)


async def _known_head(shadow: ShadowRepo, source: SnapshotSource) -> str | None:
    """Return the commit of HEAD if the shadow has it. It is used only to read fewer files."""
    if source.git_dir is None:
        return None
    head = await resolve_commit(source.git, source.git_dir, source.common_dir, "HEAD")
    return head if head is not None and await shadow.has(head) else None


async def _write_out(shadow: ShadowRepo, parts: Parts, aside: str) -> str:
    """Write the saved state to files: `git/…`, `absent` and `branches`. Return their directory."""
    out = os.path.join(aside, "state")
    faults.effect("goback.write_out")
    os.mkdir(out)
    if parts.state is not None:
        index = os.path.join(aside, "state-index")
        await shadow.run("read-tree", parts.state, index=index)
        names = (await shadow.run("ls-files", "-z", index=index)).split("\0")
        wanted = [name for name in names if name in (ABSENT, BRANCHES) or name.startswith("git/")]
        text = b"".join(os.fsencode(name) + b"\0" for name in wanted)
        await shadow.run(
            "checkout-index", "--force", f"--prefix={out}/", "-z", "--stdin", work_tree=out, index=index, stdin=text
        )
    return out


async def _bring_objects(shadow: ShadowRepo, source: SnapshotSource, parts: Parts, saved: str, aside: str) -> None:
    """Copy the objects that HEAD, the index and an operation need into the agent's repository, if missing there."""
    commits = [parts.head] if parts.head else []
    if parts.state is not None:
        commits += (await shadow.run("show", "--no-patch", "--format=%P", parts.state)).split()
    missing = await _missing(source, commits)
    if missing:
        options = ["--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--no-auto-maintenance"]
        options.append("--no-recurse-submodules")
        env = {
            **git_state.READ_ONLY_ENV,
            "GIT_ALLOW_PROTOCOL": "file",
        }  # a clone's settings could redirect to another URL
        faults.effect("goback.fetch")
        await source.git.run("fetch", *options, shadow.path, *missing, cwd=source.common_dir, settings=_BY_ID, env=env)
    index = os.path.join(saved, "git", "index")
    if not os.path.exists(index):
        return
    entries = parse_entries(await shadow.run(*LIST_ENTRIES, index=index))
    blobs = await _missing(source, [entry.oid for entry in entries if entry.mode != "160000"])
    if blobs:
        base = os.path.join(aside, "pack")
        text = "".join(f"{oid}\n" for oid in blobs).encode()
        name = (await shadow.run("pack-objects", "--quiet", base, stdin=text)).strip()
        with open(f"{base}-{name}.pack", "rb") as file:
            content = file.read()
        faults.effect("goback.unpack")
        await source.git.run("unpack-objects", "-q", cwd=source.common_dir, stdin=content)


async def _missing(source: SnapshotSource, oids: Sequence[str]) -> list[str]:
    """Return the objects that the agent's repository does not have."""
    wanted = list(dict.fromkeys(oids))
    if not wanted:
        return []
    text = "".join(f"{oid}\n" for oid in wanted).encode()
    out = await source.git.run(
        "cat-file", "--batch-check", cwd=source.common_dir, env=git_state.READ_ONLY_ENV, stdin=text
    )
    return [line.split()[0] for line in out.splitlines() if line.endswith(" missing")]


async def _put_branches(source: SnapshotSource, saved: str) -> None:
    """Restore branches and stashes of a clone that was made anew. An existing ref stays: it is newer, or the user's."""
    assert source.git_dir is not None
    path = os.path.join(saved, BRANCHES)
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        wanted = [line.rstrip("\n").split(" ", 1) for line in file]
    own = f"refs/heads/{source.workspace.branch}"
    for oid, name in wanted:
        if name != own and await refs.resolve_ref(source.git, source.git_dir, name) is None:
            faults.effect("goback.branch")
            await source.git.run("update-ref", name, oid, cwd=source.git_dir)
            if name == "refs/stash":
                _copy_in(os.path.join(saved, "git", STASHES), source.git_dir, STASHES)


async def _put_head(source: SnapshotSource, parts: Parts, saved: str) -> str:
    """Restore HEAD, and the task's branch if HEAD named it. No other branch is ever moved. Return a text about it."""
    assert source.git_dir is not None
    text = ""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(saved, "git", "HEAD"), encoding="utf-8") as file:
        text = file.read().strip()
    head, own = parts.head, f"refs/heads/{source.workspace.branch}"
    if head is None:
        return "HEAD is not touched"
    async with hold_repo_lock(source.repo.common_dir):
        tip = await refs.resolve_ref(source.git, source.common_dir, own)
        told = f"{source.workspace.branch} is where it was"
        target = text.removeprefix("ref: ") if text.startswith("ref: ") else None
        elsewhere = source.git_dir != source.common_dir and is_checked_out(
            source.repo.common_dir, source.workspace.branch or "", but_locked=True
        )
        if target == own and tip != head and not elsewhere:
            faults.effect("goback.branch_tip")
            await source.git.run("update-ref", own, head, tip or "0" * len(head), cwd=source.common_dir)
            told = f"{source.workspace.branch} is at {head[:12]} again" + (f", it was at {tip[:12]}" if tip else "")
        if target is not None and await refs.resolve_ref(source.git, source.common_dir, target) != head:
            target = None  # the branch moved on, or is not the task's: detach HEAD instead of moving that branch
            told = f"HEAD is detached at {head[:12]}"
        env = {"GIT_DIR": source.git_dir}
        faults.effect("goback.head")
        if target is not None:
            await source.git.run("symbolic-ref", "HEAD", target, cwd=source.git_dir, env=env)
        else:
            await source.git.run("update-ref", "--no-deref", "HEAD", head, cwd=source.git_dir, env=env)
    return told


def _put_operation(git_dir: str, saved: str) -> None:
    """End the operation that is under way now, and restore the files of the one in the checkpoint."""
    for name in sorted(git_state.OPERATION_FILES):
        path = os.path.join(git_dir, name)
        if os.path.lexists(path):
            faults.effect("goback.end_operation")
            delete_tree(path)
    folder = os.path.join(saved, "git")
    for name in sorted(git_state.list_state_files(folder)) if os.path.isdir(folder) else ():
        if git_state.is_operation_file(name):
            _copy_in(os.path.join(folder, name), git_dir, name)


def _copy_in(source: str, git_dir: str, name: str) -> None:
    """Copy a file into the git directory. No link is followed: an agent's link may lead out of its workspace."""
    target, place = os.path.join(git_dir, name), os.path.dirname(name)
    if os.path.realpath(os.path.dirname(target)) != os.path.normpath(os.path.join(os.path.realpath(git_dir), place)):
        raise WorkspaceProblem(f"{os.path.dirname(target)} is a link")
    faults.effect("goback.copy")
    if os.path.islink(target):
        os.unlink(target)
    with contextlib.suppress(FileNotFoundError):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)


async def _put_index(source: SnapshotSource, saved: str) -> None:
    """Restore the kept index, or make one from HEAD. Then refresh it, because its file times are outdated."""
    assert source.git_dir is not None
    env = {**await source.git.disable_filters(source.tree), "GIT_DIR": source.git_dir}
    kept, target = os.path.join(saved, "git", "index"), os.path.join(source.git_dir, "index")
    if os.path.exists(kept):
        _copy_in(kept, source.git_dir, "index.holdfast")
        faults.effect("goback.index")
        os.rename(f"{target}.holdfast", target)
    else:
        faults.effect("goback.reset")
        await source.git.run("read-tree", "HEAD", cwd=source.tree, env=env)
    code, _out, err = await source.git.ask("update-index", "-q", "--refresh", cwd=source.tree, env=env)
    if code not in (0, 1):  # 1: a file differs from the index, which is normal here
        raise WorkspaceProblem(f"the index that was kept cannot be read: {err.strip()}")
