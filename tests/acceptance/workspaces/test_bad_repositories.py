"""Repositories and gits that are not as expected: shallow, moved, without identity, oddly named; git old or missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
from pathlib import Path

import pytest
from tests.fleet import Fleet, wait_filled, wait_until
from tests.refusals import nothing_changes, refused
from tests.sampling import sampled

from holdfast.workspaces.git.git_versions import PROVEN_GIT


def shim(fleet: Fleet, name: str, script: str) -> dict[str, str]:
    """A PATH on which `name` is a script of ours; the rest is as it was."""
    folder = fleet.root / "shims"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"PATH": f"{folder}:{fleet.env['PATH']}"}


def test_a_shallow_clone_works_from_end_to_end(fleet: Fleet) -> None:
    """Worktree, leftovers on the branch, salvage, restore and retry in a repository without its history."""
    for number in range(3):
        (fleet.repo / "README.md").write_text(f"# {number}\n")
        fleet.git("commit", "--quiet", "-am", f"Number {number}")
    shallow = fleet.root / "shallow"
    fleet.git("clone", "--quiet", "--depth", "1", f"file://{fleet.repo}", str(shallow))
    assert fleet.git("rev-parse", "--is-shallow-repository", cwd=shallow) == "true"
    fleet.repo = shallow
    good = fleet.add(
        "x", command=("sh", "-c", "echo 1 > one.txt; git add one.txt; git commit -qm One; echo 2 > two.txt")
    )
    bad = fleet.add("x", command=("sh", "-c", "echo half > half.txt; git add half.txt; echo more >> README.md; exit 1"))
    fleet.up()
    branch = fleet.wait_state(good, "completed")["branch"]
    assert fleet.file_on_branch(branch, "one.txt") == "1"
    assert fleet.file_on_branch(branch, "two.txt") == "2"
    fleet.wait_state(bad, "failed")
    fleet.wait_clean()
    assert "half.txt" in fleet.cli("diff", bad, "--stat").stdout
    fleet.cli("salvage", "restore", bad, "--branch", "saved")
    assert fleet.file_on_branch("saved", "half.txt") == "half"
    assert fleet.file_on_branch("saved", "README.md").endswith("more")
    assert fleet.git("fsck", "--connectivity-only", check=False) == ""
    fleet.cli("retry", bad)
    assert len(fleet.wait_state(bad, "failed")["runs"]) == 2
    fleet.wait_clean()
    assert fleet.worktrees() == []
    fleet.doctor()


@pytest.mark.parametrize("strategy", ["worktree", "directory:copy", "none"])
def test_a_repository_moved_while_its_tasks_wait(fleet: Fleet, strategy: str) -> None:
    """The task fails with the remedy, and the remedy works: `init --moved-from` in the new place, then `retry`."""
    old, new = fleet.make_repo(fleet.root / "old place"), fleet.root / "new"
    task_id = fleet.add(
        "x", "--workspace", strategy, command=("sh", "-c", "test -f README.md && echo 1 > one.txt"), cwd=old
    )
    old.rename(new)
    fleet.up()
    reason = fleet.wait_state(task_id, "failed")["reason"]
    remedy = f"holdfast init --moved-from '{old}'"
    assert f"{old} is gone" in reason
    assert remedy in reason
    assert remedy in fleet.cli("why", task_id).stdout
    fleet.wait_clean()
    fleet.cli("init", cwd=new)  # the first thing that many would type: it must not stand in the way
    fleet.cli("init", "--moved-from", old, cwd=new)
    fleet.cli("retry", task_id)
    task = fleet.wait_state(task_id, "completed")
    assert task["repo"] == str(new)
    if strategy == "worktree":
        assert fleet.git("show", f"{task['branch']}:one.txt", cwd=new) == "1"
    fleet.wait_clean()
    assert fleet.doctor().endswith("All well.\n")


def test_moves_that_are_none(fleet: Fleet) -> None:
    """A place that nobody knows; a repository that is still there; a new place that has tasks of its own."""
    other = fleet.make_repo(fleet.root / "other")
    moved = fleet.make_repo(fleet.root / "moved")
    with nothing_changes(fleet):
        fleet.cli("init", cwd=other)
        assert "still a repository" in refused(fleet, "init", "--moved-from", other, code=4)
        assert "not text" in refused(fleet, "init", "--moved-from", "/caf\udce9", code=2)
        assert "No repository is known" in refused(fleet, "init", "--moved-from", fleet.root / "never", code=3)
    fleet.add("mine", command=("true",), cwd=moved)
    shutil.rmtree(moved)
    line = refused(fleet, "init", "--moved-from", moved, code=4)
    assert "known already" in line
    assert sorted(row["repo"] for row in fleet.json("ps")) == sorted([str(fleet.repo), str(moved)])


@pytest.mark.parametrize("code", [0, 1])
def test_no_git_identity(fleet: Fleet, code: int) -> None:
    """Nobody told git who they are: leftovers are committed and work is salvaged all the same."""
    (fleet.root / "user" / ".gitconfig").write_text("[user]\n\tuseConfigOnly = true\n")
    assert fleet.git("var", "GIT_COMMITTER_IDENT", check=False) == ""
    task_id = fleet.add("x", command=("sh", "-c", f"echo 1 > one.txt; exit {code}"))
    fleet.up()
    fleet.wait_state(task_id, "completed" if code == 0 else "failed")
    fleet.wait_clean()
    if code == 0:
        branch = fleet.show(task_id)["branch"]
        assert fleet.file_on_branch(branch, "one.txt") == "1"
        assert fleet.git("log", "-1", "--format=%an", branch) == "Holdfast"
    else:
        fleet.cli("salvage", "restore", task_id, "--branch", "saved")
        assert fleet.file_on_branch("saved", "one.txt") == "1"
    seen = fleet.doctor()
    assert "git has no identity configured, so commits are made as Holdfast" in seen
    assert f"{platform.python_version()}; proven with 3.11, " in seen


@pytest.mark.parametrize("strategy", ["worktree", "clone"])
def test_an_agent_commits_without_a_git_identity(fleet: Fleet, strategy: str) -> None:
    """Nobody told git who they are: no commit of an agent is refused for that. Where there is one, it is used."""
    config = fleet.root / "user" / ".gitconfig"
    commits = "echo $0 > $0.txt; git add $0.txt; git commit -qm $0"
    authors = []
    fleet.up()
    for name in ("none", "known"):
        # useConfigOnly: as on a machine where git cannot guess a name and an address
        known = "\tname = A\n\temail = a@localhost\n" if name == "known" else ""
        config.write_text("[user]\n\tuseConfigOnly = true\n" + known)
        task_id = fleet.add(name, "--workspace", strategy, command=("sh", "-c", commits, name))
        fleet.wait_state(task_id, "completed", "failed")
        fleet.wait_clean()
        authors.append(fleet.git("log", "-1", "--format=%ae %s", fleet.show(task_id)["branch"]))
    assert authors == ["holdfast@localhost none", "a@localhost known"]


@pytest.mark.parametrize(
    ("script", "said"),
    sampled(
        [
            pytest.param("echo git version 2.38.5", "is 2.38.5", id="old"),
            pytest.param("exit 3", "does not report its version", id="failing"),
            pytest.param("echo git version 1.8", "is 1.8", id="ancient"),
            pytest.param("echo hello", "does not report its version", id="no-git"),
            pytest.param("echo git version ٢.٣", "does not report its version", id="odd-digits"),
        ],
        keep=2,
    ),
)
def test_a_git_that_is_too_old(fleet: Fleet, script: str, said: str) -> None:
    """Refused before anything is queued or started; looking still works."""
    with nothing_changes(fleet):
        env = shim(fleet, "git", script)
        for arguments in (("add", "x", "--", "true"), ("run", "x", "--", "true"), ("init",), ("up",)):
            line = refused(fleet, *arguments, env=env, code=2)
            assert said in line
            assert "needs 2.39 or newer" in line
        assert said in refused(fleet, "up", "--detach", env=env, code=69)
        assert "problem  git" in fleet.cli("doctor", env=env, code=1).stdout
        fleet.cli("ps", env=env)
    assert fleet.supervisor_pid() is None


def test_versions_of_other_vendors_are_understood(fleet: Fleet) -> None:
    real = shutil.which("git", path=fleet.env["PATH"])
    for words in ("git version 2.39.5 (Apple Git-154)", "git version 2.45.1.windows.1", "git version 2.39"):
        env = shim(fleet, "git", f'case "$*" in *version) echo "{words}";; *) exec {real} "$@";; esac')
        fleet.add("x", command=("true",), env=env)


OLDEST, NEWEST = (".".join(map(str, version)) for version in PROVEN_GIT)
PROVEN = f"proven with {OLDEST} to {NEWEST}"
NEWER = f"is newer than any version that Holdfast was tested with ({OLDEST} to {NEWEST})"


@pytest.mark.parametrize(
    ("version", "level", "said"),
    [
        ("2.38.5", "problem", "The git in PATH is 2.38.5; Holdfast needs 2.39 or newer. Upgrade it, then try again."),
        (OLDEST, "ok", f"{OLDEST}; {PROVEN}"),
        (f"{NEWEST}.3", "ok", f"{NEWEST}.3; {PROVEN}"),
        ("2.999.0", "note", f"2.999.0 {NEWER}"),
        ("3.0", "note", f"3.0 {NEWER}"),
    ],
)
def test_doctor_says_which_git_was_proven(fleet: Fleet, version: str, level: str, said: str) -> None:
    """Finding F0: a newer git may run what no known one runs. Such a git is used, and named."""
    real = shutil.which("git", path=fleet.env["PATH"])
    env = shim(fleet, "git", f'case "$*" in *version) echo "git version {version}";; *) exec {real} "$@";; esac')
    shown = fleet.cli("doctor", env=env, code=int(level == "problem")).stdout
    assert re.search(rf"^{level} +git +{re.escape(said)}$", shown, re.M), shown


def test_a_git_that_cannot_be_started(fleet: Fleet) -> None:
    """A directory or a file without its x bit in place of git."""
    folder = fleet.root / "bin"
    folder.mkdir()
    (folder / "git").write_text("#!/bin/sh\n")
    with nothing_changes(fleet):
        line = refused(fleet, "add", "x", "--", "true", env={"PATH": str(folder)}, code=2)
        assert "git could not be started (Permission denied)" in line
        (folder / "git").unlink()
        (folder / "git").mkdir()
        assert "git could not be started" in refused(fleet, "add", "x", "--", "true", env={"PATH": str(folder)}, code=2)


@pytest.mark.parametrize("name", sampled(["$(x)'\"", "-dash", "with space", "ünïcödé"], keep=2))
def test_repositories_with_odd_names(fleet: Fleet, name: str) -> None:
    repo = fleet.make_repo(fleet.root / name)
    task_id = fleet.add("x", command=("sh", "-c", "echo 1 > one.txt"), cwd=repo)
    bad = fleet.add("x", command=("sh", "-c", "echo 2 > two.txt; exit 1"), cwd=repo)
    fleet.cli("up", "--idle-exit", "0s")
    assert fleet.git("show", f"{fleet.show(task_id)['branch']}:one.txt", cwd=repo) == "1"
    fleet.cli("salvage", "restore", bad, "--branch", "saved")
    assert fleet.git("show", "saved:two.txt", cwd=repo) == "2"
    assert fleet.worktrees(repo) == []
    assert fleet.doctor().endswith("All well.\n")


def test_a_repository_whose_name_cannot_be_shown_as_it_is(fleet: Fleet) -> None:
    """A line end or an escape in it would drive the terminal, or forge a line of ours."""
    for name in ("with\nnewline", "with\x1b[2Jescape"):
        repo = fleet.make_repo(fleet.root / name)
        with nothing_changes(fleet):
            assert "it cannot be shown as it is" in refused(fleet, "add", "x", "--", "true", cwd=repo, code=2)


def test_a_repository_whose_name_is_not_text(fleet: Fleet) -> None:
    """The store holds text: such a name is refused, and nothing of it is half accepted."""
    repo = fleet.make_repo(Path(os.fsdecode(bytes(fleet.root) + b"/caf\xe9")))
    with nothing_changes(fleet):
        for arguments in (("add", "x", "--", "true"), ("run", "x", "--", "true"), ("init",)):
            assert "not UTF-8" in refused(fleet, *arguments, cwd=repo, code=2)


def test_a_diff_is_exact_whatever_the_bytes(fleet: Fleet) -> None:
    """What `diff` prints into a file can be applied: bytes that are not UTF-8 stay as they are."""
    task_id = fleet.add("x", command=("sh", "-c", r"printf 'caf\351\n' > latin.txt"))
    fleet.cli("up", "--idle-exit", "0s")
    patch = fleet.root / "patch"
    fleet.cli("diff", task_id, prefix=["sh", "-c", f'exec "$@" > {patch}', "sh"])
    fleet.git("apply", str(patch))
    assert (fleet.repo / "latin.txt").read_bytes() == b"caf\xe9\n"


def break_git(fleet: Fleet, *commands: str) -> tuple[dict[str, str], Path]:
    """Return an environment whose git fails for these commands while the returned file exists, as on a full disk."""
    broken = fleet.root / "disk-is-full"
    fail = f'for word in "$@"; do case "$word" in {"|".join(commands)}) cat {broken} >&2; exit 128;; esac; done'
    return shim(fleet, "git", f'if test -s {broken}; then {fail}; fi\nexec {shutil.which("git")} "$@"'), broken


WORK = "echo 1 > one.txt; git add .; git commit -qm one; echo 2 > two.txt"


@pytest.mark.parametrize(("strategy", "command"), [("clone", "fetch"), ("worktree", "commit")])
@pytest.mark.parametrize("reason", ["No space left on device", "Read-only file system"])
def test_work_is_delivered_when_the_disk_has_recovered(fleet: Fleet, strategy: str, command: str, reason: str) -> None:
    """The repository's disk is full or read-only when a task ends. Its workspace stays, an alert says why, `why` names
    no branch that is not there, and the work comes by itself when the disk has recovered."""
    env, broken = break_git(fleet, command)
    go = fleet.root / "go"
    fleet.up(env=env)
    real = shutil.which("git")
    work = WORK.replace("git ", f"{real} ")
    task = fleet.add(
        "x", "--workspace", strategy, command=("sh", "-c", f"{work}; while ! test -e {go}; do sleep 0.1; done")
    )
    tree = Path(wait_until(lambda: fleet.show(task)["workspace"]["path"], "it has a workspace"))
    wait_filled(tree / "two.txt", "the agent works")
    broken.write_text(f"fatal: cannot write: {reason}\n")
    go.touch()
    fleet.wait_state(task, "completed")
    [alert] = wait_until(lambda: fleet.json("alerts"), "an alert tells")
    assert reason in alert["message"]
    assert "tries again by itself" in alert["remedy"]
    wait_until(lambda: fleet.show(task)["workspace"]["state"] == "preserved", "the workspace stays")
    if strategy == "clone":
        assert "Its work is on branch" not in fleet.cli("why", task).stdout
        assert "Its work is in its preserved workspace" in fleet.cli("why", task).stdout
    broken.unlink()
    wait_until(lambda: fleet.show(task)["workspace"]["state"] == "gone", "the work is delivered by itself")
    assert fleet.file_on_branch(f"holdfast/{task}", "one.txt") == "1"
    assert fleet.file_on_branch(f"holdfast/{task}", "two.txt") == "2"
    assert fleet.json("alerts") == []
    fleet.wait_clean()


def test_a_task_waits_while_its_repository_is_read_only(fleet: Fleet) -> None:
    """That is a trouble of the machine. The task is not failed for it."""
    env, broken = break_git(fleet, "reset")
    broken.write_text("fatal: Unable to create 'index.lock': Read-only file system\n")
    fleet.up(env=env)
    task = fleet.add("x", command=("sh", "-c", WORK))
    wait_until(lambda: "Read-only file system" in fleet.log(), "its start failed")
    assert fleet.show(task)["state"] == "running"
    broken.unlink()
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"


def test_a_repository_moved_while_an_agent_works_gets_its_work(fleet: Fleet) -> None:
    """The alert names commands that work, `why` names no branch, and after the remedy the branch comes."""
    old, new, go = fleet.make_repo(fleet.root / "old"), fleet.root / "new", fleet.root / "go"
    fleet.up()
    wait = f"while ! test -e {go}; do sleep 0.1; done"
    task = fleet.add("x", "--workspace", "clone", command=("sh", "-c", f"{WORK}; {wait}"), cwd=old)
    tree = Path(wait_until(lambda: fleet.show(task)["workspace"]["path"], "it has a workspace"))
    wait_filled(tree / "two.txt", "the agent works")
    old.rename(new)
    go.touch()
    fleet.wait_state(task, "completed")
    [alert] = wait_until(lambda: fleet.json("alerts"), "an alert tells")
    assert f"holdfast init --moved-from {old}" in alert["message"]
    assert "holdfast retry" not in alert["message"] + alert["remedy"]
    assert ".." not in alert["message"] + alert["remedy"]
    wait_until(lambda: fleet.show(task)["workspace"]["state"] == "preserved", "the workspace stays")
    assert "Its work is on branch" not in fleet.cli("why", task).stdout
    fleet.cli("init", "--moved-from", old, cwd=new)
    fleet.cli("workspaces", "clean", task)
    wait_until(lambda: fleet.show(task)["workspace"]["state"] == "gone", "the remedy works")
    assert fleet.git("show", f"holdfast/{task}:two.txt", cwd=new) == "2"
    assert "Its work is on branch" in fleet.cli("why", task).stdout


def test_leftovers_outside_of_a_sparse_checkout_are_committed(fleet: Fleet) -> None:
    fleet.git("sparse-checkout", "set", "--cone", "src")
    fleet.up()
    task = fleet.add("x", command=("sh", "-c", "mkdir -p other; echo 1 > other/one.txt; echo 2 > src/two.txt"))
    nested = fleet.add("y", command=("sh", "-c", "git init -q inner; echo 1 > inner/one.txt"))
    assert fleet.wait_state(task, "completed", "failed")["salvages"] == []
    assert fleet.file_on_branch(f"holdfast/{task}", "other/one.txt") == "1"
    assert fleet.file_on_branch(f"holdfast/{task}", "src/two.txt") == "2"
    fleet.wait_state(nested, "completed")
    [event] = [event for event in fleet.events(nested) if event["kind"] == "workspace.not-committed"]
    assert "inner" in event["message"]
