"""Which cases the default run plays. `make test-all` (HOLDFAST_TEST_ALL=1) plays every one; those that are left out are
skipped by name, with this reason. Only for cases that others of the default run cover in another way."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

ALL = bool(os.environ.get("HOLDFAST_TEST_ALL"))
LEFT_OUT = "not by default, for want of time: `make test-all` plays it"


def sampled(cases: Iterable[Any], keep: int) -> list[Any]:
    """The first `keep` of them; the others wait for `make test-all`."""
    return [case if ALL or number < keep else _skipped(case) for number, case in enumerate(cases)]


def _skipped(case: Any) -> Any:
    skip = pytest.mark.skip(reason=LEFT_OUT)
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, skip])
    return pytest.param(case, marks=skip)


def amount(default: int, in_all: int) -> int:
    return in_all if ALL else default


def leave_out(condition: bool) -> None:
    if condition and not ALL:
        pytest.skip(LEFT_OUT)
