"""Git itself is killed at its system calls: alone, with its group, or with its supervisor. The next start heals.

`HOLDFAST_GIT_KILLS=50` (or `make storm`) is the whole campaign: 50 instants in making a workspace, 50 in removing it,
20 in saving its work.
"""

from __future__ import annotations

import os
import re

from tests.faults.test_matrix import SEED, matrix

KILLS = int(os.environ.get("HOLDFAST_GIT_KILLS", "0"))


def test_git_that_is_killed_in_the_middle_heals() -> None:
    """R-TREE-07, R-TREE-15: half-made entries, stale locks and git's own surviving children stand in nobody's way; no
    command of git has to be typed."""
    wanted = {"add": KILLS // 2 or 2, "removal": KILLS or 1, "salvage": KILLS // 5 or 1}
    kills = ",".join(f"{phase}={count}" for phase, count in wanted.items())
    scenarios = ["--scenario", "cancel", *(["--scenario", "failure"] if KILLS else [])]  # the first packs its branch
    done = matrix("--git-kills", kills, *scenarios, "--seed", SEED, "--jobs", 4, timeout=500 + 10 * KILLS)
    assert done.returncode == 0, done.stdout[-6000:]
    found = re.search(r"(\d+) faults of git", done.stdout)
    assert found is not None
    assert int(found.group(1)) >= sum(wanted.values())
    assert " violations 0 " in done.stdout
