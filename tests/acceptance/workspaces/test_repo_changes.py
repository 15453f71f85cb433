"""What an agent does to the user's repository outside its own tree, driven from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.fleet import Fleet, wait_until

from holdfast.api.queries import Queries


def test_changes_and_locks_outside_the_worktree_are_told(fleet: Fleet) -> None:
    """R-TREE-16, R-TREE-15: hooks, keys that run commands and refs that an agent changed are named in one event and
    one alert, even for an adopted run; a lock that its killed git left in the shared directory is an alert until it is
    gone; one in our own entry is removed. An agent that stays inside is not told of."""
    git, go = fleet.repo / ".git", fleet.root / "go"
    stay = fleet.add(
        "stay inside", command=("sh", "-c", "echo a > a; git add a; git commit -qm a; git pack-refs --all")
    )
    first = fleet.up("--agents", 1)
    fleet.wait_state(stay, "completed")
    assert "repo.changed-outside" not in fleet.kinds(stay)
    script = f"""until [ -e {go} ]; do sleep 0.1; done
git commit --quiet --allow-empty -m mine
git config core.editor evil; git config user.name Eve; echo x > {git}/hooks/pre-push
git tag -a -m x sneaky; git branch -f same main; git branch -f other HEAD
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
    alarming = ["config core.editor", "hooks/pre-push", "refs/heads/odd�", "refs/heads/other", "refs/tags/sneaky"]
    assert told["data"]["alarming"] == alarming
    assert told["data"]["names"] == sorted([*alarming, "refs/heads/same"])
    open_ones = {alert["key"]: alert for alert in fleet.json("alerts")}
    [outside] = [alert for key, alert in open_ones.items() if key.startswith("outside:")]
    assert outside["details"]["names"] == alarming
    assert "core.editor, hooks/pre-push." in outside["message"]
    assert outside["level"] == "critical"
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


def test_a_user_who_works_all_day_beside_ten_agents_gets_no_alert(fleet: Fleet) -> None:
    """F2: commits, branches, remotes, fetches, pushes, rebases, tags, stashes and merges of agents' branches (by
    `holdfast merge` and by plain git, even of an agent that still works) are the user's own: no run that saw them
    alerts."""
    git, go = fleet.git, fleet.root / "go"
    work = 'echo $HOLDFAST_TASK_ID > "$HOLDFAST_TASK_ID"; git add -A; git commit -qm work'
    pulled = f"{work}; touch {fleet.root}/committed; until [ -e {go} ]; do sleep 0.2; done; git rebase -q origin/main"
    fleet.up("--agents", 10)
    tasks = [fleet.queue(f"until [ -e {go} ]; do sleep 0.2; done; {work}") for _ in range(7)]
    living = fleet.queue(pulled)
    for task in [*tasks, living]:
        fleet.wait_started(task)
    merged, by_hand = fleet.queue(work), fleet.queue(work)
    for task in (merged, by_hand):
        fleet.wait_state(task, "completed")

    git("checkout", "-q", "-b", "feature")
    git("commit", "-q", "--allow-empty", "-m", "on a branch")
    git("checkout", "-q", "main")
    fleet.cli("merge", merged)
    git("commit", "-q", "--allow-empty", "-m", "on main")
    git("merge", "-q", "--no-edit", f"holdfast/{by_hand}")
    git("rebase", "-q", "main", "feature")
    git("clone", "-q", "--bare", str(fleet.repo), str(fleet.root / "origin.git"))
    git("remote", "add", "origin", str(fleet.root / "origin.git"))
    git("push", "-q", "-u", "origin", "feature", "main")
    git("worktree", "add", "-q", str(fleet.root / "second"), "-b", "second")
    wait_until((fleet.root / "committed").exists, "an agent that still works has committed")
    git("merge", "-q", "--no-edit", f"holdfast/{living}", cwd=fleet.root / "second")
    git("checkout", "-q", "-b", "forward", f"holdfast/{living}")
    git("push", "-q", "origin", "forward")
    git("tag", "-a", "-m", "one", "v1")
    git("checkout", "-q", "main")
    (fleet.repo / "README.md").write_text("changed\n")
    git("stash", "-q")
    git("config", "branch.main.rebase", "true")
    git("branch", "-q", "-D", "feature")
    git("gc", "-q")
    go.touch()
    for task in [*tasks, living]:
        fleet.wait_state(task, "completed")
    assert [alert["message"] for alert in fleet.json("alerts", "--all")] == []
    seen = [event for event in fleet.events(tasks[0]) if event["kind"] == "repo.changed-outside"]
    assert "refs/heads/forward" in seen[0]["data"]["names"], "the record has it all the same"


