"""Collection of a workspace's files into a private index: the work tree, and the content of the agent's index.

Everything that git would add is collected, in rounds, until nothing is left. The agent's index gives the staged
content and every side of a conflict. An agent shaped the tree, so trees are walked without recursion. Content that a
commit could not hold is refused.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.base.concurrency import run_in_thread
from holdfast.base.errors import WorkspaceProblem, is_transient
from holdfast.base.files import stat_beneath
from holdfast.base.text import clean_text, one_line
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.git.git import Git, GitFailed
from holdfast.workspaces.git.git_state import READ_ONLY_ENV
from holdfast.workspaces.git.index_entries import IndexEntry
from holdfast.workspaces.snapshots.nested_repos import refuse_changed_submodules, refuse_nested
from holdfast.workspaces.snapshots.private_index import GITLINK, PrivateIndex, TreeDifferences

ROUNDS = 4  # files that still differ after so many rounds are reported as not saved
_CLOSED = "could not open directory"


@dataclass(kw_only=True, slots=True)
class CollectedTree:
    """The collected work tree."""

    size: int = 0  # bytes of what was new or changed
    untracked: int = 0
    committed: int = 0  # the number of entries in HEAD
    lost: list[str] = field(default_factory=list)  # paths that could not be read, for people


@dataclass(slots=True)
class _SortedPaths:
    """The paths that differ, by what has to be done with them."""

    present: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    size: int = 0
    largest: tuple[int, str] = (0, "")  # bytes and path


def is_sparse(git_dir: str | None, common_dir: str) -> bool:
    places = [common_dir] if git_dir is None else [git_dir, common_dir]
    return any(os.path.lexists(os.path.join(place, "info", "sparse-checkout")) for place in places)


async def collect_work_tree(
    git: Git,
    table: PrivateIndex,
    git_dir: str | None,
    common_dir: str,
    rules: SalvageRules,
    *,
    keep_absent: bool = False,
) -> CollectedTree:
    """Collect the work tree into the private index.

    Raises WorkspaceProblem for content that a commit cannot hold, or if there is too much. `keep_absent`: a file that
    is not on disk may never have been there, so it counts as unchanged.
    """
    entries = await table.entries()
    # The agent set "not expected on disk" (skip-worktree). A file that exists all the same is examined like the rest.
    seen = [entry for entry in entries if not entry.absent or table.is_on_disk(entry.path)]
    await table.recheck_times(entry for entry in seen if entry.mode != GITLINK)
    await table.unhide_files(entries)
    links = {entry.path: entry.oid for entry in entries if entry.mode == GITLINK}
    await refuse_changed_submodules(git, table.work_tree, git_dir, links)
    taken = CollectedTree(committed=len(entries))
    ignored = await table.list_matching(rules.ignored) if rules.ignored else []
    settled = set(links)  # paths that are done, or must not be touched
    for number in range(ROUNDS):
        listing = await table.list_differences(rules.litter)
        refuse_nested(table.work_tree, listing.untracked)
        changed = [path for path in listing.changed if path not in settled]
        if number == 0:
            settled |= await _find_converted(git, table, git_dir, common_dir, entries, changed)
            changed = [path for path in changed if path not in settled]
            taken.untracked = len(listing.untracked)
        wanted = dict.fromkeys([*changed, *(path for path in listing.untracked if path not in settled), *ignored])
        found = await run_in_thread(_sort_paths, table.work_tree, list(wanted))
        if number == 0:
            _refuse_too_much(found, rules)
            taken.size = found.size
        if keep_absent:
            settled.update(found.gone)
            found.gone = []
        settled.update(found.closed)
        taken.lost += [path for path in found.closed if path not in taken.lost]
        _record_unreadable(listing, taken)
        if not found.present and not found.gone:
            return taken
        ignored = []
        if number == ROUNDS - 1:  # a file keeps changing, or git cannot hold it (a file named `.GIT`)
            taken.lost += [*found.present, *found.gone]
            return taken
        await table.drop(found.gone)
        closed = await _add_readable(table, found.present, rules.max_size)
        settled.update(closed)
        taken.lost += closed
    raise AssertionError("unreachable: the last round returns")


def _sort_paths(tree: str, paths: Sequence[str]) -> _SortedPaths:
    found = _SortedPaths()
    for path in paths:
        try:
            seen = stat_beneath(tree, path)
        except (FileNotFoundError, NotADirectoryError):
            found.gone.append(path)
            continue
        except OSError:
            found.closed.append(path)
            continue
        if stat.S_ISREG(seen.st_mode) or stat.S_ISLNK(seen.st_mode):
            found.present.append(path)
            found.size += seen.st_size
            found.largest = max(found.largest, (seen.st_size, path))
        else:
            found.gone.append(path)  # a directory or a pipe has replaced the file
    return found


def _refuse_too_much(found: _SortedPaths, rules: SalvageRules) -> None:
    """Raise WorkspaceProblem for a giant tree: saving it would fill the disk, so the workspace is preserved instead.

    Only files that would be added count.
    """
    if len(found.present) > rules.max_files or found.size > rules.max_size:
        raise WorkspaceProblem(
            f"it holds {len(found.present)} unsaved files with {found.size} bytes, more than a salvage may take "
            f"(salvage.max_files = {rules.max_files}, salvage.max_size = {rules.max_size}); the largest is "
            f"{clean_text(found.largest[1])} with {found.largest[0]} bytes"
        )


async def refuse_giant_leftovers(
    git: Git, tree: str, env: Mapping[str, str], but: Sequence[str], rules: SalvageRules
) -> None:
    """Raise WorkspaceProblem if `git add` would take more than a salvage may. A sparse file costs its whole length.

    `but`: path specifications of files that are left out.
    """
    kinds = ("--others", "--modified", "--exclude-standard", "-z")
    listed = await git.run("ls-files", *kinds, "--", ".", *but, cwd=tree, env=env)
    paths = list(dict.fromkeys(name for name in listed.split("\0") if name))
    _refuse_too_much(await run_in_thread(_sort_paths, tree, paths), rules)


def _record_unreadable(listing: TreeDifferences, taken: CollectedTree) -> None:
    for line in listing.complaints.splitlines():
        if _CLOSED in line:
            said = line.split(_CLOSED, 1)[1].strip()
            if said not in taken.lost:
                taken.lost.append(said)


async def _add_readable(table: PrivateIndex, paths: list[str], most: int = sys.maxsize) -> list[str]:
    """Add all readable files to the index. Return the unreadable ones, and those with more than `most` bytes."""
    if not paths:
        return []
    try:
        return sorted(await table.take(paths, most))
    except GitFailed as error:
        if is_transient(error) or error.passing:
            raise
        table.unlock()  # git cannot hold one of the names: the next round finds what is left
        return []


async def collect_files_in_the_way(table: PrivateIndex, commit: str) -> list[str]:
    """Collect also the ignored files and litter at paths where `commit` has a file. Return the unreadable ones.

    Raises WorkspaceProblem for content that a commit cannot hold.
    """
    names = (await table.run("ls-tree", "-r", "-z", "--name-only", commit)).split("\0")
    held = {entry.path for entry in await table.entries()}
    found = await run_in_thread(
        _find_in_the_way, table.work_tree, [name for name in names if name and name not in held], held
    )
    return await _add_readable(table, found)


def _find_in_the_way(tree: str, paths: Sequence[str], held: Collection[str]) -> list[str]:
    """Return the files and links that block one of the paths. No link is followed."""
    found: dict[str, None] = {}
    for path in paths:
        words = path.split("/")
        for count in range(1, len(words) + 1):
            part = "/".join(words[:count])
            try:
                mode = os.lstat(os.path.join(tree, part)).st_mode
            except OSError:
                break
            if not stat.S_ISDIR(mode):
                found.update({} if part in held else {part: None})
                break
        else:
            found.update((name, None) for name in _all_below(tree, path) if name not in held)
    return list(found)


def _all_below(tree: str, folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(os.path.join(tree, folder)):
        if ".git" in (*folders, *files):
            raise WorkspaceProblem(f"{place} is a repository of its own, and a file was there")
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in (*files, *links):
            yield os.path.relpath(os.path.join(place, name), tree)


async def _find_converted(
    git: Git, table: PrivateIndex, git_dir: str | None, common_dir: str, entries: list[IndexEntry], changed: list[str]
) -> set[str]:
    """Return files that git calls unchanged although their bytes differ from the commit: line ends are converted.

    Only paths that git cannot decide by their times are checked. Content filters do not run, so a file that needs one
    counts as changed.
    """
    committed = {entry.path: entry.oid for entry in entries if entry.mode in ("100644", "100755")}
    asked = [path for path in changed if path in committed and "\n" not in path and not path.startswith('"')]
    asked = [path for path in asked if _is_file(os.path.join(table.work_tree, path))]
    if git_dir is None or not asked or not await may_convert_content(git, git_dir, common_dir, committed):
        return set()
    env = {
        **await git.disable_filters(git_dir, all_of_them=True),
        "GIT_DIR": git_dir,
        "GIT_WORK_TREE": table.work_tree,
        **READ_ONLY_ENV,
    }
    given = "".join(f"{path}\n" for path in asked).encode(errors="surrogateescape")
    try:
        out = await git.run("hash-object", "--stdin-paths", cwd=table.work_tree, env=env, stdin=given)
    except GitFailed as error:
        if not error.answered:
            raise
        return set()  # then all of them are saved as they are on disk
    modes = {entry.path: entry.mode for entry in entries}
    return {
        path
        for path, oid in zip(asked, out.split(), strict=False)
        if oid == committed[path] and _mode(os.path.join(table.work_tree, path)) == modes[path]
    }


async def may_convert_content(git: Git, git_dir: str, common_dir: str, committed: Iterable[str]) -> bool:
    """True if a setting or attribute could make a checkout differ from the committed content."""
    if os.path.lexists(os.path.join(common_dir, "info", "attributes")):
        return True
    if any(path == ".gitattributes" or path.endswith("/.gitattributes") for path in committed):
        return True
    return await git.ok("config", "--get-regexp", r"^core\.(autocrlf|eol|attributesfile)$", cwd=git_dir)


def _is_file(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _mode(path: str) -> str:
    return "100755" if os.lstat(path).st_mode & stat.S_IXUSR else "100644"


def refuse_what_git_cannot_hold(path: str, own_git: bool = False) -> tuple[int, int]:
    """Return (files, bytes) of a tree. Raises WorkspaceProblem if git would silently leave something out.

    A nested repository would become a mere link. `git add` skips a directory that we have no permission to read, and
    still exits with 0. `own_git`: the tree is a clone, whose own `.git` `trust_clone_git_dir` has checked.
    """
    if not own_git and os.path.isdir(os.path.join(path, ".git")):
        raise WorkspaceProblem(f"{path} is a repository of its own, whose history a commit cannot hold")
    files = size = 0
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except OSError as error:
            raise _unreadable(folder, error) from error
        for entry in listed:
            if entry.name == ".git" and folder == path and own_git:
                continue
            if entry.name == ".git" and folder != path:
                raise WorkspaceProblem(f"{folder} is a repository of its own, which a commit cannot hold")
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            else:
                files += 1
                try:
                    size += entry.stat(follow_symlinks=False).st_size
                except OSError as error:  # for example a path that is longer than the system allows
                    raise _unreadable(entry.path, error) from error
    return files, size


def _unreadable(path: str, error: OSError) -> WorkspaceProblem:
    return WorkspaceProblem(f"{one_line(path, 200)} cannot be read ({error.strerror})")


_READ_BY_GIT = (".git", ".gitignore", ".gitattributes", ".gitmodules")
_READ_ALWAYS = ("HEAD", "config", "config.worktree", "packed-refs", "index", "shallow", "info", "objects/info", "refs")


# Files of a repository inside the tree, which git opens to learn whether it is one.
_READ_IN_NESTED = ("HEAD", "config", "commondir", "gitdir", "packed-refs", "index", "config.worktree")


def refuse_pipes(tree: str, git_dir: str | None, common_dir: str | None = None) -> None:
    """Raise WorkspaceProblem if git would open a pipe, in a tree or in its git directory, and wait forever.

    `common_dir`: the user's repository, which agents in worktrees can write. Only what every git call opens is checked.
    """
    for name in _READ_ALWAYS if common_dir is not None else ():
        with contextlib.suppress(OSError):
            mode = os.stat(path := os.path.join(str(common_dir), name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise WorkspaceProblem(f"{path} is not a plain file: git would wait for it forever")
    waiting: list[tuple[str, tuple[str, ...] | None]] = [(tree, _READ_BY_GIT)]
    waiting += [] if git_dir is None else [(git_dir, None)]
    waiting += [] if common_dir is None else [(os.path.join(common_dir, name), None) for name in _READ_ALWAYS[-3:]]
    while waiting:
        folder, names = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(folder) as entries:  # the salvage reports unreadable folders
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    is_git = names is not None and entry.name == ".git"
                    waiting.append((entry.path, _READ_IN_NESTED if is_git else names))
                elif (names is None or entry.name in names) and may_block(entry):
                    raise WorkspaceProblem(f"{entry.path} is not a plain file: git would wait for it forever")


def may_block(entry: os.DirEntry[str]) -> bool:
    """True if opening the file could block forever: it is a pipe, a socket, a device, or a link to one."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


