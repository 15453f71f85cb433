"""The errors that a caller of `holdfast.Client` can see. Each text ends with the next command to type."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from holdfast.base.errors import Conflict, HoldfastError, NotFound, Refused, Unavailable, UsageError
from holdfast.base.errors import WaitTimeout as WaitTimeout
from holdfast.base.text import as_sentence, one_line

P = ParamSpec("P")
T = TypeVar("T")


class PartlyDone(HoldfastError):
    """A call for several tasks was refused for some of them.

    The other tasks were changed. `done`: the results for those tasks. `refused`: id → error.
    """

    def __init__(self, done: Sequence[Any], refused: Mapping[str, HoldfastError]) -> None:
        self.done = list(done)
        self.refused = dict(refused)
        first = next(iter(self.refused.values()))
        count = len(self.done) + len(self.refused)
        verb, others = "was" if len(self.refused) == 1 else "were", "the others are done. The first: " if done else ""
        super().__init__(f"{len(self.refused)} of {count} tasks {verb} refused{', ' if done else ': '}{others}{first}")


# The public classes, each with the command that follows when the text names none.
NEXT_STEPS: dict[type[HoldfastError], str] = {
    UsageError: "`holdfast help run` explains every option.",
    NotFound: "`holdfast ps --all` lists every task.",
    Conflict: "`holdfast why ID` explains the state of a task.",
    Refused: "`holdfast why ID` explains the state of a task.",
    Unavailable: "`holdfast doctor` checks this machine and this home.",
    WaitTimeout: "`holdfast why ID` explains the state of a task.",
    HoldfastError: "`holdfast doctor` checks this machine and this home.",
}


@contextmanager
def public_errors() -> Iterator[None]:
    """Raise the errors of the block as public errors, without internal stack frames."""
    try:
        yield
    except PartlyDone:
        raise
    except HoldfastError as error:
        raise make_public(error) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise make_public(
            Unavailable(f"{where}{error.strerror or error}. Everything that was acknowledged is kept.")
        ) from None


def public(method: Callable[P, T]) -> Callable[P, T]:
    """Return the method, wrapped so that its errors are raised as public errors."""

    @functools.wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        with public_errors():
            return method(*arguments, **named)

    return call


def make_public(error: HoldfastError) -> HoldfastError:
    """Return the error as one of the public classes, cleaned, with the next command."""
    from holdfast.secrets.redact import redact_text  # the text may quote an address that contains a login

    kind = next(found for found in type(error).__mro__ if found in NEXT_STEPS)
    text = as_sentence(redact_text(one_line(error)))
    return kind(text if "`" in text else f"{text} {NEXT_STEPS[kind]}")
