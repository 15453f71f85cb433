"""A writer of single values into a file of settings.

Every other byte of the file stays as it is. The new text is parsed before it replaces the file: it must have the old
values and the new value. If the new value cannot be inserted like this, the file is not changed, and the error shows
the line to add by hand.
"""

from __future__ import annotations

import contextlib
import copy
import os
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from holdfast.base import faults
from holdfast.base.errors import Refused, UsageError
from holdfast.config.read_file import read_settings_file
from holdfast.config.settings import SETTINGS, format_value

_ONE_LINE = re.compile(r"^(?P<head>\s*[^#=\[]*=\s*)(?P<value>.*?)(?P<tail>\s*(?:#.*)?)$")


def write_setting(path: str, key: str, value: Any, *, of_repository: bool = False) -> bool:
    """Set `key` in the file at `path`. Return False if the file has this value already.

    Raise Refused, with the reason and the line to add by hand, if the file cannot be changed safely.
    """
    line = f"{key} = {format_value(key, SETTINGS[key].read(value))}"
    layer = read_settings_file(path, of_repository=of_repository)
    if layer.problems:
        raise _refusal(path, line, f"it has mistakes ({layer.problems[0].text})")
    if layer.values.get(key) == value:
        return False
    try:
        old = _text_of(path) if layer.exists else ""
        new = _find_new_text(old, key, line)
        if new is None:
            raise _refusal(path, line, "the right place for the line is not certain")
        _replace(path, new)
    except OSError as error:
        raise _refusal(path, line, error.strerror or str(error)) from error
    return True


def _refusal(path: str, line: str, why: str) -> Refused:
    return Refused(f"{path} was not changed: {why}. Add this line to it yourself: {line}")


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _find_new_text(old: str, key: str, line: str) -> str | None:
    """Return the first candidate text that parses to exactly the wanted values, or None."""
    wanted = _with_value(tomllib.loads(old.removeprefix("\ufeff")), key.split("."), tomllib.loads(line))
    end = "\r\n" if "\r\n" in old else "\n"
    for candidate in _candidates(old, key, line, end):
        try:
            if tomllib.loads(candidate.removeprefix("\ufeff")) == wanted:
                return candidate
        except ValueError:
            continue
    return None


def _with_value(document: dict[str, Any], path: list[str], addition: dict[str, Any]) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    into, value = changed, addition
    for name in path[:-1]:
        into, value = into.setdefault(name, {}), value[name]
    into[path[-1]] = value[path[-1]]
    return changed


def _candidates(old: str, key: str, line: str, end: str) -> Iterator[str]:
    section, _, name = key.rpartition(".")
    value = line.partition(" = ")[2]
    rows = old.splitlines(keepends=True)
    for at, row in enumerate(rows):  # the key exists: only its value changes
        found = _ONE_LINE.match(row.rstrip("\r\n"))
        if found is not None and found["head"].strip(" \t=\"'").replace('"', "").endswith(name):
            ending = row[len(row.rstrip("\r\n")) :]
            yield "".join([*rows[:at], f"{found['head']}{value}{found['tail']}{ending}", *rows[at + 1 :]])
    for at, row in enumerate(rows):  # the section of the key exists
        if section and re.fullmatch(rf"\[\s*{re.escape(section)}\s*\]\s*(#.*)?", row.strip()):
            head = row if row.endswith("\n") else row + end
            yield "".join([*rows[:at], head, f"{name} = {value}{end}", *rows[at + 1 :]])
    headers = [at for at, row in enumerate(rows) if row.lstrip().startswith("[")]
    for at in (*headers, len(rows)):  # above the first section, or at the end
        before = "".join(rows[:at])
        yield f"{before}{end if before and not before.endswith(chr(10)) else ''}{line}{end}{''.join(rows[at:])}"


def _replace(path: str, text: str) -> None:
    """Replace the file in one step. A symbolic link and the file's mode are kept."""
    real = os.path.realpath(path)
    os.makedirs(os.path.dirname(real), exist_ok=True)
    if os.path.exists(real) and not os.path.isfile(real):  # for example a link to /dev/null
        raise UsageError(f"{path} leads to {real}, which is not a file. Nothing was changed.")
    aside = f"{real}.holdfast-{os.getpid()}"
    try:
        mode = os.stat(real).st_mode & 0o777
    except FileNotFoundError:
        mode = 0o600
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
        with open(fd, "w", encoding="utf-8", newline="") as file:
            os.fchmod(fd, mode)
            file.write(text)
            file.flush()
            os.fsync(fd)
        faults.effect("config.rename")
        os.replace(aside, real)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(aside)
        raise
