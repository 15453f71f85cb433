"""What the red team found, one test per defect, from outside. Each docstring begins with the defect's number."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from tests.fleet import PATIENCE, Fleet, lives, processes_of, wait_until
from tests.sampling import sampled

import holdfast
from holdfast.api.commands import Commands, NewTask
from holdfast.api.queries import Queries
from holdfast.workspaces.removal.trash import delete_tree

NOBODY = 65534


def sh(fleet: Fleet, script: str, *options: object) -> str:
    """Queue a task whose agent is a shell script."""
    return fleet.add("work", *options, command=("sh", "-c", script))


def alerts_of(fleet: Fleet, task_id: str) -> list[str]:
    return [alert["message"] for alert in fleet.json("alerts") if alert["task"] == task_id]


def assert_nothing_left(fleet: Fleet) -> None:
    """No directory, marker, trash, admin entry or branch; and the doctor agrees."""
    left = [path.name for path in (fleet.home / "workspaces").rglob("*") if path.name != ".trash"]
    assert left == []
    assert fleet.worktrees() == []
    assert fleet.branches() == []
    assert "All well." in fleet.doctor()


def saved_texts(fleet: Fleet, task_id: str, name: str) -> set[str]:
    """Every content that a file has in any commit of a task's restored salvage."""
    fleet.cli("salvage", "restore", task_id, "--branch", "rescued")
    commits = fleet.git("rev-list", "rescued").split()
    found = {fleet.git("show", f"{commit}:{name}", check=False) for commit in commits}
    return found - {""}


def git_shim(fleet: Fleet, word: str, body: str) -> dict[str, str]:
    """An environment whose `git` runs the shell code `body` when it is called with the argument `word`."""
    folder = fleet.root / f"shim-{word}"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\nreal={shutil.which("git")}\nfor each in "$@"; do\n'
        f'if [ "$each" = {word} ]; then\n{body}\nfi\ndone\nexec "$real" "$@"\n'
    )
    (folder / "git").chmod(0o755)
    return {"PATH": f"{folder}:{fleet.env['PATH']}"}


def held_checkout(fleet: Fleet) -> tuple[dict[str, str], Path]:
    """A git whose checkout makes the files and then continues writing for ever; and the file with its pid."""
    at = fleet.root / "checkout.pid"
    body = f'"$real" "$@"; echo $$ > {at}.new; mv {at}.new {at}\nwhile :; do date > late.txt; sleep 0.02; done'
    return git_shim(fleet, "reset", body), at


