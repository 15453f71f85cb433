"""`holdfast send --rebase`: after a conflict the agent rebases its branch, and a conflict that stands is told."""

from __future__ import annotations

import pytest
from tests.fleet import Fleet, wait_until

# Run 1 works. Run 2 does nothing, and reports success. Run 3 rebases onto the commit that the message names.
AGENT = """
cat > {told}-$HOLDFAST_RUN_NUMBER
case $HOLDFAST_RUN_NUMBER in
1) echo theirs > one.txt; git add .; git commit -qm one;;
3) commit=$(sed -n 's/.*onto main (commit \\([0-9a-f]*\\)).*/\\1/p' {told}-3 | tail -1)
   git rebase -q "$commit" || {{ echo both > one.txt; git add one.txt; GIT_EDITOR=true git rebase --continue; }};;
esac
"""


def commit_by_the_user(fleet: Fleet, **files: str) -> None:
    for name, text in files.items():
        (fleet.repo / f"{name}.txt").write_text(f"{text}\n")
    fleet.git("add", ".")
    fleet.git("commit", "-qm", "by the user")


def ends(fleet: Fleet, task: str, run: int) -> str:
    wait_until(lambda: len(fleet.show(task)["runs"]) == run, f"run {run} began")
    return str(fleet.wait_state(task, "completed", "failed")["reason"])


@pytest.mark.parametrize("strategy", ["worktree", "clone"])
def test_the_agent_solves_a_conflict(fleet: Fleet, strategy: str) -> None:
    """F12: `merge` offers it; the base reaches the kept workspace; `completed` is not said alone while the conflict
    stands; after it the diff has the task's work only, and the merge works."""
    points = ["clone.base", "clone.base_there"] if strategy == "clone" else []
    supervisor = fleet.up(env={"HOLDFAST_FAULT": f"{points[0]}:1:kill" if points else ""})
    script = AGENT.format(told=fleet.root / "told")
    task = fleet.add("make one", "--workspace", strategy, "--keep-workspace", command=("sh", "-c", script))
    fleet.wait_state(task, "completed")
    commit_by_the_user(fleet, one="mine", other="mine too")
    refused = fleet.cli("merge", task, code=1).stderr
    assert f"Or let its agent resolve the conflict: `holdfast send {task} --rebase`." in refused
    start = fleet.git("rev-parse", "main")

    fleet.cli("send", task, "--rebase")
    for point in points:  # killed while the base is brought, and after
        supervisor.wait()
        after = points[points.index(point) + 1 :]
        supervisor = fleet.up(env={"HOLDFAST_FAULT": f"{after[0]}:1:kill" if after else ""})
    assert ends(fleet, task, 2).startswith("its branch still conflicts with main: one.txt; ")
    assert "its branch still conflicts with main: one.txt" in fleet.cli("why", task).stdout
    assert f"onto main (commit {start})" in (fleet.root / "told-2").read_text()

    fleet.cli("send", task, "--rebase")
    assert "conflict" not in ends(fleet, task, 3)
    assert fleet.git("merge-base", "main", f"holdfast/{task}") == start
    assert [line.split()[0] for line in fleet.cli("diff", task, "--stat").stdout.splitlines()[:-1]] == ["one.txt"]
    assert fleet.show(task)["changed_files"] == 1
    assert f"already contains all of main. Nothing was sent. `holdfast merge {task}`" in (
        fleet.cli("send", task, "--rebase", code=4).stderr
    )
    assert "fast-forward" in fleet.cli("merge", task).stdout
    assert (fleet.repo / "one.txt").read_text() == "both\n"


def test_a_base_that_is_gone_ends_the_round_in_words(fleet: Fleet) -> None:
    """The workspace and the branch are as before, and the reason says what is missing."""
    fleet.git("branch", "side")
    supervisor = fleet.up()
    task = fleet.add("x", "--workspace", "clone", "--keep-workspace", "--base", "side",
                     command=("sh", "-c", "echo x > x.txt"))  # fmt: skip
    branch = fleet.wait_state(task, "completed")["branch"]
    fleet.wait_clean()
    fleet.kill_supervisor(supervisor)
    fleet.git("switch", "-q", "side")
    commit_by_the_user(fleet, other="mine")
    fleet.git("switch", "-q", "main")
    fleet.cli("send", task, "--rebase")
    fleet.git("branch", "-D", "side")
    fleet.up()
    wait_until(lambda: fleet.show(task)["state"] == "failed", "the round ended")
    assert "refs/heads/side" in fleet.show(task)["reason"]
    assert fleet.file_on_branch(branch, "x.txt") == "x"
