"""Deleting trees that an agent may have shaped: by descriptor, following no symlink, crossing no mount.

`shutil.rmtree` is safe against symlinks but not against bind mounts (`st_dev` is equal on both sides of one, and a
user's file behind it was deleted). Here every directory is opened relative to its parent with O_NOFOLLOW and its
mount id is compared with the root's before anything inside is touched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import stat
import time

from holdfast import faults
from holdfast.errors import NoPermission, WorkspaceProblem

DEEPEST = 200
_DENIED = ("no permission for", os.strerror(errno.EACCES), os.strerror(errno.EPERM))
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def move_away(source: str, target: str) -> bool:
    """Rename `source` to `target`: instant whatever its size, and its content is not touched. False: not there."""
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    try:
        faults.effect("trash.rename")
        os.rename(source, target)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WorkspaceProblem(
            f"{source} could not be renamed into the trash ({error.strerror}); it was left as it is."
        ) from error
    faults.passed("trash.renamed")
    return True


def delete_tree(path: str) -> None:
    """Remove `path` and all below it. Missing is fine. Interrupted, it can be repeated.

    Raises WorkspaceProblem, naming the first obstacle, when something had to stay (another mount, no permission).
    """
    faults.effect("trash.delete")
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        obstacles: list[str] = []
        _delete_entry(parent, os.path.basename(path), _mount_id(parent), path, obstacles)
    finally:
        os.close(parent)
    faults.passed("trash.deleted")
    if any(words in obstacle for obstacle in obstacles for words in _DENIED):
        raise NoPermission(
            f"{path} could not be deleted whole: {obstacles[0]} ({len(obstacles)} obstacle(s)). Its work is saved; "
            f"remove it with: sudo rm -rf --one-file-system -- {shlex.quote(path)}"
        )
    if obstacles:
        raise WorkspaceProblem(f"{path} could not be deleted whole: {obstacles[0]} ({len(obstacles)} obstacle(s))")


def _delete_entry(parent: int, name: str, mount: int, shown: str, obstacles: list[str]) -> None:
    """One directory with its content, iteratively. What lies too deep is first renamed up, beside the tree itself:
    an agent may nest thousands of directories, and every level on the way down costs a descriptor."""
    stack: list[tuple[int, str, str, bool]] = [(parent, name, shown, False)]  # (parent, name, shown, emptied)
    opened: list[int] = []
    try:
        while stack:
            holder, entry, where, emptied = stack.pop()
            if emptied:
                os.close(opened.pop())
                _remove_directory(holder, entry, where, obstacles)
                continue
            if len(opened) >= DEEPEST:
                _move_up(holder, entry, parent, name, where, obstacles, stack)
                continue
            fd = _open_directory(holder, entry, mount, where, obstacles)
            if fd is None:
                continue
            opened.append(fd)
            stack.append((holder, entry, where, True))
            stack.extend(_unlink_files(fd, where, obstacles))
    finally:
        for fd in opened:
            os.close(fd)


def _move_up(
    holder: int,
    entry: str,
    parent: int,
    name: str,
    where: str,
    obstacles: list[str],
    stack: list[tuple[int, str, str, bool]],
) -> None:
    risen = f"{name}.deep-{len(stack)}-{time.monotonic_ns()}"
    try:
        faults.effect("trash.rise")
        os.rename(entry, risen, src_dir_fd=holder, dst_dir_fd=parent)
    except OSError as error:
        obstacles.append(f"{where}: {error.strerror}")
        return
    stack.insert(0, (parent, risen, where, False))  # at the bottom: its turn comes when the tree above it is gone


def _open_directory(holder: int, entry: str, mount: int, where: str, obstacles: list[str]) -> int | None:
    try:
        fd = os.open(entry, _DIRECTORY, dir_fd=holder)
    except FileNotFoundError:
        return None
    except PermissionError:
        fd_or_none = _open_after_chmod(holder, entry)
        if fd_or_none is None:
            obstacles.append(f"no permission for {where}")
            return None
        fd = fd_or_none
    except OSError as error:
        obstacles.append(f"{where}: {error.strerror}")
        return None
    if _mount_id(fd) != mount:
        os.close(fd)
        obstacles.append(f"{where} is a mount point of something else")
        return None
    return fd


def _open_after_chmod(holder: int, entry: str) -> int | None:
    """A directory of ours without permissions (mode 000, 555): give ourselves access, by descriptor."""
    try:
        handle = os.open(entry, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=holder)
    except OSError:
        return None
    try:
        faults.effect("trash.chmod")
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(entry, _DIRECTORY, dir_fd=holder)
    except OSError:
        return None
    finally:
        os.close(handle)


def _unlink_files(fd: int, where: str, obstacles: list[str]) -> list[tuple[int, str, str, bool]]:
    """Unlink everything but directories; return those, to be gone into."""
    below: list[tuple[int, str, str, bool]] = []
    writable = False
    with os.scandir(fd) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in found:
        if is_directory:
            below.append((fd, name, f"{where}/{name}", False))
            continue
        try:
            faults.effect("trash.unlink")
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            continue
        except PermissionError as error:
            if not writable:
                writable = True
                with contextlib.suppress(OSError):
                    os.fchmod(fd, 0o700)
            try:
                os.unlink(name, dir_fd=fd)
            except OSError:
                obstacles.append(f"{where}/{name}: {error.strerror}")
        except OSError as error:
            obstacles.append(f"{where}/{name}: {error.strerror}")
    if below and not os.access(f"/proc/self/fd/{fd}", os.W_OK):
        with contextlib.suppress(OSError):
            os.fchmod(fd, 0o700)
    return below


def _remove_directory(holder: int, entry: str, where: str, obstacles: list[str]) -> None:
    try:
        faults.effect("trash.rmdir")
        os.rmdir(entry, dir_fd=holder)
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno != errno.ENOTEMPTY or not obstacles:
            obstacles.append(f"{where}: {error.strerror}")


def _mount_id(fd: int) -> int:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("mnt_id:"):
                return int(line.split()[1])
    raise WorkspaceProblem("The kernel does not tell mount ids (/proc/self/fdinfo); nothing was deleted.")