def zombies_of(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if fields[0] == b"Z" and int(fields[1]) == parent:
                    found.append(int(entry.name))
    return found


def child_that_runs(name: str, parent: int) -> int:
    """Cheap enough to be looked for again and again: it does not live for long."""
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{parent}/task").iterdir():
            for pid in (thread / "children").read_text().split():
                if name in Path(f"/proc/{pid}/cmdline").read_text():
                    return int(pid)
    return 0


# -- nothing is lost -----------------------------------------------------------------------------------------------


def test_a_retry_does_not_put_an_old_salvage_over_newer_commits(fleet: Fleet) -> None:
    """D1 (R-TREE-13): the salvage of run 1 is older than the commit of run 2; run 3 starts from the commit."""
    fleet.up()
    task_id = fleet.add_scenario(
        {"run": 1, "write": {"path": "a.txt", "text": "v1\n"}},
        {"run": 1, "exit": 1},
        {"run": 2, "write": {"path": "a.txt", "text": "v2\n"}},
        {"run": 2, "commit": "Second"},
        {"run": 2, "exit": 1},
        {"print": "done"},
    )
    for _ in range(2):
        fleet.wait_state(task_id, "failed")
        fleet.wait_clean()
        fleet.cli("retry", task_id)
    task = fleet.wait_state(task_id, "completed")
    assert len(task["runs"]) == 3
    assert fleet.file_on_branch(task["branch"], "a.txt") == "v2"


def nobodys_python(search: str) -> str | None:
    """A Python that `nobody` may start and that can run Holdfast: the tests' own may lie in root's home."""
    for python in dict.fromkeys((sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}")):
        with contextlib.suppress(OSError):
            done = subprocess.run(
                [python, "-m", "holdfast", "--help"],
                env={"PYTHONPATH": search},
                cwd="/",
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                capture_output=True,
                check=False,
            )
            if done.returncode == 0:
                return python
    return None


@pytest.fixture
def nobodys_fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """A fleet without root's rights: for root the kernel ignores the modes of files, so root starts it as `nobody`."""
    search = ":".join(str(Path(module.__file__ or "").parents[1]) for module in (holdfast, apsw))
    python = sys.executable if os.getuid() != 0 else nobodys_python(search)
    if python is None:
        pytest.skip("NOT RUN: the user `nobody` can start no Python that runs Holdfast on this machine")
    root = Path(tempfile.mkdtemp(prefix="holdfast-nobody-"))
    fleet = Fleet(root)
    if os.getuid() == 0:
        fleet.env["PYTHONPATH"] = search
        for folder, folders, files in os.walk(root):
            for name in (".", *folders, *files):
                os.chown(os.path.join(folder, name), NOBODY, NOBODY, follow_symlinks=False)
        limited = functools.partial(subprocess.Popen, user=NOBODY, group=NOBODY, extra_groups=[])
        monkeypatch.setattr(subprocess, "Popen", limited)
        monkeypatch.setattr(sys, "executable", python)
    try:
        yield fleet
    finally:
        fleet.close()
        left = processes_of(root)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        delete_tree(str(root))
    assert not left, f"the test left processes behind: {left}"


@pytest.mark.parametrize("code", [0, 1])
def test_a_closed_directory_is_preserved_with_an_alert(nobodys_fleet: Fleet, code: int) -> None:
    """D2 (R-TREE-13, R-TREE-09): `git add` skips a directory of mode 000 in silence; its bytes are not lost."""
    fleet = nobodys_fleet
    fleet.up()
    task_id = sh(fleet, f"mkdir closed; echo precious > closed/file; echo open > open; chmod 000 closed; exit {code}")
    fleet.wait_state(task_id, "failed" if code else "completed")
    fleet.wait_clean()
    task = fleet.show(task_id)
    assert task["workspace"]["state"] == "preserved"
    closed = Path(task["workspace"]["path"]) / "closed"
    closed.chmod(0o700)
    assert (closed / "file").read_text() == "precious\n"
    assert any("closed" in message for message in alerts_of(fleet, task_id))


@pytest.mark.parametrize(
    ("name", "script"),
    [
        (
            "f.txt",
            'git checkout -q --detach; echo floating > f.txt; git add .; git commit -qm x; rm -rf "$PWD"; exit 1',
        ),
        ("f.txt", 'echo floating > f.txt; git add .; rm -rf "$PWD"; exit 1'),
        ("f.txt", "git checkout -q --detach; echo floating > f.txt; git add .; git commit -qm x; rm .git; exit 1"),
    ],
    ids=["commit, tree removed", "staged, tree removed", "commit, link removed"],
)
def test_work_is_found_though_the_agent_removed_its_tree(fleet: Fleet, name: str, script: str) -> None:
    """D5 (R-TREE-13): a detached commit, or staged content, survives the agent's own `rm`."""
    fleet.up()
    task_id = sh(fleet, script)
    fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    assert saved_texts(fleet, task_id, name) == {"floating"}
    assert fleet.worktrees() == []
    fleet.doctor()


def test_a_repository_in_place_of_the_link_is_preserved(fleet: Fleet) -> None:
    """D5 (R-TREE-13): the agent replaces `.git` by a repository of its own: a commit of ours cannot hold that."""
    fleet.up()
    task_id = sh(fleet, "rm .git; git init -q; echo own > own.txt; git add .; git commit -qm own; exit 1")
    fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    workspace = fleet.show(task_id)["workspace"]
    assert workspace["state"] == "preserved"
    assert fleet.git("show", "HEAD:own.txt", cwd=Path(workspace["path"])) == "own"
    assert len(alerts_of(fleet, task_id)) == 1


# -- cleaning and retrying -----------------------------------------------------------------------------------------


def preserved_failure(fleet: Fleet) -> str:
    """A failed task with a preserved workspace, and no supervisor left. Its agent succeeds once `go` exists."""
    supervisor = fleet.up()
    script = f"echo work > work.txt; test -e {fleet.root / 'go'}"
    task_id = sh(fleet, script, "--preserve-on-failure")
    assert fleet.wait_state(task_id, "failed")["state"] == "failed"
    fleet.wait_clean()
    fleet.cli("down")
    assert supervisor.wait(timeout=PATIENCE) == 0
    return task_id


def test_retry_waits_for_a_clean_that_was_asked_for(fleet: Fleet) -> None:
    """D4 (R-CLEAN-08): between `workspaces clean` and its end a retry would run in a tree that is being removed."""
    task_id = preserved_failure(fleet)
    fleet.cli("workspaces", "clean", task_id)
    fleet.cli("retry", task_id, code=4)
    assert fleet.show(task_id)["state"] == "failed"
    (fleet.root / "go").touch()
    fleet.up()
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "the workspace is cleaned")
    fleet.cli("retry", task_id)
    task = fleet.wait_state(task_id, "completed")
    assert fleet.file_on_branch(task["branch"], "work.txt") == "work"
    fleet.wait_clean()
    fleet.doctor()


def test_a_retried_task_keeps_its_workspace(fleet: Fleet) -> None:
    """D4 (R-CLEAN-08): `retry`, then `workspaces clean`: a conflict, and the retry runs in the preserved tree."""
    task_id = preserved_failure(fleet)
    fleet.cli("retry", task_id)
    fleet.cli("workspaces", "clean", task_id, code=4)
    (fleet.root / "go").touch()
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    assert fleet.file_on_branch(task["branch"], "work.txt") == "work"


def test_a_tree_that_cannot_be_saved_stays_preserved_when_cleaned(fleet: Fleet) -> None:
    """D17 (R-CLEAN-06, R-TREE-13): `workspaces clean` on a tree with a nested repository: it stays, told once."""
    fleet.up()
    task_id = sh(fleet, "git init -q nested; echo mine > nested/file; exit 1")
    fleet.wait_state(task_id, "failed")
    fleet.wait_clean()
    queries = Queries(str(fleet.home))
    for _ in range(2):
        fleet.cli("workspaces", "clean", task_id)
        wait_until(lambda: queries.workspaces()[0]["disposition"] == "preserve", "the clean-up has refused")
    fleet.wait_state(fleet.add("another", command=("true",)), "completed")
    fleet.wait_clean()
    workspace = fleet.show(task_id)["workspace"]
    assert workspace["state"] == "preserved"
    assert (Path(workspace["path"]) / "nested" / "file").read_text() == "mine\n"
    assert len(alerts_of(fleet, task_id)) == 1
    assert not [event for event in fleet.events() if "cannot go from" in event["message"]]
    assert "workspace.cleanup-failed" not in fleet.kinds(task_id)
    fleet.doctor()


def test_a_fresh_retry_takes_the_old_empty_branch_away(fleet: Fleet) -> None:
    """D19 (R-TREE-12): the first branch never got a commit; after `retry --fresh` only the new one is there."""
    task_id = preserved_failure(fleet)
    fleet.cli("retry", task_id, "--fresh")
    (fleet.root / "go").touch()
    fleet.up()
    task = fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    assert task["branch"] != f"holdfast/{task_id}"
    assert fleet.branches() == [task["branch"]]
    assert "All well." in fleet.doctor()


def test_doctor_is_content_with_a_preserved_workspace(fleet: Fleet) -> None:
    """D21 (R-CLEAN-07): its branch has no commit, and is checked out in a tree that we keep on purpose."""
    task_id = preserved_failure(fleet)
    assert fleet.branches() == [f"holdfast/{task_id}"]
    assert "All well." in fleet.doctor()


def test_a_dependent_of_a_failed_task_cannot_be_retried(fleet: Fleet) -> None:
    """D22: it could never start. First the need is retried, then the dependent."""
    need = sh(fleet, f"test -e {fleet.root / 'go'}")
    dependent = fleet.add("later", "--after", need, command=("true",))
    fleet.up()
    fleet.wait_state(need, "failed")
    state = fleet.wait_state(dependent, "failed", "cancelled")["state"]
    fleet.cli("retry", dependent, code=4)
    assert fleet.show(dependent)["state"] == state
    (fleet.root / "go").touch()
    fleet.wait_clean()  # until its workspace is removed a retry is refused
    fleet.cli("retry", need)
    fleet.wait_state(need, "completed")
    fleet.cli("retry", dependent)
    fleet.wait_state(dependent, "completed")


def test_a_damaged_marker_stops_only_its_own_clean_up(fleet: Fleet) -> None:
    """D14 (R-CLEAN-06, R-TREE-07): `[]` is no record of ours: that tree stays and is told, all others go."""
    fleet.up("--agents", 1)
    damaged = sh(fleet, "echo '[]' > ../$HOLDFAST_TASK_ID.owner.json; echo a > a.txt; exit 1")
    other = sh(fleet, "echo b > b.txt; exit 1")
    fleet.wait_state(damaged, "failed")
    fleet.wait_state(other, "failed")
    wait_until(lambda: fleet.show(other)["workspace"]["state"] == "gone", "the other one is cleaned")
    wait_until(lambda: "workspace.cleanup-failed" in fleet.kinds(damaged), "the damaged one is reported")
    workspace = fleet.show(damaged)["workspace"]
    assert (Path(workspace["path"]) / "a.txt").read_text() == "a\n"
    assert fleet.worktrees() == [workspace["path"]]


# -- making workspaces ---------------------------------------------------------------------------------------------


def test_a_helper_of_a_killed_supervisor_is_ended(fleet: Fleet) -> None:
    """D6 (R-TERM-10, R-TREE-01): a checkout that outlives its supervisor must not write into the next one's tree."""
    env, at = held_checkout(fleet)
    task_id = fleet.add_scenario({"write": {"path": "done.txt", "text": "done\n"}})
    supervisor = fleet.up(env=env)
    wait_until(at.exists, "the checkout runs")
    helper = int(at.read_text())
    fleet.kill_supervisor(supervisor)
    assert lives(helper)
    fleet.up()
    assert not lives(helper)
    task = fleet.wait_state(task_id, "completed")
    fleet.wait_clean()
    names = fleet.git("ls-tree", "-r", "--name-only", task["branch"]).split()
    assert sorted(names) == ["README.md", "done.txt", "src/app.py"]
    assert not list((fleet.home / "workspaces").rglob("*half-made*"))
    assert "All well." in fleet.doctor()


def test_cancel_during_the_checkout_leaves_nothing_to_keep(fleet: Fleet) -> None:
    """D15 (R-TREE-01, R-CLEAN-11): no agent has worked in it, so --keep-workspace keeps nothing."""
    env, at = held_checkout(fleet)
    fleet.up(env=env)
    task_id = fleet.add("never", "--keep-workspace", command=("true",))
    wait_until(at.exists, "the checkout runs")
    fleet.cli("cancel", task_id)
    assert fleet.wait_state(task_id, "cancelled")["runs"] == []
    assert not lives(int(at.read_text()))
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "the half-made workspace is gone")
    assert_nothing_left(fleet)


