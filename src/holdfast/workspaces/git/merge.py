"""Merge of one branch into another: computed without touching a checkout, then applied to the target in one step.

The merge is computed in the object store. Then the target branch moves: by compare-and-set of its ref or, if it is
checked out, by git's own fast-forward of that checkout. If we are killed, the target is at its old or its new commit.
Only unreferenced objects can be left over.
"""

from __future__ import annotations

import contextlib
import os
import shlex

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Conflict, Refused
from holdfast.base.files import listed, open_regular_file
from holdfast.workspaces import scratch
from holdfast.workspaces.git import git, git_versions, refs
from holdfast.workspaces.git.config_view import locate
from holdfast.workspaces.git.worktree_entries import list_checkouts
from holdfast.workspaces.names import identity_in, our_identity

MERGE_TREE = (2, 38)  # the first git version that merges without a work tree
_IN_PROGRESS = {  # file or folder of git → the command that made it
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class MergeRequest:
    """The source and the target of a merge, with their present commits."""

    repo: str  # the checkout
    source: str  # a branch
    source_tip: str
    target: str
    target_tip: str


class MergeConflict(Refused):
    """Both branches changed the same lines or files."""


def tip_of(repo: str, branch: str) -> str | None:
    code, out, _err = git.run_sync("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}", cwd=repo)
    return out.strip() if code == 0 else None


def resolve_branch_name(repo: str, branch: str) -> str:
    """Return the branch to which a symbolic ref points (`git symbolic-ref refs/heads/master …`), else `branch`.

    A checkout shows only the real branch.
    """
    code, out, _err = git.run_sync("rev-parse", "--symbolic-full-name", f"refs/heads/{branch}", cwd=repo)
    return out.strip().removeprefix("refs/heads/") if code == 0 and out.startswith("refs/heads/") else branch


def has_commit(repo: str, commit: str, other: str) -> bool:
    """True if `other` is in the history of `commit`."""
    return git.run_sync("merge-base", "--is-ancestor", other, commit, cwd=repo)[0] == 0


def count_commits_ahead(repo: str, target: str, source: str) -> int:
    """Return how many commits of `source` are missing in `target`."""
    code, out, err = git.run_sync("rev-list", "--count", f"refs/heads/{target}..refs/heads/{source}", cwd=repo)
    if code != 0:
        raise Refused(f"git could not compare {source} with {target}: {err.strip()} Nothing was changed.")
    return int(out)


def compute_merge(merge: MergeRequest, home: str, message: str, *, always_commit: bool, is_squash: bool = False) -> str:
    """Return the commit to which the target will move. No ref points at it yet.

    `is_squash`: one new commit without the source as a parent, or the target's commit if the target has all changes.
    """
    if has_commit(merge.repo, merge.source_tip, merge.target_tip) and not (always_commit or is_squash):
        return merge.source_tip
    modern = git_versions.version() >= MERGE_TREE
    tree = _merge_tree(merge) if modern else _merge_in_clone(merge, home)
    if is_squash and tree == _git(merge, "rev-parse", f"{merge.target_tip}^{{tree}}"):
        return merge.target_tip
    parents = ("-p", merge.target_tip, *(() if is_squash else ("-p", merge.source_tip)))
    return _git(merge, "commit-tree", tree, *parents, "-m", message, env=_identity(merge.repo))


def _merge_tree(merge: MergeRequest) -> str:
    code, out, err = git.run_sync(
        *("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", merge.target_tip, merge.source_tip),
        cwd=merge.repo,
        env=git.view_of_sync(merge.repo).user_environment(commands=True),
    )
    if code not in (0, 1):
        raise Refused(f"git could not merge: {err.strip() or out.strip()}")
    tree, *names = [word for word in out.split("\0") if word]
    if code == 1:
        raise _conflict(merge, names)
    return tree


def _merge_in_clone(merge: MergeRequest, home: str) -> str:
    """Merge with an older git, in a scratch clone that borrows the objects. Only the resulting tree is fetched."""
    folder = scratch.make_scratch(home, "merge")
    clone = os.path.join(folder, "clone")
    try:
        _git(merge, "clone", "--quiet", "--shared", "--no-checkout", merge.repo, clone)
        here = MergeRequest(
            repo=clone,
            source=merge.source,
            source_tip=merge.source_tip,
            target=merge.target,
            target_tip=merge.target_tip,
        )
        _git(here, "checkout", "--quiet", "--detach", merge.target_tip)
        identity = {**_identity(merge.repo), **git.view_of_sync(merge.repo).user_environment(commands=True)}
        code, _out, err = git.run_sync(
            *("merge", "--quiet", "--no-ff", "-m", "merge", merge.source_tip), cwd=clone, env=identity
        )
        if code != 0:
            names = _git(here, "diff", "--name-only", "--diff-filter=U", "-z").split("\0")
            if any(names):
                raise _conflict(merge, [name for name in names if name])
            raise Refused(f"git could not merge: {err.strip()}")
        _git(merge, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", clone, "HEAD")
        return _git(here, "rev-parse", "HEAD^{tree}")
    finally:
        scratch.drop_scratch(folder)


def _conflict(merge: MergeRequest, names: list[str]) -> MergeConflict:
    shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
    return MergeConflict(
        f"{merge.source} and {merge.target} changed the same places: {shown}. Nothing was changed. Merge by hand: "
        f"git -C {merge.repo} switch {merge.target} && git -C {merge.repo} merge {merge.source}"
    )


def find_checkout(repo: str, branch: str) -> str | None:
    """Return the work tree that has `branch` checked out, or None."""
    location = locate(repo)
    if location is None:
        raise Refused(f"{repo} is no longer a repository, so nothing was changed.")
    main = location.top if location.git_dir == location.common_dir else None
    checkouts = list_checkouts(location.common_dir, main)
    found = [path for path, git_dir in checkouts if _head_ref(git_dir) == f"refs/heads/{branch}"]
    if len(found) > 1:
        raise Refused(f"{branch} is checked out more than once: {', '.join(found)}. Nothing was changed.")
    return found[0] if found else None


def _head_ref(git_dir: str) -> str | None:
    """Return the ref that a HEAD names. In a repository with reftables only git can tell."""
    found = refs.read_head_ref(git_dir)
    if found != refs.IN_TABLES:
        return found
    code, out, err = git.run_sync("symbolic-ref", "--quiet", "HEAD", cwd="/", env={"GIT_DIR": git_dir})
    if code not in (0, 1):
        raise Refused(f"git could not determine what is checked out: {err.strip()} Nothing was changed.")
    return out.strip() or None


def refuse_unfinished(checkout: str) -> None:
    """Raise Refused if git's own merge, rebase or the like is under way in the checkout."""
    location = locate(checkout)
    folder = "" if location is None else location.git_dir
    for name, word in _IN_PROGRESS.items():
        if os.path.lexists(os.path.join(folder, name)):
            word = "am" if os.path.lexists(os.path.join(folder, name, "applying")) else word
            there = f"git -C {shlex.quote(checkout)} {word}"
            raise Refused(
                f"{checkout} has an unfinished {word}. Finish it with `{there} --continue`, or drop it with "
                f"`{there} --abort`, then try again. Nothing was changed."
            )


def refuse_rebase_under_way(repo: str, branch: str) -> None:
    """Raise Refused if the branch is being rebased. No checkout is on it, but the rebase needs it at its old commit."""
    location = locate(repo)
    common = repo if location is None else location.common_dir
    entries = os.path.join(common, "worktrees")
    for folder in (common, *(os.path.join(entries, name) for name in listed(entries))):
        for name in ("rebase-merge", "rebase-apply"):
            path = os.path.join(folder, name, "head-name")
            with contextlib.suppress(OSError), open(path, "rb", opener=open_regular_file) as file:
                if file.read().strip() == os.fsencode(f"refs/heads/{branch}"):
                    raise Refused(
                        f"{branch} is being rebased ({path}). Finish that with `git rebase --continue`, or drop it "
                        "with `git rebase --abort`, then try again. Nothing was changed."
                    )


def move_target(merge: MergeRequest, commit: str, checkout: str | None) -> None:
    """Move the target to `commit`, if the target has not moved since the merge was computed."""
    if checkout is None:
        faults.effect("merge.ref")
        code, _out, err = git.run_sync(
            *("update-ref", "-m", f"holdfast: merge {merge.source}", f"refs/heads/{merge.target}"),
            *(commit, merge.target_tip),
            cwd=merge.repo,
        )
    else:
        faults.effect("merge.checkout")
        # In its own session: if our process is ended, git still completes its work on the user's files.
        # Without --no-overwrite-ignore, git would overwrite ignored files, which belong to the user too.
        words = ("merge", "--quiet", "--ff-only", "--no-overwrite-ignore", commit)
        code, _out, err = git.run_sync(
            *words, cwd=checkout, env=_checkout_environment(checkout), alone=True, timeout=3600
        )
    faults.passed("merge.moved")
    if code == 0:
        return
    if tip_of(merge.repo, merge.target) != merge.target_tip:
        raise Conflict(f"{merge.target} moved while we merged. Nothing was changed. Try again.")
    where = checkout or merge.repo
    names = [line.strip() for line in err.splitlines() if line.startswith("\t")]
    if names:  # git lists the files whose changes the merge would overwrite
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        raise Refused(
            f"{where} has uncommitted changes in files that the merge changes too: {shown}. Commit, stash or move "
            "them, then try again. Nothing was changed."
        )
    raise Refused(f"git would not move {merge.target}: {err.strip()} Nothing was changed.")


def _identity(repo: str) -> dict[str, str]:
    """Return the identity in this process's environment. If the user has none, add ours: git needs one to merge."""
    ours = {} if git.view_of_sync(repo).value("user.email") else our_identity()
    return ours | identity_in(os.environ)


def _checkout_environment(checkout: str) -> dict[str, str]:
    """Return the environment for commands that use the files of a checkout: with the user's own filters and drivers.

    Filters and drivers that only the repository's configuration defines are left out: an agent could have written them.
    A file that needs another merge driver becomes a conflict.
    """
    return {**git.view_of_sync(checkout).user_environment(commands=True), "GIT_WORK_TREE": checkout}


def refuse_foreign_filters(merge: MergeRequest, commit: str, home: str) -> None:
    """Raise Refused if a changed file needs a filter that only the repository's own config defines.

    Examples are git-crypt and `git lfs install --local`. We do not run a filter of these, and without the filter the
    user's files would get wrong content.
    """
    view, location = git.view_of_sync(merge.repo), locate(merge.repo)
    config = "" if location is None else os.path.join(location.common_dir, "config")
    own = git.read_config_file(config) if os.path.isfile(config) else []
    unknown = {key for key, value in own if key.startswith("filter.") and view.value(key) != value}
    filters = sorted({key[len("filter.") :].rpartition(".")[0] for key in unknown})
    if not filters:
        return
    differ = ("diff-tree", "-r", "--name-only", "--no-renames", "-z", merge.target_tip, commit)
    changed = {*git.run_sync(*differ, cwd=merge.repo)[1].split("\0")}
    git_dir = "" if location is None else location.git_dir
    folder = scratch.make_scratch(home, "attributes")
    # The work tree has no files, so the attributes come from `commit`.
    env = {"GIT_DIR": git_dir, "GIT_WORK_TREE": folder, "GIT_INDEX_FILE": os.path.join(folder, "index")}
    try:
        _git(merge, "read-tree", commit, env=env)
        for name in filters:
            code, out, _err = git.run_sync("ls-files", "-z", "--", f":(attr:filter={name})", cwd=folder, env=env)
            touched = sorted(({*out.split("\0")} & changed) - {""})
            if code != 0 or touched:
                raise Refused(
                    f"{', '.join(touched[:3]) or 'Its files'} would go through the filter '{name}', a command that "
                    "only the repository's own config has. An agent could have written it, so it is not run. "
                    f"Nothing was changed. If it is yours: git -C {merge.repo} merge {merge.source}"
                )
    finally:
        scratch.drop_scratch(folder)


def _git(merge: MergeRequest, *arguments: str, env: dict[str, str] | None = None) -> str:
    code, out, err = git.run_sync(*arguments, cwd=merge.repo, env=env)
    if code != 0:
        raise Refused(f"git could not merge: {err.strip()} Nothing was changed.")
    return out.strip()
