"""The repository of a directory. Each refusal is one clear line."""

from __future__ import annotations

import os

from holdfast.base.errors import HoldfastError, UsageError
from holdfast.base.text import is_misleading, is_text
from holdfast.core.model import Repo
from holdfast.workspaces.git import git, git_versions, refs
from holdfast.workspaces.git.config_view import find_other_work_tree, locate


def absolute_path(directory: str) -> str:
    """Return the full path of a directory that was given on the command line."""
    try:
        return os.path.abspath(directory)
    except FileNotFoundError:
        raise UsageError(
            "The directory you are in has been deleted. Go to one that exists, or give the repository's full path."
        ) from None


def locate_repository(directory: str) -> tuple[str, str]:
    """Return (top level of the checkout, git common directory) of the repository that contains `directory`."""
    if not os.path.isdir(directory):
        raise UsageError(f"There is no directory {directory}.")
    git_versions.refuse_old_git()
    location = locate(directory)
    words = ("rev-parse", "--path-format=absolute", "--is-bare-repository", "--show-toplevel", "--revs-only", _COMMIT)
    code, out, err = git.run_sync(*words, cwd=directory)
    bare, _, rest = out.removesuffix("\n").partition("\n")
    top, commit = _split_commit(rest)
    if location is not None and "\n" in location.top:
        top, commit = location.top, ""  # it is refused below
    if location is None or not bare:
        if "dubious ownership" in err:
            raise UsageError(
                f"{directory} belongs to another user, so git refuses to use it. "
                f"If you trust it: git config --global --add safe.directory {directory} && "
                f"git config --global --add safe.directory {directory}/.git"
            )
        raise UsageError(
            f"{directory} is not in a git repository. Go to one, or make one with `git init` and a first commit."
        )
    if bare == "true":
        raise UsageError(
            f"{directory} is a bare repository; Holdfast needs a checkout. Clone it, and start from there."
        )
    if code != 0:
        raise UsageError(f"{directory} is inside a .git directory. Go to the checkout itself.")
    top, common = os.path.realpath(top), location.common_dir
    elsewhere = find_other_work_tree(location)
    if elsewhere is not None and elsewhere != top:
        raise UsageError(
            f"The repository of {directory} says that its files are elsewhere, in {elsewhere} (`core.worktree`). "
            "Go there if that is what you want; if not: git config --show-origin core.worktree"
        )
    if not is_text(top + common):
        raise UsageError(f"The path of the repository {top} has bytes that are not UTF-8. Rename the directory.")
    if is_misleading(top + common):
        raise UsageError(
            f"The path of the repository {top} has line ends, control characters, or characters that change the "
            "direction of writing: it cannot be shown as it is. Rename the directory."
        )
    if commit:
        _commits_seen[top] = commit
    return top, common


_COMMIT = "HEAD^{commit}"
_commits_seen: dict[str, str] = {}  # top level → a commit that HEAD was, and that git found in the repository


def _split_commit(lines: str) -> tuple[str, str]:
    """Return the path in git's output and the commit, if one follows."""
    path, _, last = lines.rpartition("\n")
    return (path, last) if path and refs.is_commit_id(last) else (lines, "")


def locate_fast(top: str) -> tuple[str, str]:
    """Return the same as `locate_repository`, without git in the simple case: a supervisor must not wait for git."""
    common = os.path.join(top, ".git")
    if os.path.isfile(os.path.join(common, "HEAD")) and os.path.isdir(os.path.join(common, "objects")):
        real = os.path.realpath(top), os.path.realpath(common)
        if is_text("".join(real)) and not is_misleading("".join(real)):
            return real
    return locate_repository(top)


def current_base(top: str) -> str:
    """Return the current branch's name, or HEAD's commit if it is detached. Refuse an empty repository."""
    commit = refs.read_head(top)
    if commit is not None and _commits_seen.get(top) == commit:  # git need not be asked again
        name, location = head_at(top), locate(top)
        if name == "HEAD":
            return commit
        if location is not None and refs.read_branch_tip(top, location.common_dir, name) == commit:
            return name
    code, out, _err = git.run_sync("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=top)
    if code != 0:
        raise UsageError(
            f"The repository {top} has no commit yet, so there is nothing to start from. Make a first commit."
        )
    branch_code, branch, _err = git.run_sync("symbolic-ref", "--quiet", "--short", "HEAD", cwd=top)
    return branch.strip() if branch_code == 0 else out.strip()


_UNCOMMITTED = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=dirty")
_PATIENCE = 5.0  # seconds: the count is only for a note


def count_uncommitted(top: str) -> int:
    """Return how many files and new directories of a checkout are not committed. 0 also means: git did not answer.

    The repository's settings file is not counted, because it applies without a commit.
    """
    from holdfast.workspaces.git.git_state import READ_ONLY_ENV  # `add` has to start fast

    env = {**READ_ONLY_ENV, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        code, out, _err = git.run_sync(
            *_UNCOMMITTED, "--", ".", ":(top,exclude)holdfast.toml", cwd=top, env=env, timeout=_PATIENCE
        )
    except (HoldfastError, OSError):
        return 0
    return sum(len(entry) > 3 for entry in out.split("\0")) if code == 0 else 0


def head_of(repo: Repo) -> str:
    """Return the current branch's name, read without git, or HEAD if there is none. Either of them is resolved to a
    commit when the task starts."""
    return head_at(repo.path)


def head_at(path: str) -> str:
    git_dir = refs.find_git_dir(path)
    ref = None if git_dir is None else refs.read_head_ref(git_dir)
    return ref.removeprefix("refs/heads/") if ref is not None and ref.startswith("refs/heads/") else "HEAD"


def check_base(top: str, directory: str, base: str) -> str:
    """Return a base that was named in `directory`, in a form that means the same in the checkout `top`. `HEAD` in an
    agent's workspace is another commit than the user's HEAD."""
    if is_text(base):
        if (
            not _is_within(directory, top)
            and git.run_sync("show-ref", "--verify", f"refs/heads/{base}", cwd=top)[0] != 0
        ):
            base = _commit(directory, base) or base
        if _commit(top, base) is not None:
            return base
    raise UsageError(f"'{base}' is not a commit or branch in {top}.")


def resolve_commit(top: str, name: str) -> str | None:
    """Return the commit that a name means now."""
    return _commit(top, name)


def repo_of_workspace(home: str, directory: str) -> str | None:
    """Return the id of the repository behind the workspace that contains `directory`. None: `directory` is not in a
    workspace of this home."""
    root, place = os.path.realpath(os.path.join(home, "workspaces")), os.path.realpath(directory)
    within = os.path.relpath(place, root).split(os.sep)
    return within[0] if len(within) > 1 and within[0] not in ("..", ".trash") else None


def _is_within(directory: str, top: str) -> bool:
    return (os.path.realpath(directory) + os.sep).startswith(os.path.realpath(top) + os.sep)


def _commit(directory: str, base: str) -> str | None:
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    code, out, _err = git.run_sync(*words, cwd=directory)
    return out.split()[-1] if code == 0 and out.strip() else None