def test_a_workspace_that_cannot_be_made_leaves_nothing(fleet: Fleet) -> None:
    """D15, D18 (R-TREE-05, R-TREE-01): the task fails; directory, marker, entry and branch are gone, kept or not."""
    fleet.up(env=git_shim(fleet, "reset", "echo fatal: broken >&2; exit 128"))
    task_id = fleet.add("never", "--preserve-on-failure", command=("true",))
    task = fleet.wait_state(task_id, "failed")
    assert task["outcome"] == "launch_error"
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "the half-made workspace is gone")
    assert_nothing_left(fleet)


@pytest.mark.parametrize("fault", ["worktree.checkout:1:EIO", "worktree.add:1:ENOSPC", "rundir.intend:1:ENOSPC"])
def test_trouble_of_the_machine_at_the_start_is_over_when_the_task_is(fleet: Fleet, fault: str) -> None:
    """D11, D15, D18 (R-TREE-01): a launch error, or tried again until it works; never stuck, and nothing is left."""
    fleet.up(env={"HOLDFAST_FAULT": fault})
    task_id = fleet.add("never", "--preserve-on-failure", command=("true",))
    task = fleet.wait_state(task_id, "failed", "completed")
    assert task["outcome"] in ("launch_error", "completed")
    assert task["outcome"] == "launch_error" or "attempt.trouble" in fleet.kinds(task_id)
    if task["outcome"] == "launch_error" and fleet.show(task_id)["workspace"]["state"] == "preserved":
        fleet.cli("workspaces", "clean", task_id)  # it was made; only the keeper could not be started
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "the workspace is gone")
    assert_nothing_left(fleet)


