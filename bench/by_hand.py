"""What people do without Holdfast for a command in a worktree of its own: one line of shell, no record of anything.

`$n` is a number, `$REPO` the repository, `$OUT` where worktrees go. `{command}` is run in the worktree and changes a
file there, so that both sides have something to commit.
"""

from __future__ import annotations

from pathlib import Path

import apsw
from bench.stage import Stage

# git refuses now and then while another worktree is just being made ("failed to read …/commondir"): it is asked again.
BY_HAND = (
    'again() {{ t=0; until "$@" 2>> "$OUT/again"; do t=$((t+1)); [ $t -lt 50 ] || return 1; done; }};'
    ' cd "$REPO" && again git worktree add -q -B "hand$n" "$OUT/w$n" HEAD && cd "$OUT/w$n" && {command}'
    ' && git add -A && git commit -qm work && cd "$REPO" && again git worktree remove "$OUT/w$n"'
)


def refusals(out: Path) -> int:
    """Return how often git refused and was asked again."""
    log = out / "again"
    return log.read_text().count("fatal:") if log.exists() else 0


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
