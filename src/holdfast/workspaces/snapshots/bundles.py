"""Git bundles of the saved work in a shadow repository: written for a backup, and read back by a restore."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from holdfast.base import faults
from holdfast.base.errors import WorkspaceProblem
from holdfast.base.files import open_regular_file
from holdfast.workspaces.git import git
from holdfast.workspaces.names import CHECKPOINT_REFS, SALVAGE_REFS, shadow_path
from holdfast.workspaces.removal.trash import delete_tree
from holdfast.workspaces.snapshots.shadow_repo import PRIVATE, RAW

EARLIER_REFS = "refs/restored-earlier/"
RESTORED_REFS = "refs/restored/"  # everything a bundle brought, even if a newer salvage has the same name
PATIENCE = 3600.0


def list_salvages(shadow: str) -> dict[str, str]:
    """Return ref → commit of the present salvages in a shadow repository."""
    return _refs(shadow, SALVAGE_REFS)


def list_saved_work(shadow: str) -> dict[str, str]:
    """Return ref → commit of all saved work, including what a restore brought next to a newer salvage."""
    return _refs(shadow, SALVAGE_REFS, RESTORED_REFS, EARLIER_REFS)


def _refs(shadow: str, *prefixes: str) -> dict[str, str]:
    out = _git(shadow, "for-each-ref", "--format=%(refname) %(objectname)", *prefixes)
    return dict(line.split(" ", 1) for line in out.splitlines())


def write_bundle(shadow: str, target: str) -> int:
    """Write all saved work of a shadow, with its history, to one file. Return the number of salvages.

    Nothing is written if there are neither salvages nor checkpoints.
    """
    with _hold_shadow(shadow):
        found = list_saved_work(shadow)
        if found or _refs(shadow, CHECKPOINT_REFS):  # a paused task resumes from its checkpoint, on any machine
            globs = [f"--glob={prefix}*" for prefix in (SALVAGE_REFS, RESTORED_REFS, EARLIER_REFS, CHECKPOINT_REFS)]
            _git(shadow, "bundle", "create", "--quiet", target, *globs)
            _git(shadow, "bundle", "verify", "--quiet", target)
    return len(found)


@contextlib.contextmanager
def _hold_shadow(shadow: str) -> Iterator[None]:
    """Hold the shadow's lock, so that reclaim.py deletes nothing. Without a lock file, nothing was ever saved there."""
    with contextlib.ExitStack() as closing:
        with contextlib.suppress(FileNotFoundError):
            lock = closing.enter_context(open(open_regular_file(f"{shadow}.lock", os.O_RDONLY), "rb"))
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield


def read_bundle(home: str, repo_id: str, bundle: str) -> None:
    """Add a bundle's salvages to a shadow, which is created if missing. Changes nothing else, and can be repeated."""
    shadow = shadow_path(home, repo_id)
    faults.effect("shadow.restore")
    if os.path.isdir(shadow):
        _fetch_bundle(shadow, bundle)
    else:
        os.makedirs(os.path.dirname(shadow), mode=0o700, exist_ok=True)
        aside = f"{shadow}.new"
        delete_tree(aside)
        _git("/", "init", "--quiet", "--bare", f"--object-format={_object_format(bundle)}", aside)
        with open(os.path.join(aside, "info", "attributes"), "w", encoding="ascii") as file:
            file.write(RAW)
        _fetch_bundle(aside, bundle)
        os.rename(aside, shadow)
    faults.passed("shadow.restored")


def _object_format(bundle: str) -> str:
    """Return the hash of the bundle's objects. Only a sha256 bundle names it in its header."""
    return "sha256" if b"@object-format=sha256" in _header_of(bundle) else "sha1"


def _header_of(bundle: str) -> bytes:
    """Return the bundle's capabilities and refs: everything up to the first empty line."""
    header = b""
    with open(bundle, "rb") as file:
        while (line := file.readline()) not in (b"\n", b""):
            header += line
    return header


def _fetch_bundle(shadow: str, bundle: str) -> None:
    wanted = [f"+{SALVAGE_REFS}*:{RESTORED_REFS}*"]
    if RESTORED_REFS.encode() in _header_of(bundle):  # from an earlier restore; the names must not collide
        wanted.append(f"+{RESTORED_REFS}*:{EARLIER_REFS}*")
    if CHECKPOINT_REFS.encode() in _header_of(bundle):  # under the same names: rows of the same backup refer to them
        wanted.append(f"+{CHECKPOINT_REFS}*:{CHECKPOINT_REFS}*")
    _git(shadow, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", bundle, *wanted)
    present = list_salvages(shadow)
    listed = _git(shadow, "for-each-ref", "--format=%(refname) %(objectname)", RESTORED_REFS)
    for line in listed.splitlines():
        restored, commit = line.split(" ", 1)
        ref = SALVAGE_REFS + restored.removeprefix(RESTORED_REFS)
        if ref not in present:
            _git(shadow, "update-ref", ref, commit, "0" * len(commit))


def _git(directory: str, *arguments: str) -> str:
    code, out, err = git.run_sync(*arguments, cwd=directory, env=PRIVATE, timeout=PATIENCE)
    if code != 0:
        raise WorkspaceProblem(f"git {arguments[0]} failed in {directory}: {err.strip() or 'no message'}")
    return out
