"""The independent checker for interfaces: its own errors as one clear line, its limits from the settings."""

from __future__ import annotations

import os
import subprocess

import apsw

from holdfast import config
from holdfast.base.errors import Unavailable, UsageError
from holdfast.base.platform import refuse_unsupported
from holdfast.checker import Violation, violations
from holdfast.checker.rules import Limits
from holdfast.checker.witness import read_witness


def broken_promises(home: str, *, at_rest: bool, witness: str | None) -> list[Violation]:
    if not os.path.exists(os.path.join(home, "holdfast.db")):
        raise Unavailable(f"There is no Holdfast store in {home} yet, so there is nothing to check.")
    refuse_unsupported("The checker of the promises")
    settings = config.load()
    limits = Limits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        retry=settings["retry.max"],
        lost=settings["lost.max"],
    )
    if witness is not None:
        _refuse_unreadable(witness)
    try:
        return violations(home, at_rest=at_rest, witness=witness, limits=limits)
    except apsw.Error as error:
        raise Unavailable(f"The store in {home} cannot be read: {error}. Nothing was changed.") from error
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"git could not be asked ({error}), so nothing can be said.") from error


def _refuse_unreadable(witness: str) -> None:
    try:
        read_witness(witness)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UsageError(f"The witness {witness} cannot be read: {error}") from error
