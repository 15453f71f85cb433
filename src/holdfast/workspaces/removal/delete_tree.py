"""Deletion of a tree that an agent shaped and may still be changing: by descriptor, one name at a time.

There are two users: the supervisor (`trash.py`), and root before a service starts (`root_cleanup.py`). Root runs a copy
of this file. So the file imports only the standard library (docs/adr/0018-privileged-deleter.md).

- Every directory is opened as one name, relative to its open parent directory. No symlink is followed and no mount is
  crossed. openat2 guarantees that. Without openat2 we use O_NOFOLLOW and compare the mount id, because `st_dev` is
  equal across a bind mount.
- Nothing is looked up by a path, so swapping a directory while we work cannot lead us out of the tree. Nothing is
  executed.
- `owners` limits whose directories we enter. A name in a directory may be removed, no matter who owns the
  file: only a user who may remove it could have put it there.
- The number of descriptors is bounded and there is no recursion. Directories that are too deep are first renamed up
  into the top of the same tree.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable

DEEPEST = 64  # levels, and so open descriptors
RESCANS = 100  # of one directory whose content changes while we delete it
MOST_LISTED = 20  # obstacles that are listed one by one; all are counted
_MOVED_UP = ".holdfast-deep"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENAT2 = 437  # the same on every architecture except alpha, where the probe fails
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 1, 2, 4, 8


class DeadlinePassed(Exception):
    """The deadline passed before everything was deleted. The rest can be deleted later."""


class _Level:
    """An open directory: its descriptor, its name in the parent, and its subdirectories that are not deleted yet."""

    __slots__ = ("below", "fd", "name", "opened_up", "rescans", "stuck")

    def __init__(self, fd: int, name: str) -> None:
        self.fd = fd
        self.name = name
        self.below: list[str] = []
        self.opened_up = False
        self.rescans = 0
        self.stuck = False  # something below cannot be deleted, so this directory stays too


class Deleter:
    """Deletes entries of open directories, and records the obstacles."""

    def __init__(
        self,
        *,
        may_chmod: bool,
        owners: Callable[[int], bool] | None = None,
        deadline: float | None = None,
        point: Callable[[str], None] = lambda _name: None,
        openat2: Callable[[int, str, int], int] | None = None,
    ) -> None:
        """`may_chmod`: give ourselves access to our own directories. `deadline`: on the monotonic clock.

        `point` is called before every effect (crash points). `openat2`: None probes the kernel for it.
        """
        self._may_chmod = may_chmod
        self._owners = owners
        self._deadline = deadline
        self._point = point
        self._openat2 = openat2 if openat2 is not None else probe_openat2()
        self._levels: list[_Level] = []
        self._shown = ""
        self.obstacles: list[str] = []
        self.obstacle_count = 0
        self.denied = False

    def delete(self, parent: int, name: str, shown: str) -> bool:
        """Delete `name` in the directory `parent`, with everything below. True if it is gone. `shown`: for messages."""
        self._shown = shown
        before = self.obstacle_count
        try:
            self._go_into(parent, name)
            while self._levels:
                level = self._levels[-1]
                if not level.below:
                    self._leave(parent)
                elif len(self._levels) >= DEEPEST:
                    self._raise(level, level.below.pop())
                else:
                    self._go_into(level.fd, level.below.pop())
        finally:
            for level in self._levels:
                os.close(level.fd)
            self._levels.clear()
        return self.obstacle_count == before

    # -- one step ------------------------------------------------------------------------------------------------

    def _go_into(self, holder: int, name: str) -> None:
        self._check_deadline()
        fd = self._open_allowed(holder, name)
        if fd is not None:
            self._levels.append(_Level(fd, name))
            self._unlink_files(self._levels[-1])

    def _leave(self, parent: int) -> None:
        """Remove the directory, which should be empty. If it is not, another process writes to it: list it again."""
        level = self._levels.pop()
        try:
            holder = self._levels[-1].fd if self._levels else parent
            if not level.stuck:
                try:
                    self._point("trash.rmdir")
                    self._remove(os.rmdir, level.name, holder)
                except OSError as error:
                    if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and level.rescans < RESCANS:
                        self._check_deadline()
                        level.rescans += 1
                        self._levels.append(level)
                        self._unlink_files(level)
                        return
                    if error.errno == errno.ENOTDIR:
                        self._unlink_other(holder, level.name)
                    else:
                        self._record_obstacle(level.name, error)
            if level.stuck and self._levels:
                self._levels[-1].stuck = True
        finally:
            if level not in self._levels:
                os.close(level.fd)

    def _unlink_files(self, level: _Level) -> None:
        """Unlink everything except directories, while listing. Directories are queued."""
        below, fd, count = level.below, level.fd, 0
        try:
            with os.scandir(fd) as entries:
                for entry in entries:
                    name = entry.name
                    if entry.is_dir(follow_symlinks=False):  # from the listing: a mounted file system is not queried
                        below.append(name)
                        continue
                    count += 1
                    if not count & 255:
                        self._check_deadline()
                    self._unlink(level, name)
        except OSError as error:
            self._record_obstacle("", error)

    def _unlink(self, level: _Level, name: str) -> None:
        try:
            self._point("trash.unlink")
            os.unlink(name, dir_fd=level.fd)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            level.below.append(name)  # it became a directory after it was listed
        except PermissionError:
            try:
                self._remove(os.unlink, name, level.fd)
            except OSError as error:
                self._record_obstacle(name, error)
        except OSError as error:
            self._record_obstacle(name, error)

    def _raise(self, level: _Level, name: str) -> None:
        """Rename a directory that is too deep into the top of the tree. After a kill, the next deletion finds it."""
        fd = self._open_allowed(level.fd, name)
        if fd is None:
            return
        top = self._levels[0]
        risen = f"{_MOVED_UP}-{os.getpid()}-{time.monotonic_ns()}"
        try:
            try:
                self._point("trash.rise")
                os.rename(name, risen, src_dir_fd=level.fd, dst_dir_fd=top.fd)
            except PermissionError:
                self._make_writable(fd)  # moving a directory to another parent writes to the directory itself
                self._make_writable(top.fd)
                self._make_writable(level.fd)
                os.rename(name, risen, src_dir_fd=level.fd, dst_dir_fd=top.fd)
            top.below.append(risen)
        except FileNotFoundError:
            return
        except OSError as error:
            self._record_obstacle(name, error)
        finally:
            os.close(fd)

    # -- opening -------------------------------------------------------------------------------------------------

    def _open_allowed(self, holder: int, name: str) -> int | None:
        """Open the directory `name`, if it is on our mount and its owner is allowed. None: it is gone or stays."""
        try:
            fd = self.open(holder, name)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                self._unlink_other(holder, name)
                return None
            opened = self._open_unreadable(holder, name) if error.errno == errno.EACCES else None
            if opened is None:
                self._record_obstacle(name, error)
                return None
            fd = opened
        owner = os.fstat(fd).st_uid
        if self._owners is not None and not self._owners(owner):
            os.close(fd)
            self._record_obstacle(name, f"a directory of {describe_user(owner)}, who is not an allowed owner")
            return None
        return fd

    def _unlink_other(self, holder: int, name: str) -> None:
        """Unlink a file or link: the whole entry, or one that replaced a listed directory. No link is followed."""
        try:
            self._point("trash.unlink_other")
            self._remove(os.unlink, name, holder)
        except OSError as error:
            self._record_obstacle(name, error)

    def open(self, holder: int, name: str, flags: int = _DIRECTORY) -> int:
        """Open one name in an open directory. Raises if it is a link or another mount."""
        if self._openat2 is not None:
            return self._openat2(holder, name, flags)
        fd = os.open(name, flags, dir_fd=holder)
        if mount_of(fd) != mount_of(holder):
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return fd

    def _open_unreadable(self, holder: int, name: str) -> int | None:
        """Open a directory of ours that has no permissions (mode 000): change its mode, by descriptor."""
        if not self._may_chmod:
            return None
        try:
            handle = self.open(holder, name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            self._point("trash.chmod")
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
            return self.open(holder, name)
        except OSError:
            return None
        finally:
            os.close(handle)

    def _make_writable(self, fd: int) -> None:
        if self._may_chmod:
            try:
                self._point("trash.chmod_open")
                os.fchmod(fd, 0o700)
            except OSError:
                return  # not our directory; the operation in it will fail and record the reason

    def _remove(self, remove: Callable[..., None], name: str, holder: int) -> None:
        """Unlink or rmdir. If the parent directory denies it and is ours, change the parent's mode and try again."""
        try:
            remove(name, dir_fd=holder)
        except FileNotFoundError:
            return
        except PermissionError:
            if not self._levels or holder != self._levels[-1].fd or self._levels[-1].opened_up:
                raise  # the parent of the whole entry is not part of the entry, and its mode is never changed
            self._levels[-1].opened_up = True
            self._make_writable(holder)
            remove(name, dir_fd=holder)

    # -- what stays ----------------------------------------------------------------------------------------------

    def _record_obstacle(self, name: str, why: OSError | str) -> None:
        if self._levels:
            self._levels[-1].stuck = True
        self.obstacle_count += 1
        if isinstance(why, OSError):
            self.denied = self.denied or isinstance(why, PermissionError)
            crossing = why.errno in (errno.EXDEV, errno.EBUSY)
            why = "a mount point of something else" if crossing else str(why.strerror)
        if len(self.obstacles) < MOST_LISTED:
            names = [level.name for level in self._levels[1:]]
            if self._levels and name:
                names.append(name)
            self.obstacles.append(f"{'/'.join([self._shown, *names])}: {why}")

    def _check_deadline(self) -> None:
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise DeadlinePassed