def test_cancel_during_a_copy_leaves_nothing(fleet: Fleet) -> None:
    """D16 (R-TREE-01): the copy is a process that is ended with its task, not a thread that continues writing."""
    for number in range(4000):
        (fleet.repo / f"{number}.txt").write_text("x")
    supervisor = fleet.up()
    task_id = fleet.add("never", "--workspace", "directory:copy", command=("true",))
    pid = wait_until(lambda: child_that_runs("copy_checkout.py", supervisor.pid), "the copy runs")
    os.kill(pid, signal.SIGSTOP)
    assert fleet.show(task_id)["workspace"]["state"] == "intended"
    fleet.cli("cancel", task_id)
    fleet.wait_state(task_id, "cancelled")
    assert not lives(pid)
    wait_until(lambda: fleet.show(task_id)["workspace"]["state"] == "gone", "the half-made copy is gone")
    assert_nothing_left(fleet)


# -- agents that fight their keeper --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled(["directory", "d"], keep=1))
def test_a_very_deep_tree_hurts_nobody(fleet: Fleet, name: str) -> None:
    """D8 (R-CLEAN-06, R-TREE-13): 1,500 levels, within PATH_MAX and beyond: told or saved, and the fleet continues."""
    dig = f"import os\nfor _ in range(1500): os.mkdir('{name}'); os.chdir('{name}')\nopen('f', 'w').write('x')"
    supervisor = fleet.up()
    try:
        task_id = fleet.add("dig", command=("sh", "-c", f'{sys.executable} -c "$0"; exit 1', dig))
        fleet.wait_state(task_id, "failed")
        fleet.wait_clean()
        task = fleet.show(task_id)
        assert task["workspace"]["state"] == "preserved" or task["salvages"] != []
        fleet.wait_state(fleet.add("another", command=("true",)), "completed")
        fleet.wait_clean()
        assert supervisor.poll() is None
        assert "Traceback" not in fleet.log()
        assert not {"attempt.trouble", "workspace.cleanup-failed"} & set(fleet.kinds(task_id))
        fleet.doctor()
    finally:
        subprocess.run(["rm", "-rf", fleet.home / "workspaces"], check=True)  # pytest's own removal cannot go so deep


