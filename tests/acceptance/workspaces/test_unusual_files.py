"""Files that git would read for minutes or wait for: they hold up no slot, and their task's work is kept."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from tests.acceptance.workspaces.test_setup import configure
from tests.fleet import Fleet, wait_until
from tests.sampling import sampled

GIT_PATIENCE = 300  # seconds that a git call may take: what a slot was held for
SOON = 100.0  # seconds: far below GIT_PATIENCE, even on a busy machine


def ends_soon(fleet: Fleet, task: str) -> str:
    """Wait until the task is completed and its workspace preserved. Return the text of the alert about it."""
    began = time.monotonic()
    fleet.wait_state(task, "completed", patience=SOON)
    assert time.monotonic() - began < SOON
    [alert] = [one for one in fleet.json("alerts") if one["task"] == task]
    assert f"holdfast workspaces clean {task}" in alert["remedy"]
    return str(alert["message"])


def test_a_giant_sparse_file_is_not_added(fleet: Fleet) -> None:
    """Finding F13: an agent that succeeds leaves a sparse file of 300 GB. git would read it for minutes. The size is
    checked first, the workspace is preserved, and the alert names the file. A large file that git ignores is no
    obstacle."""
    fleet.up()
    giant = fleet.queue("echo work > work.txt; truncate -s 300G big.bin")
    ignored = fleet.queue("echo work > work.txt; truncate -s 300G big.bin; echo big.bin > .gitignore")
    message = ends_soon(fleet, giant)
    assert "big.bin" in message
    assert "salvage.max_size" in message
    wait_until(lambda: fleet.show(giant)["workspace"]["state"] == "preserved", "the workspace is preserved")
    fleet.wait_state(ignored, "completed", patience=SOON)
    assert fleet.file_on_branch(f"holdfast/{ignored}", "work.txt") == "work"


@pytest.mark.parametrize("strategy", ["worktree", "clone"])
def test_a_tree_deeper_than_any_path_may_be_holds_up_nothing(fleet: Fleet, strategy: str) -> None:
    """Red team R2-4: the last file has no path that the system accepts. Its task was settled never."""
    script = "import os\nfor _ in range(1500): os.mkdir('dd'); os.chdir('dd')\nopen('f', 'w').write('hi')"
    task = fleet.add("deep", "--workspace", strategy, command=(sys.executable, "-c", script))
    fleet.up()
    try:
        ends_soon(fleet, task)
        wait_until(lambda: fleet.show(task)["workspace"]["state"] == "preserved", "the workspace is preserved")
        assert task in fleet.cli("workspaces").stdout
    finally:  # pytest cannot delete it
        subprocess.run(["rm", "-rf", fleet.home / "workspaces"], check=True)


@pytest.mark.parametrize(
    ("strategy", "pipe"),
    sampled(
        [
            pytest.param("clone", ".git/HEAD"),
            pytest.param("worktree", "{common}/packed-refs"),
            pytest.param("clone", ".git/packed-refs"),
            pytest.param("clone", ".git/objects/info/packs"),
        ],
        keep=2,
    ),
)
def test_a_pipe_in_a_git_directory_is_not_opened(fleet: Fleet, strategy: str, pipe: str) -> None:
    """Finding F13: git would wait for the pipe until its deadline of 300 s. It is found before git is run there."""
    fleet.up()
    path = pipe.format(common=fleet.repo / ".git")
    task = fleet.queue(f"echo work > work.txt; rm -f {path}; mkfifo {path}", workspace=strategy)
    try:
        message = ends_soon(fleet, task)
    finally:
        if strategy == "worktree":
            (fleet.repo / ".git" / "packed-refs").unlink()
    assert path.rpartition("/")[2] in message
    assert "not a plain file" in message


def test_why_tells_what_holds_a_task_up_after_its_agent_has_ended(fleet: Fleet) -> None:
    """Finding F13: whatever holds a task up between its agent's end and its settlement, `why` tells so."""
    configure(
        fleet,
        f"""[[workflow.slow.stage]]
name = "build"
command = ["true"]
gate = "until [ -e {fleet.root}/go ]; do sleep 0.05; done"
""",
    )
    fleet.up()
    task = fleet.add("x", "--workflow", "slow")
    wait_until(lambda: [run for run in fleet.show(task)["runs"] if run["state"] == "ended"], "its agent has ended")
    why = fleet.cli("why", task).stdout
    (fleet.root / "go").touch()
    assert f"Its gate `until [ -e {fleet.root}/go ]" in " ".join(why.split())
    assert "has been running for" in " ".join(why.split())
    fleet.wait_state(task, "completed")
