"""Errors, classified by who must act. The text of an error states what happened, why, what was kept, and the next
command."""

from __future__ import annotations

from holdfast.base import low_memory


class HoldfastError(Exception):
    """The base of every error that reaches a person as one clear line. `exit_code` is part of the CLI contract."""

    exit_code = 1


class UsageError(HoldfastError):
    """A mistake in the command line or in a setting, which the user corrects."""

    exit_code = 2


class NotFound(HoldfastError):
    """An id or a name that does not exist."""

    exit_code = 3


class Conflict(HoldfastError):
    """An object whose state does not allow the request. Nothing was changed."""

    exit_code = 4


class StillCleaning(Conflict):
    """A task whose workspace is still being removed. The request is possible in a moment."""


class Refused(HoldfastError):
    """A request that is possible but not safe. Nothing was changed."""

    exit_code = 1


class Unavailable(HoldfastError):
    """A store or a supervisor that cannot be reached."""

    exit_code = 69


class WaitTimeout(HoldfastError):
    """A wait that reached its timeout. The tasks continue; wait again, or look with `holdfast why ID`."""

    exit_code = 75


class NewerStore(Unavailable):
    """A store written by a newer Holdfast. This version does not touch it."""


class DiskFull(Unavailable):
    """A full disk. Nothing was written, and a retry is worthwhile when there is room."""


class NotOwner(Conflict):
    """A write under a fence that is no longer ours. The supervisor has lost the ownership of the task and kills its
    agent."""


class LeaseLost(Unavailable):
    """The loss of this incarnation's host lease. The supervisor must stop acting."""


class LaunchError(HoldfastError):
    """An agent or a workspace that could not be started. The text has the remedy."""


class WorkspaceProblem(HoldfastError):
    """A workspace that could not be made, saved or removed. It stays in the ledger."""

    passing = False  # True: the same might work in a moment


class NoPermission(WorkspaceProblem):
    """A file of ours that belongs to another user (for example to a container's root). The text has the command that
    fixes it."""


_PASSING_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "Read-only file system",
    "Too many open files",
    "Cannot allocate memory",
    "Input/output error",
    "Resource temporarily unavailable",
    "write error. Out of diskspace",  # git, of a pack
    "error: unable to write file '",  # git, of a file of a checkout: it does not tell why
    "couldn't write '",  # git, of a lock file on a full disk
    "couldn't set '",  # git: a ref was written but could not be renamed into place
)


def is_transient(error: Exception) -> bool:
    """True if the error is a temporary problem of the machine (disk full, out of descriptors), so that a retry is
    worthwhile."""
    if isinstance(error, WorkspaceProblem) and error.passing:
        return True
    return low_memory.is_out_of_memory(error) or any(word in str(error) for word in _PASSING_WORDS)
