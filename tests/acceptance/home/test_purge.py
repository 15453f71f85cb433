"""Purge, from outside: everything of ours goes, nothing of anybody else, and no work without a word."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet import PATIENCE, Fleet, wait_until
from tests.sampling import sampled

POINTS = """
    purge.begin admin.drop admin.dropped purge.branch purge.repository purge.workspace purge.workspaces purge.name
    purge.intent
""".split()  # noqa: SIM905 - read as a paragraph
REPO_POINTS = "purge.begin admin.drop purge.repository purge.workspace purge.deleted tx.history.repo".split()  # noqa: SIM905


def finish(fleet: Fleet) -> None:
    supervisor = fleet.up("--agents", 2, "--idle-exit", "0s")
    assert supervisor.wait(timeout=60) == 0, fleet.log()


def everything(fleet: Fleet) -> dict[str, str]:
    """A task with a branch, one with saved work, one whose workspace is preserved, one that waits."""
    made = {
        "branch": fleet.add("something", command=("sh", "-c", "echo new > new.txt")),
        "saved": fleet.add_scenario({"write": {"path": "half.txt", "text": "half\n"}}, {"exit": 1}),
        "preserved": fleet.add("keep", "--keep-workspace", command=("sh", "-c", "echo kept > kept.txt; exit 1")),
    }
    finish(fleet)
    return made


def home_is_gone(fleet: Fleet) -> bool:
    return not fleet.home.exists()


def nothing_in_repo(fleet: Fleet) -> None:
    assert fleet.worktrees() == []
    assert not (fleet.repo / ".git" / "worktrees").exists()
    assert not (fleet.repo / ".git" / "holdfast.lock").exists()
    assert fleet.git("fsck", "--strict", "--no-dangling") == ""
    assert fleet.git("status", "--porcelain") == ""


def test_everything_goes_and_work_is_exported(fleet: Fleet) -> None:
    """Refused while work would be lost; with --export it is in bundles; branches are the user's and stay."""
    made = everything(fleet)
    said = fleet.cli("purge", "--yes", code=1)
    assert "--export" in said.stderr
    assert "Nothing was removed" in said.stderr
    assert fleet.show(made["saved"])["state"] == "failed"
    listed = fleet.cli("purge", "--dry-run").stdout
    for word in (str(fleet.home), str(fleet.repo), made["saved"], made["preserved"], f"holdfast/{made['branch']}"):
        assert word in listed
    out = fleet.root / "out"
    fleet.cli("purge", "--yes", "--export", out)
    assert home_is_gone(fleet)
    nothing_in_repo(fleet)
    assert f"holdfast/{made['branch']}" in fleet.branches()
    (bundle,) = out.glob("*.bundle")
    fleet.git("fetch", "--quiet", str(bundle), "refs/salvage/*:refs/heads/back/*")
    contents = {fleet.git("show", f"{ref}:", check=False) for ref in fleet.git("branch", "--list", "back/*").split()}
    assert "half.txt" in str(contents)
    assert "kept.txt" in str(contents)
    assert "nothing of Holdfast" in fleet.cli("purge", "--yes").stdout


def test_dry_run_changes_nothing(fleet: Fleet) -> None:
    everything(fleet)

    def state() -> list[tuple[str, int]]:
        kinds = (fleet.home / "workspaces", fleet.home / "shadows", fleet.repo / ".git")
        return sorted((str(path), path.lstat().st_size) for kind in kinds for path in kind.rglob("*"))

    before = state()
    fleet.cli("purge", "--dry-run")
    assert state() == before
    assert "All well." in fleet.doctor()


def test_branches_and_work_only_when_asked(fleet: Fleet) -> None:
    """--branches deletes those of our tasks, except one that the user has checked out; a foreign one stays."""
    made = everything(fleet)
    second = fleet.add("more", command=("sh", "-c", "echo more > more.txt"))
    finish(fleet)
    fleet.git("branch", "holdfast/not-of-this-home")
    fleet.git("checkout", "--quiet", f"holdfast/{second}")
    said = fleet.cli("purge", "--yes", "--branches", "--discard-work").stdout
    assert f"holdfast/{second}" in said.split("except:")[1]
    assert set(fleet.branches()) == {f"holdfast/{second}", "holdfast/not-of-this-home"}
    assert home_is_gone(fleet)
    assert made["branch"] not in fleet.git("for-each-ref")