SPOIL = {
    "garbage": "echo nonsense > pid.json; echo '[1' > exit.json",
    "other shapes": "echo '{}' > pid.json; echo '{}' > exit.json",
    "no room for the truth": "rm exit.json.room; echo '{\"cause\": \"nonsense\"}' > exit.json; echo '[]' > pid.json",
}


@pytest.mark.parametrize("how", ["garbage", "other shapes", "no room for the truth"])
def test_garbage_in_the_run_directory_does_not_hold_a_task_up(fleet: Fleet, how: str) -> None:
    """D9 (R-TERM-09): the agent writes over its records at once; with a living supervisor the task still ends."""
    fleet.env["HOLDFAST_LOST_MAX"] = "0"
    fleet.up()
    task_id = sh(fleet, f"cd $HOLDFAST_RUN_DIR; {SPOIL[how]}", "--workspace", "none")
    fleet.wait_state(task_id, "completed", "failed")
    assert "attempt.trouble" not in fleet.kinds(task_id)


def adopted_with_garbage(fleet: Fleet) -> tuple[str, int]:
    """A task, and the pid of its agent, which lives, spoilt its pid record and was adopted by a second supervisor.

    The agent ends when `go` exists; `at` has one line per agent that was ever started.
    """
    at, spoil, spoilt = (fleet.root / name for name in ("at", "spoil", "spoilt"))
    supervisor = fleet.up()
    task_id = sh(
        fleet,
        f"echo $$ >> {at}; until test -e {spoil}; do sleep 0.1; done; echo nonsense > $HOLDFAST_RUN_DIR/pid.json; "
        f"touch {spoilt}; until test -e {fleet.root / 'go'}; do sleep 0.1; done",
        "--workspace",
        "none",
    )
    wait_until(lambda: "run.started" in fleet.kinds(task_id), "the agent runs")
    wait_until(at.exists, "the agent is at work")
    fleet.kill_supervisor(supervisor)
    spoil.touch()
    wait_until(spoilt.exists, "its record is garbage")
    fleet.up()
    wait_until(lambda: "task.adopted" in fleet.kinds(task_id), "the task is adopted")
    return task_id, int(at.read_text().split()[0])