def test_an_agent_that_moves_main_is_told_within_a_second(fleet: Fleet) -> None:
    """F2: a branch that the user has checked out, moved to a commit that no reflog of the agent names, or back. So is
    an agent that writes a hook, or a configuration key that runs a command."""
    fleet.up("--agents", 1)
    git = fleet.repo / ".git"
    changes = {
        "git update-ref refs/heads/main $(git commit-tree -m x HEAD^{tree})": "refs/heads/main",
        "git update-ref refs/heads/main HEAD^": "refs/heads/main",
        f"echo evil > {git}/hooks/post-checkout": "hooks/post-checkout",
        "git config core.fsmonitor evil": "config core.fsmonitor",
    }
    for change, name in changes.items():
        fleet.git("commit", "-q", "--allow-empty", "-m", "mine")
        task = fleet.queue(change)
        (run,) = fleet.wait_state(task, "completed")["runs"]
        (alert,) = [alert for alert in fleet.json("alerts") if alert["task"] == task]
        assert alert["details"]["names"] == [name]
        assert 0 <= alert["at"] - run["ended_at"] < 1
        fleet.cli("alerts", "ack", "--all")
        if name == "refs/heads/main":
            fleet.git("reset", "-q", "--hard")


def test_nothing_is_pushed_while_an_alert_about_changed_commands_is_open(fleet: Fleet) -> None:
    """F4: `pr` refuses for every task of that repository, until a person has acknowledged the alert. A warning, and an
    alert about another repository, refuse nothing."""
    origin, other = fleet.root / "origin.git", fleet.make_repo(fleet.root / "other")
    fleet.git("init", "--quiet", "--bare", str(origin))
    for repo in (fleet.repo, other):
        fleet.git("remote", "add", "origin", str(origin), cwd=repo)
    commit = "echo work > work; git add work; git commit -qm work"
    fleet.up("--agents", 1)
    honest, elsewhere = fleet.queue(commit), fleet.queue(commit, directory=other)
    for task in (honest, elsewhere, fleet.queue(f"{commit}; git update-ref refs/tags/sneaky HEAD")):
        fleet.wait_state(task, "completed")
    assert [alert["level"] for alert in fleet.json("alerts")] == ["warning"]
    fleet.cli("pr", honest, "--push-only")
    fleet.git("push", "--quiet", "origin", f":holdfast/{honest}")
    hook = fleet.repo / ".git" / "hooks" / "pre-push"
    changed = fleet.queue(f"echo touch {fleet.root}/sprung > {hook}; chmod +x {hook}; {commit}")
    fleet.wait_state(changed, "completed")
    fleet.cli("pr", elsewhere, "--push-only")
    [alert] = [alert for alert in fleet.json("alerts") if alert["level"] == "critical"]
    assert alert["key"].startswith("outside:")
    before = fleet.git("for-each-ref", cwd=origin)
    for task in (changed, honest):
        refused = fleet.cli("pr", task, "--push-only", code=1).stderr
        assert f"Nothing was pushed: an alert about {fleet.repo} is open. " in refused
        assert "hooks/pre-push" in refused
        assert "holdfast alerts ack" in refused
    assert fleet.git("for-each-ref", cwd=origin) == before
    hook.unlink()  # as a person who looked at it does
    fleet.cli("alerts", "ack", alert["id"])
    for task in (changed, honest):
        fleet.cli("pr", task, "--push-only")
        assert fleet.git("rev-parse", f"holdfast/{task}", cwd=origin) == fleet.git("rev-parse", f"holdfast/{task}")
    assert not (fleet.root / "sprung").exists()
