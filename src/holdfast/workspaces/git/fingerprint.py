"""Fingerprints of a repository outside our branch prefix: configuration, hooks and refs. Also a list of its locks.

An agent in a worktree can write to the shared `.git` (R-TREE-16). So can the user, all day. `RepoChanges` separates
what needs a person (new commands, refs that an agent moved) from the rest. The files are read without a git process.
Reading 10,000 loose refs takes a second or two, which is too long for each run. So values are cached, and a ref is read
again only when its file changed. Refs in reftables (git's other storage) are not examined.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterator, Mapping

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.files import open_private
from holdfast.workspaces.git.config_file import list_commands, parse_config
from holdfast.workspaces.git.reflogs import find_refs_of_agent, list_commits_made, read_plain
from holdfast.workspaces.names import BRANCH_PREFIX, REPO_LOCK

RECORD = "repo-before.json"  # in the run's directory
PACKED = "packed-refs-before"
_FILES = ("config", "config.worktree", "HEAD", "info/attributes", "info/exclude", "objects/info/alternates")
_OURS = re.compile(rf"refs/(heads|remotes/[^/]+)/{re.escape(BRANCH_PREFIX)}")
_SECTION = re.compile(rb"\s*\[")
_OUR_SECTION = re.compile(rb'\s*\[branch "' + re.escape(BRANCH_PREFIX.encode()))


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """The state of a repository outside our branch prefix."""

    files: Mapping[str, str]  # name → digest, of configuration and hooks
    commands: Mapping[str, str]  # name → digest, of hooks, and of keys of the configuration that run commands
    loose: Mapping[str, str]  # ref → value
    packed: str  # digest of packed-refs


@dataclass(frozen=True, kw_only=True, slots=True)
class RepoChanges:
    """The differences: name → current value. The value is "" if the file or ref is gone."""

    files: Mapping[str, str]
    refs: Mapping[str, str]
    commands: Mapping[str, str]  # hooks and keys that run commands: new or changed ones
    agent_refs: Mapping[str, str]  # refs that the agent moved, and neither Holdfast nor the user

    @property
    def names(self) -> list[str]:
        """Return every difference. A changed key of a configuration is listed instead of its file."""
        keys = [name for name in self.commands if name not in self.files]
        files = [name for name in self.files if not any(key.startswith(f"{name} ") for key in keys)]
        return [*sorted([*files, *keys]), *sorted(self.refs)]

    @property
    def alarming(self) -> list[str]:
        """Return the differences that need a person."""
        return [*sorted(self.commands), *sorted(self.agent_refs)]

    @property
    def digest(self) -> str:
        """Return an id that is equal for equal alarming changes, whichever run found them."""
        return _digest(json.dumps([sorted(self.commands.items()), sorted(self.agent_refs.items())]).encode())


class Fingerprints:
    """The functions that take and compare fingerprints. One instance serves all repositories, because it caches the
    loose refs."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[tuple[int, ...], str]] = {}  # path → (inode, size, times), value

    def note(self, common_dir: str, folder: str, workspace: str) -> None:
        """Save a fingerprint in the run's directory, so that any supervisor can compare at the run's end."""
        taken = self.take(common_dir)
        faults.effect("fingerprint.note")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        packed = read_plain(os.path.join(common_dir, "packed-refs"))
        if packed is not None:
            with open(os.path.join(folder, PACKED), "wb", opener=open_private) as file:
                file.write(packed)
        record = {
            "files": taken.files,
            "commands": taken.commands,
            "loose": taken.loose,
            "packed": _digest(packed),
            "made": sorted(list_commits_made(common_dir, workspace)),
        }
        path = os.path.join(folder, RECORD)
        with open(path, "w", encoding="utf-8", errors="surrogateescape", opener=open_private) as text:
            json.dump(record, text)

    def compare(self, common_dir: str, folder: str, workspace: str) -> RepoChanges | None:
        """Return the changes since `note`. None: nothing changed, or the earlier fingerprint cannot be read."""
        try:
            record = json.loads(read_plain(os.path.join(folder, RECORD)) or b"null")
            before = Fingerprint(
                files=dict(record["files"]),
                commands=dict(record["commands"]),
                loose=dict(record["loose"]),
                packed=str(record["packed"]),
            )
            made_before = frozenset(map(str, record["made"]))
        except (ValueError, TypeError, KeyError, RecursionError):
            return None  # never written, or an agent wrote over it
        now = self.take(common_dir)
        if now == before:
            return None
        packed_before = read_plain(os.path.join(folder, PACKED))
        packed_now = read_plain(os.path.join(common_dir, "packed-refs"))
        files = _find_differences(before.files, now.files)
        if _digest(packed_before) != before.packed:
            files["packed-refs"] = "its copy of before is spoilt"
            packed_before = packed_now
        refs = _find_differences(
            {**_packed_refs(packed_before), **before.loose}, {**_packed_refs(packed_now), **now.loose}
        )
        if not files and not refs:
            return None
        commands = _find_differences(before.commands, now.commands)
        return RepoChanges(
            files=files,
            refs=refs,
            commands={name: digest for name, digest in commands.items() if digest},
            agent_refs=find_refs_of_agent(common_dir, workspace, refs, made_before),
        )

    def forget(self, folder: str) -> None:
        """Delete a saved fingerprint after the comparison, to free its disk space."""
        for name in (RECORD, PACKED):
            with contextlib.suppress(OSError):
                faults.effect("fingerprint.forget")
                os.unlink(os.path.join(folder, name))

    def take(self, common_dir: str) -> Fingerprint:
        files: dict[str, str] = {}
        commands: dict[str, str] = {}
        for name, content in _settings(common_dir):
            files[name] = _digest(_without_our_sections(name, content))
            commands.update(_commands_of(name, content))
        loose: dict[str, str] = {}
        for ref, path in _refs(common_dir):
            if not ref.endswith(".lock") and not _OURS.match(ref):
                value = self._value(path)
                if value is not None:
                    loose[ref] = value
        packed = _digest(read_plain(os.path.join(common_dir, "packed-refs")))
        return Fingerprint(files=files, commands=commands, loose=loose, packed=packed)

    def _value(self, path: str) -> str | None:
        try:
            found = os.lstat(path)
        except OSError:
            return None
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        known = self._values.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        content = read_plain(path)
        value = "" if content is None else content[:1024].decode(errors="surrogateescape").strip()
        self._values[path] = (stamp, value)
        return value