def test_garbage_in_place_of_a_pid_never_starts_a_second_agent(fleet: Fleet) -> None:
    """D9 (R-TERM-10): whose pid record is unreadable may still live: held or frozen, never run a second time."""
    task_id, agent = adopted_with_garbage(fleet)
    try:
        fleet.wait_state(fleet.add("another", command=("true",)), "completed")
        task = fleet.show(task_id)
        assert (task["state"], len(task["runs"])) == ("running", 1)
        Commands(str(fleet.home)).cancel(task_id, "a test")
    finally:
        (fleet.root / "go").touch()
    wait_until(lambda: not lives(agent), "the agent has ended")
    queries = Queries(str(fleet.home))
    wait_until(
        lambda: queries.state(task_id)["state"] == "cancelled" or "task.frozen" in fleet.kinds(task_id),
        "the task is cancelled or frozen",
    )
    if queries.state(task_id)["state"] != "cancelled":
        assert alerts_of(fleet, task_id) != []
        fleet.cli("cancel", task_id, "--assume-dead")
    assert len(fleet.wait_state(task_id, "cancelled")["runs"]) == 1
    assert len((fleet.root / "at").read_text().split()) == 1
    wait_until(lambda: len(processes_of(fleet.home)) == 1, "only the supervisor is left")


@pytest.mark.parametrize(
    "words",
    sampled([("cancel",), ("down",), ("cancel", "--assume-dead"), ("down", "--now")], keep=2),
    ids=" ".join,
)
def test_garbage_in_place_of_a_pid_does_not_hold_an_operator_up(fleet: Fleet, words: tuple[str, ...]) -> None:
    """D9 (R-TERM-06, R-CLEAN-10): the command comes back soon; it ends the agent, or says why it does not."""
    task_id, agent = adopted_with_garbage(fleet)
    try:
        command, *options = words
        done = fleet.cli(command, *([task_id] if command == "cancel" else []), *options, code=None, timeout=PATIENCE)
        assert not lives(agent) or (done.returncode != 0 and alerts_of(fleet, task_id) != [])
    finally:
        (fleet.root / "go").touch()
        wait_until(lambda: not lives(agent), "the agent has ended")


def test_an_agent_that_kills_its_keeper_is_lost_too_often(fleet: Fleet) -> None:
    """D10 (R-TERM-09, R-CRASH-03): the supervisor proves the end itself: never frozen, every child is reaped.

    Four at the same time, beside an agent that behaves: it must not be taken for something that a keeper left.
    """
    fleet.env["HOLDFAST_LOST_MAX"] = "1"
    at, go = fleet.root / "at", fleet.root / "go"
    good = fleet.add_scenario({"touch": str(at)}, {"wait_for": str(go)}, options=("--workspace", "directory"))
    supervisor = fleet.up("--agents", 5)
    wait_until(at.exists, "the good agent is at work")
    ids = [sh(fleet, "kill -9 $PPID", "--workspace", "directory") for _ in range(4)]
    for task_id in ids:
        task = fleet.wait_state(task_id, "failed")
        assert task["failure_reason"] == "lost_too_often"
        assert [run["outcome"] for run in task["runs"]] == ["lost", "lost"]
        assert "task.frozen" not in fleet.kinds(task_id)
    go.touch()
    assert len(fleet.wait_state(good, "completed")["runs"]) == 1
    fleet.wait_clean()
    wait_until(lambda: zombies_of(supervisor.pid) == [], "every child of the supervisor is reaped")


@pytest.mark.parametrize(
    "spoil",
    [
        "true",
        "echo nonsense > $HOLDFAST_RUN_DIR/pid.json",
        "rm $HOLDFAST_RUN_DIR/pid.json",
    ],
    ids=["record whole", "record garbage", "record gone"],
)
def test_a_keeper_killed_before_the_supervisor_looks_leaves_no_daemon(fleet: Fleet, spoil: str) -> None:
    """D9, D10 (R-TERM-06, R-TERM-10): the supervisor is held right behind the spawn while the agent starts a daemon,
    spoils its record and kills its keeper. Before the task ends, or runs again, the daemon is dead."""
    fleet.env["HOLDFAST_LOST_MAX"] = "0"
    daemon = fleet.root / "daemon.pid"
    supervisor = fleet.up(env={"HOLDFAST_FAULT": "nursery.answered:1:stop"})
    script = f"setsid sleep 600 & echo $! > {daemon}.new; {spoil}; mv {daemon}.new {daemon}; kill -9 $PPID"
    task_id = sh(fleet, script, "--workspace", "none")
    wait_until(daemon.exists, "the agent has run")
    wait_until(lambda: zombies_of(supervisor.pid), "its keeper is dead")
    supervisor.send_signal(signal.SIGCONT)
    task = fleet.wait_state(task_id, "failed")
    assert not lives(int(daemon.read_text()))
    assert [run["outcome"] for run in task["runs"]] == ["lost"]
    assert "task.frozen" not in fleet.kinds(task_id)
    wait_until(lambda: zombies_of(supervisor.pid) == [], "every child of the supervisor is reaped")