def test_restored_work_is_not_lost_work(fleet: Fleet) -> None:
    saved = fleet.add_scenario({"write": {"path": "half.txt", "text": "half\n"}}, {"exit": 1})
    finish(fleet)
    fleet.cli("purge", "--yes", code=1)
    fleet.cli("salvage", "restore", saved, "--branch", "back")
    fleet.cli("purge", "--yes")
    assert home_is_gone(fleet)
    assert fleet.git("show", "back:half.txt") == "half"


def test_what_is_not_ours_stays(fleet: Fleet) -> None:
    """A file in the home, a directory without our marker, what a link in a workspace leads to, a user's worktree."""
    task_id = fleet.add("keep", "--keep-workspace", command=("sh", "-c", f"ln -s {fleet.root}/precious link; exit 1"))
    finish(fleet)
    precious = fleet.root / "precious"
    precious.mkdir()
    (precious / "file").write_text("precious")
    (fleet.home / "notes.txt").write_text("mine")
    foreign = Path(fleet.show(task_id)["workspace"]["path"]).parent / "stranger"
    foreign.mkdir()
    (foreign / "file").write_text("theirs")
    own = fleet.root / "own-worktree"
    fleet.git("worktree", "add", "--quiet", str(own), "-b", "own")
    said = fleet.cli("purge", "--yes", "--discard-work").stdout
    assert str(foreign) in said
    assert (precious / "file").read_text() == "precious"
    assert (foreign / "file").read_text() == "theirs"
    assert (fleet.home / "notes.txt").read_text() == "mine"
    assert fleet.worktrees() == [str(own)]
    assert sorted(path.name for path in fleet.home.iterdir()) == ["notes.txt", "workspaces"]


def test_refused_while_something_lives(fleet: Fleet) -> None:
    supervisor = fleet.up()
    task_id = fleet.add("wait", command=("sleep", "1000"))
    wait_until(lambda: [run["state"] for run in fleet.show(task_id)["runs"]] == ["started"], "the agent runs")
    assert "holdfast down" in fleet.cli("purge", "--yes", "--discard-work", code=4).stderr
    fleet.kill_supervisor(supervisor)
    assert "down --now" in fleet.cli("purge", "--yes", "--discard-work", code=4).stderr
    again = fleet.up()
    fleet.cli("down", "--now")
    again.wait(timeout=PATIENCE)
    fleet.cli("purge", "--yes")
    assert home_is_gone(fleet)
    nothing_in_repo(fleet)


def test_no_byte_is_lost_of_somebody_who_works_in_one(fleet: Fleet) -> None:
    """R-CLEAN-08: refused while a shell is in a workspace; what is written while the question stands is found."""
    task_id = fleet.add("keep", "--keep-workspace", command=("true",))
    finish(fleet)
    path = Path(fleet.show(task_id)["workspace"]["path"])
    shell = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "shell", task_id, "-c", "cd /; echo in; read x"],
        env=fleet.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == b"in\n"
    assert "in use by a `holdfast shell`" in fleet.cli("purge", "--yes", "--discard-work", code=4).stderr
    shell.communicate(b"\n", timeout=PATIENCE)
    ours, theirs = pty.openpty()
    purge = fleet.start("purge", stdin=theirs, stderr=subprocess.STDOUT)
    assert purge.stdout is not None
    said = b""
    while b"for good" not in said:
        piece = os.read(purge.stdout.fileno(), 4096)
        assert piece, said
        said += piece
    (path / "late.txt").write_text("typed while it asked\n")
    os.write(ours, b"purge\n")
    assert purge.wait(timeout=PATIENCE) == 1
    purge.stdout.close()
    os.close(ours)
    os.close(theirs)
    assert (path / "late.txt").exists()


