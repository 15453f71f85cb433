"""Errors by who must act. The text says what happened, why, what was kept, and the next command."""

from __future__ import annotations

from holdfast.base import low_memory


class HoldfastError(Exception):
    """Base of everything that reaches a person as one clear line. `exit_code` is the CLI contract's."""

    exit_code = 1


class UsageError(HoldfastError):
    """The command line or a setting is wrong: the user corrects it."""

    exit_code = 2


class NotFound(HoldfastError):
    """Nothing has that id or name."""

    exit_code = 3


class Conflict(HoldfastError):
    """It exists, but its state does not allow this. Nothing was changed."""

    exit_code = 4


class Refused(HoldfastError):
    """We could, but it would not be safe; nothing was changed."""

    exit_code = 1


class Unavailable(HoldfastError):
    """The store or the supervisor cannot be reached."""

    exit_code = 69


class NewerStore(Unavailable):
    """A newer Holdfast has written the store: this one only leaves it alone."""


class DiskFull(Unavailable):
    """No room to write: nothing was written, and it is worth trying again when there is."""


class NotOwner(Conflict):
    """A write under a fence that is no longer ours. On the supervisor: kill my agent, I no longer own this."""


class LeaseLost(Unavailable):
    """This incarnation's host lease is gone; it must stop acting."""


class LaunchError(HoldfastError):
    """An agent or its workspace could not be started; the text has the remedy."""


class WorkspaceProblem(HoldfastError):
    """A workspace could not be made, saved or removed; it stays in the ledger."""

    passing = False  # whether the same might work in a moment


class NoPermission(WorkspaceProblem):
    """Something of ours belongs to somebody else (a container's root, say); the text has the command that fixes it."""


_PASSING_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "Too many open files",
    "Cannot allocate memory",
    "Input/output error",
    "Resource temporarily unavailable",
    "couldn't set '",  # git: a ref that was written could not be given its name
)


def is_passing(error: Exception) -> bool:
    """Whether it is the machine's passing trouble (disk full, out of descriptors): worth trying again as it is."""
    if isinstance(error, WorkspaceProblem) and error.passing:
        return True
    return low_memory.is_starved(error) or any(word in str(error) for word in _PASSING_WORDS)