def list_shared_locks(common_dir: str) -> list[str]:
    """Return git's lock files in the shared directory, outside our prefix. They may be in use or left over."""
    found = []
    with contextlib.suppress(OSError):
        found = [name for name in os.listdir(common_dir) if name.endswith(".lock") and name != REPO_LOCK]
    found += [ref for ref, _path in _refs(common_dir) if ref.endswith(".lock") and not _OURS.match(ref)]
    return [os.path.join(common_dir, name) for name in sorted(found)]


def _settings(common_dir: str) -> Iterator[tuple[str, bytes]]:
    for name in _FILES:
        content = read_plain(os.path.join(common_dir, name))
        if content is not None:
            yield name, content
    hooks = os.path.join(common_dir, "hooks")
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(hooks)):
            if not name.endswith(".sample"):  # git does not run these
                yield f"hooks/{name}", _hook(os.path.join(hooks, name))


def _commands_of(name: str, content: bytes) -> dict[str, str]:
    """Return what git may run because of a file: the hook itself, or keys of a configuration, with a digest."""
    if name.startswith("hooks/"):
        return {name: _digest(content)}
    if not name.startswith("config"):
        return {}
    values: dict[str, list[str]] = defaultdict(list)
    for key, value in list_commands(parse_config(content.decode(errors="surrogateescape"))):
        values[f"{name} {key}"].append(value)
    return {key: _digest(json.dumps(found).encode()) for key, found in values.items()}


def _hook(path: str) -> bytes:
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISLNK(found.st_mode):
            return b"-> " + os.fsencode(os.readlink(path)) + b"\n" + (read_plain(os.path.realpath(path)) or b"")
        return f"{found.st_mode:o}\n".encode() + (read_plain(path) or b"")
    return b""


def _without_our_sections(name: str, content: bytes) -> bytes:
    """Remove the sections of our branches from the config. An agent's `git push -u` writes one for its own branch."""
    if name != "config":
        return content
    kept, skipping = [], False
    for line in content.splitlines(keepends=True):
        if _SECTION.match(line):
            skipping = bool(_OUR_SECTION.match(line))
        if not skipping:
            kept.append(line)
    return b"".join(kept)


def _refs(common_dir: str) -> Iterator[tuple[str, str]]:
    """Yield (ref, path) of every file below `refs`. Links are not followed."""
    waiting = ["refs"]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(os.path.join(common_dir, folder)) as entries:
                for entry in entries:
                    name = f"{folder}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(name)
                    else:
                        yield name, entry.path
        except OSError:
            continue


def _packed_refs(content: bytes | None) -> dict[str, str]:
    found = {}
    for line in (content or b"").decode(errors="surrogateescape").splitlines():
        value, _, ref = line.partition(" ")
        if ref and not line.startswith(("#", "^")) and not _OURS.match(ref):
            found[ref] = value
    return found


def _find_differences(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    return {name: now.get(name, "") for name in {*before, *now} if before.get(name) != now.get(name)}


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()[:32]
