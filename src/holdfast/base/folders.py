"""Looking into directories that may not be there, and into files that may be something else."""

from __future__ import annotations

import errno
import os
import stat


def listed(folder: str) -> list[str]:
    """The names in a directory, in order; none where there is no such directory. Any other error is the caller's."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def privately(path: str, flags: int) -> int:
    """The `opener` of `open` for files of the home: made for its owner alone, whatever the umask."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


class NotPlain(OSError):
    """A pipe, a socket or a device where a file should be."""


def plainly(path: str, flags: int) -> int:
    """The `opener` of `open` for files that an agent can reach: a pipe in their place is refused, not waited for."""
    try:
        fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a socket
            raise
        raise NotPlain(errno.ENXIO, "It is no plain file", path) from error
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # of a directory `open` says that it is one
        return fd
    os.close(fd)
    raise NotPlain(errno.EINVAL, "It is no plain file", path)