def test_a_stopped_keeper_still_keeps_the_deadline(fleet: Fleet) -> None:
    """D12 (R-TERM-05): an agent that stops its keeper is timed out all the same: the next beat wakes the keeper."""
    fleet.env["HOLDFAST_RETRY_MAX"] = "0"
    fleet.up()
    task_id = sh(fleet, "kill -STOP $PPID; exec sleep 600", "--workspace", "none", "--timeout", "1s")
    assert fleet.wait_state(task_id, "failed")["outcome"] == "timeout"


EVIL = "'touch {canary}; cat'"
PLANT = {
    "included": (
        "evil",
        f"git config -f {{root}}/evil filter.evil.clean {EVIL}; git config -f {{root}}/evil filter.evil.smudge {EVIL}; "
        "git config include.path {root}/evil",
    ),
    "equals sign": ("a=b", f"git config filter.a=b.clean {EVIL}; git config filter.a=b.smudge {EVIL}"),
    "worktree config": (
        "evil",
        f"git config extensions.worktreeConfig true; git config --worktree filter.evil.clean {EVIL}; "
        f"git config --worktree filter.evil.smudge {EVIL}",
    ),
}


@pytest.mark.parametrize("how", PLANT)
def test_filters_of_an_agent_never_run_in_our_git(fleet: Fleet, how: str) -> None:
    """D13 (R-TREE-16): commands that an agent planted run neither on commit, nor on salvage, nor on checkout."""
    name, plant = PLANT[how]
    canary, works, early = fleet.root / "canary", fleet.root / "works", fleet.root / "early"
    (fleet.repo / ".gitattributes").write_text(f"* filter={name}\n")
    fleet.git("add", ".")
    fleet.git("commit", "--quiet", "-m", "Attributes")
    planting = plant.format(canary=canary, root=fleet.root)
    proof = f"git hash-object --path README.md README.md; test -e {canary} && touch {works}; rm -f {canary}"
    fleet.up()
    for code, state in ((1, "failed"), (0, "completed")):
        works.unlink(missing_ok=True)
        task_id = sh(
            fleet,
            f"test -e {canary} && touch {early}; {planting}; {proof}; "
            f"echo work > work.txt; echo more >> README.md; exit {code}",
        )
        fleet.wait_state(task_id, state)
        fleet.wait_clean()
        assert works.exists()  # the agent's own git did run it
        assert not canary.exists()
        assert not early.exists()  # nor did the checkout run what the first task had planted
    assert fleet.file_on_branch(f"holdfast/{task_id}", "work.txt") == "work"


@pytest.mark.parametrize("code", [0, 1])
def test_filters_of_a_nested_repository_never_run_in_our_git(fleet: Fleet, code: int) -> None:
    """D13 (R-TREE-16): git looks into a staged link, and would run the nested repository's own commands."""
    canary, works = fleet.root / "canary", fleet.root / "works"
    fleet.up()
    task_id = sh(
        fleet,
        "git init -q nested; cd nested; echo a > f; echo '* filter=evil' > .gitattributes; git add .; "
        f"git commit -qm n; cd ..; git add nested; cd nested; git config filter.evil.clean 'touch {canary}; cat'; "
        f"echo b > f; git hash-object --path f f; test -e {canary} && touch {works}; rm -f {canary}; exit {code}",
    )
    fleet.wait_state(task_id, "failed" if code else "completed")
    fleet.wait_clean()
    assert works.exists()
    assert not canary.exists()
    assert fleet.show(task_id)["workspace"]["state"] == "preserved"


# -- the supervisor itself -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(at: Path, size: str) -> Iterator[None]:
    at.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", at], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"NOT RUN: a small disk needs root: {mounted.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", at], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full, to the last byte."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (65536, 1):
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, b"\0" * size)
    finally:
        os.close(fd)


def has_room(fleet: Fleet) -> bool:
    """Use up what is left inside of allocated pages: a byte of the log, a page of the store."""
    with contextlib.suppress(OSError):
        for _ in range(4096):
            os.write(log := os.open(fleet.home / "supervisor.log", os.O_WRONLY | os.O_APPEND), b"\n")
            os.close(log)
    return fleet.cli("add", "later", "--delay", "1h", "--", "true", code=None).returncode == 0


