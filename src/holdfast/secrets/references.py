"""References to secrets: "env:NAME" or "file:PATH". A secret is looked up when it is needed and stored nowhere."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.base.text import is_text

LARGEST = 64 * 1024
REFERENCE_PREFIXES = ("env:", "file:")


class SecretMissing(Exception):
    """An error for a secret that cannot be looked up. The text names the missing variable or file, never a secret."""


def look_up_secret(value: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the secret that a reference names. A value that is not a reference is the secret itself."""
    how, _, where = value.partition(":")
    if how == "env":
        found = environment.get(where)
        if not found:
            raise SecretMissing(f"names the variable {where}, which the supervisor's environment does not have")
        if not is_text(found):
            raise SecretMissing(f"names the variable {where}, which holds no usable text")
        return found
    return _from_file(os.path.expanduser(where)) if how == "file" else value


def _from_file(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            text = os.read(fd, LARGEST + 1).decode().strip()
        finally:
            os.close(fd)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SecretMissing(f"names the file {path}: {why}") from None
    if not text or len(text) > LARGEST or not is_text(text):
        raise SecretMissing(f"names the file {path}, which holds no usable text")
    return text