def test_asks_first(fleet: Fleet) -> None:
    """Only the word itself is an answer."""
    fleet.cli("init")
    assert "--yes" in fleet.cli("purge", code=1).stderr
    for answer, left in ((b"yes\n", True), (b"purge\n", False)):
        ours, theirs = pty.openpty()
        process = fleet.start("purge", stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.write(ours, answer)
        assert process.wait(timeout=PATIENCE) == (1 if left else 0)
        os.close(ours)
        os.close(theirs)
        assert fleet.home.exists() == left


@pytest.mark.parametrize("every", sampled([POINTS, POINTS[0::2], POINTS[1::2]], keep=1))
def test_killed_in_between(fleet: Fleet, every: list[str]) -> None:
    """kill -9 at each step, the same command killed at the next one, and so on; then it finishes."""
    everything(fleet)
    arguments = ("purge", "--yes", "--discard-work", "--branches")
    for point in every:
        fleet.cli(*arguments, env={"HOLDFAST_FAULT": point}, code=-signal.SIGKILL)
    fleet.cli(*arguments)
    assert home_is_gone(fleet) or list(fleet.home.iterdir()) == []
    nothing_in_repo(fleet)
    assert fleet.branches() == []


def test_killed_while_it_exports(fleet: Fleet) -> None:
    """Nothing is removed before the work is out; the same command then does both."""
    everything(fleet)
    target = fleet.root / "rescued"
    arguments = ("purge", "--yes", "--export", target)
    fleet.cli(*arguments, env={"HOLDFAST_FAULT": "purge.export"}, code=-signal.SIGKILL)
    assert (fleet.home / "holdfast.db").exists()
    fleet.cli(*arguments)
    assert len(list(target.glob("*.bundle"))) == 1
    assert home_is_gone(fleet)


@pytest.mark.parametrize("point", sampled(["purge.workspace", "purge.begin", "purge.name"], keep=1))
def test_a_disk_that_fails(fleet: Fleet, point: str) -> None:
    """One line, what to do, and the same command then finishes."""
    everything(fleet)
    arguments = ("purge", "--yes", "--discard-work")
    said = fleet.cli(*arguments, env={"HOLDFAST_FAULT": f"{point}:1:EIO"}, code=69).stderr
    assert "give the command again" in said
    fleet.cli(*arguments)
    assert home_is_gone(fleet)


class TestOneRepository:
    def test_only_that_one_is_forgotten(self, fleet: Fleet) -> None:
        made = everything(fleet)
        other = fleet.make_repo(fleet.root / "other")
        theirs = fleet.add("theirs", "--repo", other, "--after", made["branch"], command=("sh", "-c", "echo x > x"))
        assert "unfinished" in fleet.cli("purge", "--repo", fleet.repo, "--discard-work", "--yes", code=4).stderr
        finish(fleet)
        assert "--export" in fleet.cli("purge", "--repo", fleet.repo, "--yes", code=1).stderr
        fleet.cli("purge", "--repo", fleet.repo, "--yes", "--export", fleet.root / "out")
        assert len(list((fleet.root / "out").glob("*.bundle"))) == 1
        assert [row["id"] for row in fleet.json("ps", "--all")] == [theirs]
        nothing_in_repo(fleet)
        assert fleet.file_on_branch(f"holdfast/{made['branch']}", "new.txt") == "new"
        assert fleet.git("show", f"holdfast/{theirs}:x", cwd=other) == "x"
        assert "All well." in fleet.doctor()
        fleet.cli("purge", "--repo", fleet.repo, "--yes", code=3)

    @pytest.mark.parametrize("every", sampled([REPO_POINTS[0::2], REPO_POINTS[1::2]], keep=1))
    def test_killed_in_between(self, fleet: Fleet, every: list[str]) -> None:
        everything(fleet)
        arguments = ("purge", "--repo", fleet.repo, "--yes", "--discard-work")
        for point in every:
            fleet.cli(*arguments, env={"HOLDFAST_FAULT": point}, code=-signal.SIGKILL)
        fleet.cli(*arguments)
        assert fleet.json("ps", "--all") == []
        nothing_in_repo(fleet)
        assert "All well." in fleet.doctor()
