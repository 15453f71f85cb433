"""What an agent does to the user's repository outside its own tree, driven from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.fleet import Fleet, wait_until

from holdfast.api.queries import Queries


def test_changes_and_locks_outside_the_worktree_are_told(fleet: Fleet) -> None:
    """R-TREE-16, R-TREE-15: configuration, hooks and refs that changed while an agent ran are named in one event and
    one alert, also for an adopted run; a lock that its killed git left in the shared directory is an alert until it is
    gone; one in our own entry is removed. An agent that stays inside is not told of."""
    git, go = fleet.repo / ".git", fleet.root / "go"
    stay = fleet.add(
        "stay inside", command=("sh", "-c", "echo a > a; git add a; git commit -qm a; git pack-refs --all")
    )
    first = fleet.up("--agents", 1)
    fleet.wait_state(stay, "completed")
    assert "repo.changed-outside" not in fleet.kinds(stay)
    script = f"""until [ -e {go} ]; do sleep 0.1; done
git config core.editor evil; echo x > {git}/hooks/pre-push; git tag sneaky; git branch -f other HEAD
git update-ref "refs/heads/$(printf 'odd\\377')" HEAD
touch {git}/index.lock {git}/refs/heads/main.lock "$(git rev-parse --git-dir)/index.lock"
echo work > work"""
    task = fleet.add("go outside", command=("sh", "-c", script))
    fleet.wait_started(task)
    fleet.kill_supervisor(first)
    fleet.up("--agents", 1)
    go.touch()
    fleet.wait_state(task, "completed")
    assert fleet.file_on_branch(f"holdfast/{task}", "work") == "work"  # the lock in our own entry did not matter
    [told] = [event for event in fleet.events(task) if event["kind"] == "repo.changed-outside"]
    assert told["data"]["names"] == [
        "config",
        "hooks/pre-push",
        "refs/heads/odd�",
        "refs/heads/other",
        "refs/tags/sneaky",
    ]
    assert "by its agent, or by you" in told["message"]
    open_ones = {alert["key"]: alert for alert in fleet.json("alerts")}
    [outside] = [alert for key, alert in open_ones.items() if key.startswith("outside:")]
    assert "config, hooks/pre-push, refs/heads/odd�, refs/heads/other, refs/tags/sneaky of" in outside["message"]
    locks = {key.removeprefix("git-lock:") for key in open_ones if key.startswith("git-lock:")}
    assert locks == {str(git / "index.lock"), str(git / "refs/heads/main.lock")}
    for lock in locks:
        assert lock in open_ones[f"git-lock:{lock}"]["message"]
        Path(lock).unlink()
    queries = Queries(str(fleet.home))
    os.kill(int(fleet.supervisor_pid() or 0), signal.SIGHUP)  # makes it look; it does so by itself, too
    wait_until(
        lambda: not [alert for alert in queries.alerts() if alert["key"].startswith("git-lock:")],
        "the alerts of locks that are gone are closed",
    )
