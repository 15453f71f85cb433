"""The backup file: a tar whose first member is a manifest. The manifest names every other member with its size and
hash."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Mapping
from typing import Any

from holdfast.base import faults
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import Refused
from holdfast.base.files import open_private

FORMAT = 1
MANIFEST = "manifest.json"
STORE = "store.db"
BIGGEST_MANIFEST = 16 * 1024 * 1024
_MEMBER = re.compile(r"store\.db|shadows/[a-z0-9]+\.bundle|home/[A-Za-z0-9_-]+\.(json|toml)")
_BLOCK = 1 << 20
_LAST_DAY = 253402300799  # of the year 9999: calendars end there
# Errors from a manifest that we did not write: another shape, nested too deep, numbers out of range.
_NO_MANIFEST = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    made_at: float
    version: str
    schema: int
    counts: Mapping[str, Any]
    members: Mapping[str, Mapping[str, Any]]  # name → sha256, size


def write(target: str, folder: str, names: list[str], facts: Mapping[str, object]) -> None:
    """Write a tar of the files `names` in `folder`, and sync it. The caller renames the tar into place."""
    members: dict[str, dict[str, Any]] = {
        name: {"sha256": _hash(os.path.join(folder, name)), "size": os.path.getsize(os.path.join(folder, name))}
        for name in names
    }
    text = json.dumps({"format": FORMAT, **facts, "members": members}, indent=1).encode()
    faults.effect("archive.write")
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(_entry(MANIFEST, len(text)), io.BytesIO(text))
            for name in names:
                with open(os.path.join(folder, name), "rb") as content:
                    tar.addfile(_entry(name, members[name]["size"]), content)
        file.flush()
        os.fsync(file.fileno())


def read(path: str, folder: str | None) -> Manifest:
    """Check every member against the manifest, and unpack into `folder` if given. Raise Refused if a member is missing,
    unexpected or wrong."""
    try:
        with tarfile.open(path, mode="r:") as tar:
            manifest = _manifest(path, tar)
            found = set()
            for entry in tar:
                if entry.name == MANIFEST:
                    continue
                if not entry.isreg() or entry.name not in manifest.members or entry.name in found:
                    raise Refused(f"{path} holds something that its manifest does not name ('{entry.name}').")
                found.add(entry.name)
                _check_member(path, tar, entry, manifest.members[entry.name], folder)
    except (tarfile.TarError, EOFError, *_NO_MANIFEST) as error:
        raise Refused(f"{path} cannot be read as a backup: {type(error).__name__} {error}") from error
    missing = sorted(set(manifest.members) - found)
    if missing:
        raise Refused(f"{path} is incomplete: {missing[0]} is missing ({len(missing)} missing).")
    return manifest


def _manifest(path: str, tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    content = tar.extractfile(first) if first is not None and first.isreg() and first.name == MANIFEST else None
    if content is None or first is None or first.size > BIGGEST_MANIFEST:
        raise Refused(f"{path} is not a backup of Holdfast: it has no manifest.")
    text = json.loads(content.read())
    if text["format"] != FORMAT:
        raise Refused(f"{path} has format {text['format']}, but this Holdfast knows {FORMAT}: upgrade it first.")
    members = dict(text["members"])
    strange = [name for name in members if not _MEMBER.fullmatch(name)]
    if strange or STORE not in members:
        raise Refused(f"{path} is not a backup of Holdfast ({strange[0] if strange else 'no store in it'}).")
    made_at = float(text["made_at"])
    if not 0 <= made_at <= _LAST_DAY:
        raise Refused(f"{path} is not a backup of Holdfast: the time in its manifest is not valid.")
    return Manifest(
        made_at=made_at,
        version=str(text["version"]),
        schema=int(text["schema"]),
        counts=dict(text["counts"]),
        members=members,
    )


def _check_member(
    path: str, tar: tarfile.TarFile, entry: tarfile.TarInfo, said: Mapping[str, Any], folder: str | None
) -> None:
    content = tar.extractfile(entry)
    assert content is not None  # a regular file
    target = None if folder is None else os.path.join(folder, entry.name)
    faults.effect("archive.unpack")
    if target is not None:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    seen = hashlib.sha256()
    with open(os.devnull if target is None else target, "wb", opener=open_private) as out:
        while block := content.read(_BLOCK):
            seen.update(block)
            out.write(block)
        if target is not None:
            out.flush()
            os.fsync(out.fileno())
    if seen.hexdigest() != said["sha256"]:
        raise Refused(f"{path} is damaged: {entry.name} differs from what was backed up. Nothing was changed.")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = 0o600
    return entry


def _hash(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
