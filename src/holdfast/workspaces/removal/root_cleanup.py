"""Root's cleanup before a service starts: it deletes trash in the homes that the unit names, and nothing else.

`holdfast-cleanup` starts it as `python3 -I -S root_cleanup.py WORKSPACES TRASH TRASHED_SUFFIX STRANDED_PREFIX` and so
passes the names. Root runs copies of this file and of `delete_tree.py`, both in a directory of root's. Nothing that the
user can write is imported, executed or believed (docs/adr/0018-privileged-deleter.md):

- Homes come from the unit's environment. Every directory on the way is opened by name below its parent, without
  following a symlink. Below the home, no mount is crossed either.
- Home, workspaces and trash must belong to an owner that the unit names, or else to the owner of the home. Other users
  must not be able to write to them.
- An entry is deleted only if its name is one of ours and its marker is in the trash. Directories of other owners stay.
- Standard output is one summary line. The exit code is always 0: a service must start whatever is in its trash.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator

if __name__ == "__main__":  # -I removes our own directory from the path. That directory belongs to root.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from delete_tree import DeadlinePassed, Deleter, describe_user  # type: ignore[import-not-found]
else:
    from holdfast.workspaces.removal.delete_tree import DeadlinePassed, Deleter, describe_user

SECONDS = 30.0  # at most; the unit's TimeoutStartSec is longer
MARKER_SIZE = 4096
ENTRY = re.compile(r"(?P<id>[A-Za-z0-9]{4,64})(-half-made)?")
REPO = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class SkipEntry(Exception):
    """An entry that we must not delete. The text is the reason."""


class RootCleanup:
    """One run over all homes, with counts and messages."""

    def __init__(self, names: list[str], uids: str | None, seconds: float) -> None:
        self._workspaces, self._trash, self._suffix, self._stranded = names
        self._uids = None if uids is None else parse_ranges(uids)
        self._deadline = time.monotonic() + seconds
        self._beneath = Deleter(may_chmod=False)  # only opens directories
        self.swept = self.failed = self.skipped = 0
        self.words: list[str] = []

    def home(self, path: str) -> None:
        """Clean one home. Missing directories are fine."""
        with contextlib.ExitStack() as opened:
            try:
                home = _keep(opened, open_whole_path(path))
                owner = self._require_trusted(home, path)
                closed = not os.fstat(home).st_mode & 0o077  # then no other user can reach its content
                workspaces = _keep(opened, self._beneath.open(home, self._workspaces))
                trash = _keep(opened, self._beneath.open(workspaces, self._trash))
                shown = f"{path}/{self._workspaces}"
                self._require_trusted(workspaces, shown, owner, closed)
                self._require_trusted(trash, f"{shown}/{self._trash}", owner, closed)
                self._delete_trash(trash, owner, f"{shown}/{self._trash}")
                for repo in sorted(os.listdir(workspaces)):
                    if REPO.fullmatch(repo):
                        self._delete_stranded(workspaces, repo, trash, owner, closed, f"{shown}/{repo}")
            except FileNotFoundError:
                return
            except SkipEntry as why:
                self._skip(f"{path}: {why}")
            except OSError as error:
                self._skip(f"{path}: {error.strerror}")

    def _delete_trash(self, trash: int, owner: int, shown: str) -> None:
        for name in sorted(os.listdir(trash)):
            if not name.endswith(self._suffix):
                self._delete_entry(trash, trash, name, name, owner, f"{shown}/{name}")

    def _delete_stranded(self, workspaces: int, repo: str, trash: int, owner: int, closed: bool, shown: str) -> None:
        """Delete trash that could not be moved out of its repository's folder. Its prefix marks it as trash."""
        with contextlib.ExitStack() as opened:
            try:
                folder = _keep(opened, self._beneath.open(workspaces, repo))
                self._require_trusted(folder, shown, owner, closed)
            except (OSError, SkipEntry):
                return  # not our folder, so nothing in it is ours
            for name in sorted(os.listdir(folder)):
                if name.startswith(self._stranded):
                    self._delete_entry(folder, trash, name, name[len(self._stranded) :], owner, f"{shown}/{name}")

    def _delete_entry(self, holder: int, trash: int, name: str, entry: str, owner: int, shown: str) -> None:
        """Delete `name` in `holder`. Its marker is in the trash, under the name `entry`."""
        try:
            self._need_marker(trash, entry, owner)
            deleter = Deleter(may_chmod=False, owners=self._owners(owner), deadline=self._deadline)
            if not deleter.delete(holder, name, shown):
                self.failed += 1
                self.words.append(f"{deleter.obstacles[0]} ({deleter.obstacle_count} obstacle(s))")
                return
            self.swept += 1
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry + self._suffix, dir_fd=trash)
        except SkipEntry as why:
            self._skip(f"{shown}: {why}")
        except DeadlinePassed:
            self._skip(f"{shown}: the time was up; the next start continues")
        except OSError as error:
            self.failed += 1
            self.words.append(f"{shown}: {error.strerror}")

    def _need_marker(self, trash: int, entry: str, owner: int) -> None:
        """Raise SkipEntry unless the marker is a small regular file of the home's owner and names this entry.

        The file is read as if an attacker had written it: without following a link or waiting for a pipe.
        """
        ours = ENTRY.fullmatch(entry)
        if ours is None:
            raise SkipEntry("not a name that Holdfast uses")
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            fd = os.open(entry + self._suffix, flags, dir_fd=trash)
        except OSError:
            raise SkipEntry("no marker of ours") from None
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MARKER_SIZE or found.st_uid not in (0, owner):
                raise SkipEntry("its marker is not one of ours")
            content = os.read(fd, MARKER_SIZE + 1)
        finally:
            os.close(fd)
        try:
            named = json.loads(content)["workspace"]
        except (ValueError, KeyError, TypeError, RecursionError):
            named = None
        if named != ours["id"]:
            raise SkipEntry("its marker is about something else")

    # -- who ---------------------------------------------------------------------------------------------------

    def _require_trusted(self, fd: int, shown: str, owner: int | None = None, closed: bool = False) -> int:
        """Return the directory's owner. Raises SkipEntry if the owner is not allowed or other users can write to it."""
        found = os.fstat(fd)
        allowed = self._owners(found.st_uid if owner is None else owner)
        if not allowed(found.st_uid):
            raise SkipEntry(f"{shown} belongs to {describe_user(found.st_uid)}, who is not an allowed owner")
        if found.st_mode & 0o022 and not closed:
            raise SkipEntry(f"{shown} can be written by others (mode {found.st_mode & 0o7777:o})")
        return found.st_uid

    def _owners(self, home: int) -> Callable[[int], bool]:
        named = self._uids
        if named is None:
            return lambda uid: uid in (0, home)
        return lambda uid: uid == 0 or any(first <= uid <= last for first, last in named)

    def _skip(self, words: str) -> None:
        self.skipped += 1
        self.words.append(words)