def describe_user(uid: int) -> str:
    """Return the name of a user, or the uid if the system has no name for it."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def mount_of(fd: int) -> tuple[int, int]:
    """Return device and mount id of an open directory. Raises without /proc, because then the mount is unknown."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return os.fstat(fd).st_dev, int(line.split()[1])
    raise OSError(errno.ENOTSUP, "the kernel does not report mount ids")


_probed: list[Callable[[int, str, int], int] | None] = []


def probe_openat2() -> Callable[[int, str, int], int] | None:
    """Return an openat2 that follows no link and crosses no mount. None before Linux 5.6, or if a filter blocks it."""
    if not _probed:
        found = _make_openat2()
        _probed.append(found if found is not None and _works(found) else None)
    return _probed[0]


def _works(found: Callable[[int, str, int], int]) -> bool:
    try:
        root = os.open("/", _DIRECTORY)
        try:
            os.close(found(root, ".", _DIRECTORY))
        finally:
            os.close(root)
    except OSError:
        return False
    return True


def _make_openat2() -> Callable[[int, str, int], int] | None:
    import ctypes

    try:
        syscall = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError):
        return None
    syscall.restype = ctypes.c_long
    syscall.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
    how = {}

    def openat2(holder: int, name: str, flags: int) -> int:
        if flags not in how:  # struct open_how: flags, mode, resolve
            how[flags] = (ctypes.c_uint64 * 3)(flags, 0, _NO_XDEV | _NO_MAGICLINKS | _NO_SYMLINKS | _BENEATH)
        for _ in range(100):
            fd: int = syscall(_OPENAT2, holder, os.fsencode(name), how[flags], 24)
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: the tree was renamed meanwhile
                break
        raise OSError(number, os.strerror(number), name)

    return openat2
