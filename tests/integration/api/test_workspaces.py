"""What lies beside the workspaces, as the screen of them lists it."""

from __future__ import annotations

from tests.fleet import Fleet

from holdfast.api.queries import Queries
from holdfast.api.work.workspaces import LeftoverFinder


def test_what_is_just_being_put_away_is_not_left_over(fleet: Fleet) -> None:
    """R-CRASH-10, R-CLEAN-08: what is foreign is listed at once, what is ours when it is there at the next look too."""
    fleet.add("write a poem", command=("true",))
    [repo] = Queries(str(fleet.home)).repos()
    folder = fleet.home / "workspaces" / repo["id"]
    (folder / "plain").mkdir(parents=True)
    trashed = fleet.home / "workspaces" / ".trash" / "abc"
    trashed.mkdir(parents=True)
    besides = LeftoverFinder(str(fleet.home))

    def states() -> list[str]:
        return sorted(row["state"] for row in besides.look())

    assert states() == ["foreign"]
    assert not besides.is_quiet
    assert states() == ["foreign", "left over"]
    trashed.rmdir()
    assert states() == ["foreign"]
    assert besides.is_quiet