def open_whole_path(path: str) -> int:
    """Open an absolute path name by name from `/`, following no symlink, so that no owner of a part can redirect us.

    Mounts may be crossed here, because a home may be on its own disk.
    """
    names = [name for name in path.split("/") if name]
    if not path.startswith("/") or not names or ".." in names or "." in names:
        raise SkipEntry("not an absolute path")
    fd = os.open("/", _DIRECTORY)
    for name in names:
        try:
            below = os.open(name, _DIRECTORY, dir_fd=fd)
        except NotADirectoryError:
            raise SkipEntry(f"{name} is a link or not a directory; the unit has to name the real path") from None
        finally:
            os.close(fd)
        fd = below
        mode = os.fstat(fd).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            os.close(fd)
            raise SkipEntry(f"{name} can be written by everybody")
    return fd


def _keep(opened: contextlib.ExitStack, fd: int) -> int:
    opened.callback(os.close, fd)
    return fd


def parse_ranges(text: str) -> list[tuple[int, int]]:
    """Parse `1000 100000-165535` to [(1000, 1000), (100000, 165535)]. A word that is not a number allows no uid."""
    found = []
    for word in text.replace(",", " ").split():
        first, _, last = word.partition("-")
        if first.isdigit() and (last or first).isdigit():
            found.append((int(first), int(last or first)))
    return found


def split_homes(text: str) -> Iterator[str]:
    yield from dict.fromkeys(word for word in text.split(":") if word)


def printable_line(text: str) -> str:
    """Return the text as one printable line: a file name can contain anything."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:300]


def main(names: list[str], environment: dict[str, str]) -> None:
    homes = list(split_homes(environment.get("HOLDFAST_CLEANUP_HOMES", "")))
    try:
        seconds = float(environment.get("HOLDFAST_CLEANUP_SECONDS", SECONDS))
    except ValueError:
        seconds = SECONDS
    sweep = RootCleanup(names, environment.get("HOLDFAST_CLEANUP_UIDS"), seconds)
    for home in homes:
        try:
            sweep.home(home)
        except Exception as error:  # noqa: BLE001 - the service must start whatever is in its trash
            sweep.failed += 1
            sweep.words.append(f"{home}: {type(error).__name__}: {error}")
    for words in sweep.words[:20]:
        print(f"holdfast-cleanup: {printable_line(words)}", file=sys.stderr)
    roots = printable_line(":".join(homes)) or "none"
    print(f"holdfast-cleanup: swept={sweep.swept} failed={sweep.failed} skipped={sweep.skipped} roots={roots}")


if __name__ == "__main__":
    main(sys.argv[1:], dict(os.environ))
