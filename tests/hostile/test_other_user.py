"""The unprivileged tier is first class: the walking skeleton as a user without rights, groups or a name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.acceptance.runs import test_walking_skeleton as skeleton
from tests.fleet import Fleet
from tests.other_user import OTHER_USER
from tests.sampling import sampled

WAYS = (
    skeleton.test_success_leaves_a_branch_and_nothing_else,
    skeleton.test_failure_saves_uncommitted_work,
    skeleton.test_cancel_ends_the_whole_tree_within_two_seconds,
    skeleton.test_a_killed_supervisor_adopts_its_agent,
    skeleton.test_a_limit_pauses_and_resumes_by_itself,
)


@pytest.mark.parametrize("way", sampled(WAYS, keep=2), ids=lambda way: way.__name__.removeprefix("test_"))
def test_walking_skeleton_without_rights(other_users_fleet: Fleet, way: Callable[[Fleet], None]) -> None:
    """R-TERM-06, R-TERM-10, R-CLEAN-01, R-CLEAN-02, R-RES-01: the same promises for a user who is not root."""
    way(other_users_fleet)
    assert (other_users_fleet.home / "holdfast.db").stat().st_uid == OTHER_USER
    assert (other_users_fleet.home / "supervisor.lock").stat().st_uid == OTHER_USER
