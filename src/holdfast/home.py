"""Where everything of ours is kept."""

from __future__ import annotations

import os

from holdfast import faults
from holdfast.errors import Unavailable


def home_directory() -> str:
    """$HOLDFAST_HOME, else the XDG state directory."""
    chosen = os.environ.get("HOLDFAST_HOME")
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(state, "holdfast")


def ensure_home(home: str) -> None:
    """Make the home, private to its user; a clear refusal when that cannot be done."""
    try:
        faults.effect("home.make")
        os.makedirs(home, mode=0o700, exist_ok=True)
        if os.stat(home).st_mode & 0o077:
            os.chmod(home, 0o700)
        if not os.access(home, os.W_OK | os.X_OK):
            raise PermissionError(13, "no permission to write")
    except OSError as error:
        raise Unavailable(
            f"The home {home} cannot be used: {error.strerror}. Set HOLDFAST_HOME to a directory that you may write."
        ) from error
