"""The home: the directory that holds everything that Holdfast stores."""

from __future__ import annotations

import os

from holdfast.base import faults
from holdfast.base.errors import Refused, Unavailable, UsageError
from holdfast.base.text import is_text


def home_directory() -> str:
    """Return the full path of the home: $HOLDFAST_HOME, else a folder in the XDG state directory."""
    chosen = os.environ.get("HOLDFAST_HOME")
    if chosen:
        home = os.path.expanduser(chosen)
        if not os.path.isabs(home):
            raise UsageError(
                f"HOLDFAST_HOME is '{chosen}', which would mean a different home in each directory. Write the full "
                "path, beginning with /."
            )
        home = os.path.normpath(home)
    else:
        state = os.environ.get("XDG_STATE_HOME", "")
        home = os.path.join(state if os.path.isabs(state) else _users_own(".local", "state"), "holdfast")
    if not is_text(home):
        raise Unavailable(
            "The path of the home has bytes that are not UTF-8. Set HOLDFAST_HOME to a directory with a plain name."
        )
    return home


def _users_own(*names: str) -> str:
    """Return a path below the user's directory: $HOME, or the system's list of users if HOME is not usable."""
    directory = os.environ.get("HOME", "")
    if not os.path.isabs(directory):
        import pwd

        try:
            directory = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise Unavailable(
                "HOME is not set and this user has no directory of its own. Set HOLDFAST_HOME to a directory."
            ) from None
    return os.path.join(directory, *names)


def refuse_foreign_home(home: str) -> None:
    """Raise Refused if the home belongs to another user. Nothing may be written into such a home.

    That user could replace the home's files, even by links, while a process of ours writes to them. Root may still read
    the home.
    """
    try:
        owner = os.stat(home).st_uid
    except OSError:
        return  # it is not there yet, or cannot be used: other checks say so
    if owner != os.geteuid():
        name = find_user_name(owner)
        shown, account = (name, name) if name else (f"uid {owner}", f"'#{owner}'")
        raise Refused(
            f"The home {home} belongs to another user ({shown}), so nothing is written there. Run the command as that "
            f"user (`sudo -u {account} holdfast …`), or set HOLDFAST_HOME to a directory of your own."
        )


def find_user_name(uid: int) -> str | None:
    """Return the name of a user. None: the system has no name for the uid."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def ensure_home(home: str) -> None:
    """Make the home, private to its user. Raise a clear error if that is not possible."""
    refuse_foreign_home(home)
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


def ensure_directories(home: str, *names: str) -> None:
    """Make directories in the home. If a file is in the place of a directory, that is reported here, before a
    supervisor fails because of it."""
    refuse_foreign_home(home)
    for name in names:
        path = os.path.join(home, name)
        try:
            faults.effect("home.directory")
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"{path} cannot be used as a directory: {error.strerror}. Check what it is, move it away, and try "
                f"again."
            ) from error