@dataclass(kw_only=True, slots=True)
class StagedContent:
    """The content of the agent's index."""

    tree: str | None = None  # None: there is no index, or it is unmerged
    stages: list[IndexEntry] = field(default_factory=list)  # for an unmerged index: all entries that HEAD does not have
    damaged: bool = False
    lost: list[str] = field(default_factory=list)


async def read_staged(table: PrivateIndex, git_dir: str | None, head: str | None) -> StagedContent:
    """Read the staged content from a separate copy of the index, because writing a tree modifies the index."""
    index = os.path.join(table.path, "staged")
    if git_dir is None or not table.copy_index(git_dir, index):
        return StagedContent()
    try:
        return StagedContent(tree=(await table.run("write-tree", borrow=True, index=index)).strip())
    except GitFailed as error:
        if is_transient(error) or not error.answered:
            raise  # e.g. a full disk, which is no reason to give up the staged content
    try:
        entries = await table.entries(index)
    except GitFailed as error:
        if not error.answered:
            raise
        return StagedContent(damaged=True, lost=["the index, which git cannot read"])
    if all(entry.stage == 0 for entry in entries):
        return StagedContent(damaged=True, lost=["staged content, which is not in the repository any more"])
    committed = {(entry.mode, entry.oid, entry.path) for entry in await table.entries()} if head else set()
    ours = [entry for entry in entries if entry.stage or (entry.mode, entry.oid, entry.path) not in committed]
    return StagedContent(stages=ours)
