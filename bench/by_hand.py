"""What people do without Holdfast for a command in a worktree of its own: one line of shell, no record of anything.

`$n` is a number, `$REPO` the repository, `$OUT` where worktrees go. `{command}` is run in the worktree and changes a
file there, so that both sides have something to commit.
"""

from __future__ import annotations

from pathlib import Path

import apsw
from bench.stage import Stage

BY_HAND = (
    'cd "$REPO" && git worktree add -q -b "hand$n" "$OUT/w$n" HEAD && cd "$OUT/w$n" && {command}'
    ' && git add -A && git commit -qm work && cd "$REPO" && git worktree remove "$OUT/w$n"'
)


def wait_gone(stage: Stage) -> None:
    """Wait until the worktree of each task is removed, as the script removes its own."""
    store = apsw.Connection(str(stage.home / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)
    left = "SELECT EXISTS (SELECT 1 FROM workspaces WHERE state <> 'gone')"
    try:
        stage.wait(lambda: not store.execute(left).get, "all worktrees are gone")
    finally:
        store.close()


def environment(stage: Stage, out: Path) -> dict[str, str]:
    return {**stage.env, "REPO": str(stage.repo), "OUT": str(out)}
