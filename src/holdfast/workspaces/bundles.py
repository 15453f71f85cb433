"""Saved work in single files: bundles of a shadow repository's salvages, written and read back."""

from __future__ import annotations

import os

from holdfast import faults
from holdfast.errors import WorkspaceProblem
from holdfast.workspaces import git
from holdfast.workspaces.names import SALVAGE_REFS, shadow_path
from holdfast.workspaces.shadow import PRIVATE, RAW
from holdfast.workspaces.trash import delete_tree

RESTORED_REFS = "refs/restored/"  # what a bundle brought, also where a newer salvage has the name
PATIENCE = 3600.0


def salvages_in(shadow: str) -> dict[str, str]:
    """ref → commit of everything saved in a shadow repository."""
    out = _git(shadow, "for-each-ref", "--format=%(refname) %(objectname)", SALVAGE_REFS)
    return dict(line.split(" ", 1) for line in out.splitlines())


def write_bundle(shadow: str, target: str) -> int:
    """All saved work of a shadow, with its history, as one file; how many salvages. 0: none, and no file."""
    found = salvages_in(shadow)
    if found:
        _git(shadow, "bundle", "create", "--quiet", target, f"--glob={SALVAGE_REFS}*")
        _git(shadow, "bundle", "verify", "--quiet", target)
    return len(found)


def read_bundle(home: str, repo_id: str, bundle: str) -> None:
    """Add a bundle's salvages to a shadow, made if it is not there. Nothing that is there is changed; repeatable."""
    shadow = shadow_path(home, repo_id)
    faults.effect("shadow.restore")
    if os.path.isdir(shadow):
        _add(shadow, bundle)
    else:
        os.makedirs(os.path.dirname(shadow), mode=0o700, exist_ok=True)
        aside = f"{shadow}.new"
        delete_tree(aside)
        _git("/", "init", "--quiet", "--bare", aside)
        with open(os.path.join(aside, "info", "attributes"), "w", encoding="ascii") as file:
            file.write(RAW)
        _add(aside, bundle)
        os.rename(aside, shadow)
    faults.passed("shadow.restored")


def _add(shadow: str, bundle: str) -> None:
    _git(shadow, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", bundle, f"+{SALVAGE_REFS}*:{RESTORED_REFS}*")
    present = salvages_in(shadow)
    listed = _git(shadow, "for-each-ref", "--format=%(refname) %(objectname)", RESTORED_REFS)
    for line in listed.splitlines():
        restored, commit = line.split(" ", 1)
        ref = SALVAGE_REFS + restored.removeprefix(RESTORED_REFS)
        if ref not in present:
            _git(shadow, "update-ref", ref, commit, "0" * len(commit))


def _git(directory: str, *arguments: str) -> str:
    code, out, err = git.call(*arguments, cwd=directory, env=PRIVATE, timeout=PATIENCE)
    if code != 0:
        raise WorkspaceProblem(f"git {arguments[0]} failed in {directory}: {err.strip() or 'no message'}")
    return out