def writes_of(pid: int) -> int:
    """How many write calls a process has made, refused ones included."""
    lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(lines["syscw"])


def test_a_full_disk_ends_neither_the_supervisor_nor_its_task(fleet: Fleet) -> None:
    """D7 (R-TREE-14): store and log on a full disk while an agent ends; with the space back the task completes."""
    at, go = fleet.root / "at", fleet.root / "go"
    fleet.env["HOLDFAST_DISK_FLOOR"] = "0"
    with small_disk(fleet.home, "8m"):
        fleet.cli("up", "--detach")
        supervisor = fleet.supervisor_pid()
        assert supervisor is not None
        try:
            task_id = fleet.add_scenario({"touch": str(at)}, {"wait_for": str(go)}, {"print": "done"})
            wait_until(lambda: "run.started" in fleet.kinds(task_id), "the agent runs")
            wait_until(at.exists, "the agent is at work")
            agent = fleet.show(task_id)["runs"][0]["pid"]
            fill(fleet.home / "ballast")
            wait_until(lambda: not has_room(fleet), "the store is full")
            before = writes_of(supervisor)
            go.touch()
            wait_until(lambda: not lives(agent), "the agent has ended")
            wait_until(lambda: writes_of(supervisor) > before + 5, "the supervisor has tried to write")
            (fleet.home / "ballast").unlink()
            assert fleet.wait_state(task_id, "completed")["outcome"] == "completed"
            fleet.wait_clean()
            assert fleet.supervisor_pid() == supervisor
        finally:
            (fleet.home / "ballast").unlink(missing_ok=True)
            fleet.cli("down", "--now", code=None)
            wait_until(lambda: not lives(supervisor), "the supervisor has stopped")


def test_a_cancel_at_any_moment_of_the_start_is_a_cancel(fleet: Fleet) -> None:
    """D20 (R-TREE-01, R-TERM-08): ten tasks, each cancelled at another step of its start: none of them is `lost`."""
    fleet.up("--agents", 10)
    commands, queries = Commands(str(fleet.home)), Queries(str(fleet.home))

    def has_reached(task_id: str, moment: str) -> bool:
        """Or gone by: a moment may be over before we look again."""
        task = queries.task(task_id)
        workspace = task["workspace"]["state"]
        reached = {
            "now": True,
            "running": task["state"] != "queued",
            "intended": workspace is not None,
            "ready": workspace not in (None, "intended"),
            "run": bool(task["runs"]),
        }
        return bool(reached[moment])

    ids = []
    for moment in ("now", "running", "intended", "ready", "run") * 2:
        new = NewTask(prompt="never", directory=str(fleet.repo), command=("sleep", "600"))
        ids.append(commands.add(new).id)
        wait_until(functools.partial(has_reached, ids[-1], moment), f"the task has come to: {moment}")
        commands.cancel(ids[-1], f"at {moment}")
    for task_id in ids:
        task = fleet.wait_state(task_id, "cancelled")
        assert {run["outcome"] for run in task["runs"]} <= {"cancelled"}
    fleet.wait_clean()
    assert_nothing_left(fleet)


def pending_term(pid: int) -> bool:
    """Whether a TERM was sent to a process and has not been delivered yet."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    mask = next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))
    return bool(mask >> (signal.SIGTERM - 1) & 1)


def test_a_third_sigterm_ends_a_supervisor_that_cannot_write(fleet: Fleet) -> None:
    """D23 (R-TERM-10): like a crash: the agent stays with its keeper, and the next supervisor takes it over."""
    at, go = fleet.root / "at", fleet.root / "go"
    supervisor = fleet.up()
    task_id = fleet.add_scenario({"touch": str(at)}, {"wait_for": str(go)})
    wait_until(at.exists, "the agent is at work")
    agent = wait_until(lambda: fleet.show(task_id)["runs"][-1]["pid"], "its pid is recorded")
    holder = apsw.Connection(str(fleet.home / "holdfast.db"))
    holder.set_busy_timeout(10_000)
    holder.execute("BEGIN IMMEDIATE")
    try:
        for _ in range(2):
            supervisor.send_signal(signal.SIGTERM)
            wait_until(lambda: not pending_term(supervisor.pid), "the signal is delivered")
        assert supervisor.poll() is None
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(timeout=PATIENCE) == 1
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert lives(agent)
    fleet.up()
    go.touch()
    task = fleet.wait_state(task_id, "completed")
    assert len(task["runs"]) == 1
