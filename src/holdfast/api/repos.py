"""Which repository is meant by a directory; refusals in one clear line."""

from __future__ import annotations

import os

from holdfast.errors import UsageError
from holdfast.workspaces import git


def locate(directory: str) -> tuple[str, str]:
    """(top level of the checkout, git common directory) of the repository that holds `directory`."""
    if not os.path.isdir(directory):
        raise UsageError(f"There is no directory {directory}.")
    code, out, err = git.call(
        "rev-parse", "--path-format=absolute", "--is-bare-repository", "--git-common-dir", cwd=directory
    )
    if code != 0:
        if "dubious ownership" in err:
            raise UsageError(
                f"{directory} belongs to another user, so git refuses to use it. "
                f"If you trust it: git config --global --add safe.directory {directory}"
            )
        raise UsageError(
            f"{directory} is not in a git repository. Go to one, or make one with `git init` and a first commit."
        )
    bare, common = out.splitlines()[:2]
    if bare == "true":
        raise UsageError(
            f"{directory} is a bare repository; Holdfast needs a checkout. Clone it, and start from there."
        )
    code, top, _err = git.call("rev-parse", "--path-format=absolute", "--show-toplevel", cwd=directory)
    if code != 0:
        raise UsageError(f"{directory} is inside a .git directory. Go to the checkout itself.")
    return os.path.realpath(top.strip()), os.path.realpath(common)


def current_base(top: str) -> str:
    """The current branch's name, or HEAD's commit when it is detached. Refuses an empty repository."""
    code, out, _err = git.call("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=top)
    if code != 0:
        raise UsageError(
            f"The repository {top} has no commit yet, so there is nothing to start from. Make a first commit."
        )
    branch_code, branch, _err = git.call("symbolic-ref", "--quiet", "--short", "HEAD", cwd=top)
    return branch.strip() if branch_code == 0 else out.strip()


def check_base(top: str, base: str) -> None:
    code, _out, _err = git.call("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}", cwd=top)
    if code != 0:
        raise UsageError(f"'{base}' is not a commit or branch in {top}.")
