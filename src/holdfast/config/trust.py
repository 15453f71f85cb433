"""The trust record: which repositories may set keys that could run commands, for exactly the values that were seen.

The record is a file in the home. It is keyed by the checkout's real path and holds a digest of the dangerous values
only. So a harmless edit needs no new trust, but any change of a dangerous value needs it. See docs/adr/*-trust.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any

from holdfast.base import faults
from holdfast.base.errors import Unavailable
from holdfast.base.home import ensure_home
from holdfast.config.settings import SETTINGS

NAME = "trust.json"
VERSION = 1
Record = dict[str, Any]


def dangerous_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that need trust. Empty lists and tables are left out, because they run nothing and show
    nothing."""
    return {key: value for key, value in sorted(values.items()) if SETTINGS[key].needs_trust and value}


def digest_values(dangerous: Mapping[str, Any]) -> str:
    canonical = json.dumps(dangerous, sort_keys=True, separators=(",", ":"))
    return sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def is_trusted(home: str, repo: str, dangerous: Mapping[str, Any]) -> bool:
    record = read_trust_records(home).get(os.path.realpath(repo))
    return record is not None and record.get("sha256") == digest_values(dangerous)


def are_schedules_trusted(home: str, repo: str, schedules: Mapping[str, Any]) -> bool:
    """True if exactly these schedules of a repository's file are trusted to add tasks.

    Schedules have a digest of their own: a changed schedule must not block a task that a person adds by hand.
    """
    record = read_trust_records(home).get(os.path.realpath(repo))
    return not schedules or (record is not None and record.get("schedules") == digest_values(schedules))


def trusted_settings(home: str, repo: str) -> dict[str, str]:
    """Return the digests of values that are trusted although they are less strict than the user's own, as a mapping
    from the full key.

    Each key has a digest of its own: a change of another value must not take the trust in this key away.
    """
    settings = read_trust_records(home).get(os.path.realpath(repo), {}).get("settings")
    return settings if isinstance(settings, dict) else {}


def are_settings_trusted(home: str, repo: str, settings: Mapping[str, Any]) -> bool:
    """True if each of these less strict settings is trusted with its value."""
    trusted = trusted_settings(home, repo) if settings else {}
    return all(trusted.get(key) == digest_values({key: value}) for key, value in settings.items())


def read_trust_records(home: str) -> dict[str, Record]:
    """Return all trust records by path. Raise Unavailable if the file cannot be parsed: then nothing is trusted."""
    path = os.path.join(home, NAME)
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    records = document.get("trusted") if isinstance(document, dict) and document.get("version") == VERSION else None
    if not isinstance(records, dict) or not all(isinstance(record, dict) for record in records.values()):
        raise _unreadable(path, "it has an unknown form")
    return records


def record_trust(
    home: str,
    repo: str,
    dangerous: Mapping[str, Any],
    *,
    by: str,
    at: float,
    schedules: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Record trust in `repo` for exactly these values, schedules and less strict settings."""
    keys = [*dangerous, *(settings or {}), *(schedules or {})]
    record: Record = {"sha256": digest_values(dangerous), "keys": keys, "by": by, "at": at}
    if settings:
        record["settings"] = {key: digest_values({key: value}) for key, value in settings.items()}
    if schedules:
        record["schedules"] = digest_values(schedules)
    ensure_home(home)
    with _lock_record(home):
        records = read_trust_records(home)
        records[os.path.realpath(repo)] = record
        _write(home, records)


def revoke_trust(home: str, repo: str) -> bool:
    """Remove the trust in `repo`. Return False if there was none."""
    if os.path.realpath(repo) not in read_trust_records(home):
        return False
    with _lock_record(home):
        records = read_trust_records(home)
        gone = records.pop(os.path.realpath(repo), None)
        _write(home, records)
    return gone is not None


@contextlib.contextmanager
def _lock_record(home: str) -> Iterator[None]:
    """Hold the lock of the trust record. Without it, two processes that write at once would lose one change."""
    path = os.path.join(home, f"{NAME}.lock")
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _write(home: str, records: Mapping[str, Record]) -> None:
    path = os.path.join(home, NAME)
    aside = f"{path}.new"
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "trusted": records}, file, indent=1, sort_keys=True)
            file.flush()
            os.fsync(fd)
        faults.effect("trust.rename")
        os.replace(aside, path)
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> Unavailable:
    return Unavailable(f"Trust could not be recorded in {path}: {error.strerror}. Nothing was changed.")


def _unreadable(path: str, why: object) -> Unavailable:
    return Unavailable(
        f"The trust record {path} cannot be read ({why}), so nothing is trusted. "
        "Move the file away, and trust your repositories again with `holdfast trust`."
    )
