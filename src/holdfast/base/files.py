"""Functions that read files and directories which may be missing, may have holes, or may be something else than a file.

The keeper punches the middle out of an agent's endless output, so logs have holes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

BLOCK = 1 << 16
# Tools answer with whole images. A longer line is given in pieces, so that an agent cannot fill our memory.
LONGEST_LINE = 8 << 20


def data_blocks(fd: int, position: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, bytes) of all data from `position` on. Holes are skipped, not read as zeros."""
    while True:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # no more data
            end = os.fstat(fd).st_size  # a file system without holes
            if position >= end:
                return
        while position < end:
            block = os.pread(fd, min(BLOCK, end - position), position)
            if not block:
                return
            yield position, block
            position += len(block)


def extents(fd: int) -> list[tuple[int, int]]:
    """Return (first, end) of every part that has data."""
    found: list[tuple[int, int]] = []
    position = 0
    while True:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
            end = os.lseek(fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return found
            return [(0, os.fstat(fd).st_size)]  # a file system without holes
        found.append((position, end))
        position = end


def open_log_file(path: str) -> int:
    """Open a plain file for reading. The agent may have put a FIFO or a symbolic link there: a symbolic link is not
    followed, and a FIFO is not waited for."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise FileNotFoundError(errno.ENOENT, "something other than a plain file is there", path)


def data_lines(path: str) -> Iterator[str]:
    """Yield the lines of a file without their newlines. If a hole cuts a line, only the part after the hole is
    yielded."""
    fd = open_log_file(path)
    try:
        rest: list[bytes] = []  # of an unfinished line: joined once, because a long line would be copied for ever
        length = follows = 0
        for offset, block in data_blocks(fd):
            *lines, last = block.split(b"\n")
            if rest and (offset != follows or length > LONGEST_LINE):
                yield b"".join(rest).decode(errors="replace")
                rest, length = [], 0
            follows = offset + len(block)
            for line in lines:
                yield b"".join((*rest, line)).decode(errors="replace")
                rest, length = [], 0
            if last:
                rest.append(last)
                length += len(last)
        if rest:
            yield b"".join(rest).decode(errors="replace")
    finally:
        os.close(fd)


def last_lines(path: str, most: int) -> Iterator[str]:
    """Yield whole lines from the end of a file, up to this many bytes in total. A missing file has no lines."""
    try:
        fd = open_log_file(path)
    except OSError:
        return
    try:
        size = os.fstat(fd).st_size
        start = max(0, size - most)
        block = b""
        while len(block) < size - start and (piece := os.pread(fd, size - start - len(block), start + len(block))):
            block += piece
    except OSError:
        return
    finally:
        os.close(fd)
    lines = block.split(b"\n")
    for line in lines[1:] if start else lines:
        yield line.replace(b"\0", b"").decode(errors="replace").rstrip("\r")


def listed(folder: str) -> list[str]:
    """Return the names in a directory, in order. A missing directory has no names. Every other error is raised."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def open_private(path: str, flags: int) -> int:
    """Open a file of the home for its owner alone, whatever the umask. A symbolic link is not followed. This is an
    `opener` for `open`."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


class NotRegularFile(OSError):
    """A pipe, a socket or a device in the place of a file."""


def open_regular_file(path: str, flags: int) -> int:
    """Open a file that an agent can reach. A pipe in its place is refused, not waited for. This is an `opener` for
    `open`."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # anything but a socket
            raise
        raise NotRegularFile(errno.ENXIO, "It is not a plain file", path) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # `open` itself refuses a directory with a clear message
        return fd
    os.close(fd)
    raise NotRegularFile(errno.EINVAL, "It is not a plain file", path)


def open_folder_beneath(root: str, path: str, *, make: bool = False) -> int:
    """Open a directory below `root`. A link on the way is refused, not followed: a living agent can make one at any
    instant. `make`: make the directories that are missing."""
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in filter(None, path.split("/")):
        try:
            if name in (".", ".."):
                raise NotADirectoryError(errno.ENOTDIR, "It is not a plain path", path)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=fd)
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


@contextlib.contextmanager
def folder_beneath(root: str, path: str, *, make: bool = False) -> Iterator[int]:
    """Open a directory below `root` as `open_folder_beneath` does, and close it at the end."""
    place = open_folder_beneath(root, path, make=make)
    try:
        yield place
    finally:
        os.close(place)


def stat_beneath(root: str, path: str) -> os.stat_result:
    """Return the `stat` data of a file below `root`. For a link, that is the data of the link itself. A link on the way
    is refused, not followed."""
    folder, _, name = path.rpartition("/")
    with folder_beneath(root, folder) as place:
        return os.stat(name, dir_fd=place, follow_symlinks=False)


def unlink_beneath(root: str, path: str) -> None:
    """Remove a file below `root`. A link on the way is refused, not followed."""
    folder, _, name = path.rpartition("/")
    with folder_beneath(root, folder) as place:
        os.unlink(name, dir_fd=place)


def open_beneath(root: str, path: str) -> int:
    """Open a regular file below `root` for reading. No link is followed, and nothing is waited for."""
    folder, _, name = path.rpartition("/")
    with folder_beneath(root, folder) as place:
        return open_plain(name, place)


def open_plain(name: str, folder: int) -> int:
    """Open a regular file of an open directory for reading. Everything else is refused."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):  # a link, a socket
            raise
        raise NotRegularFile(error.errno, "It is not a plain file", name) from error
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise NotRegularFile(errno.EINVAL, "It is not a plain file", name)


def create_plain(name: str, folder: int) -> int:
    """Make a new file of an open directory for writing. Raise FileExistsError for anything that is there already."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, 0o600, dir_fd=folder)


class FileTooLarge(OSError):
    """A file that is longer than the caller wants to read."""


def copy_data(source: int, target: int, most: int) -> None:
    """Copy the content of an open file, as long as the file is now. Holes stay holes. Raise FileTooLarge beyond `most`
    bytes."""
    length = os.fstat(source).st_size
    if length > most:
        raise FileTooLarge(errno.EFBIG, f"It has {length} bytes, more than {most}")
    for offset, block in data_blocks(source):
        rest = memoryview(block)[: max(0, length - offset)]
        if not rest:
            break  # the file grows meanwhile
        while rest:
            written = os.pwrite(target, rest, offset)
            rest, offset = rest[written:], offset + written
    os.ftruncate(target, min(length, os.fstat(source).st_size))
