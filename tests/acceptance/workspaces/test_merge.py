"""Bringing work home: merge, pr, branches prune. The user's checkout and branches are as before, or as asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from tests.fleet import Fleet, processes_of, wait_until

from holdfast.api.queries import Queries
from holdfast.api.work.branches import list_branches, remove_branch
from holdfast.api.work.merge import MergeResult, merge
from holdfast.api.work.pull_request import PullRequest
from holdfast.api.work.salvage import restore_branch
from holdfast.base.errors import Conflict, NotFound, Refused, UsageError

KILLS = int(os.environ.get("HOLDFAST_FUZZ_MERGES", "1"))


def tip(fleet: Fleet, name: str = "main") -> str:
    return fleet.git("rev-parse", name)


def merge_here(fleet: Fleet, task_id: str, into: str | None = None, *, no_ff: bool = False) -> MergeResult:
    with fleet.as_its_user():
        return merge(str(fleet.home), Queries(str(fleet.home)).task(task_id), into, no_ff=no_ff)


def commit(name: str) -> str:
    return f"echo {name} > {name}.txt; git add .; git commit -qm {name}"


def test_work_comes_home(fleet: Fleet) -> None:
    """R-TREE-13. One fleet for all of it: every task costs a third of a second of CPU."""
    fleet.up("--agents", 4)
    scripts = {
        "one": "echo one > one.txt",
        "two": "echo two > two.txt",
        "clash": "echo theirs > one.txt",
        "nothing": "true",
        "many": "mkdir d; for i in $(seq 300); do echo $i > d/$i.txt; done",
        "dirty": commit("u") + "; echo more > dirty.txt; exit 1",
        "kept": commit("k"),
    }
    tasks = {name: fleet.queue(script, prompt=name, keep_workspace=name == "kept") for name, script in scripts.items()}
    for name, task_id in tasks.items():
        fleet.wait_state(task_id, "failed" if name == "dirty" else "completed")
    fleet.wait_clean()
    killed_while_merging(fleet, tasks["many"])
    merged_or_nothing_at_all(fleet, tasks)
    proposed(fleet, tasks["clash"])
    pruned(fleet, tasks)


def merged_or_nothing_at_all(fleet: Fleet, tasks: dict[str, str]) -> None:
    """Fast-forward, merge commit, conflict, dirty checkout, elsewhere; nothing is ever half done."""
    start = tip(fleet)
    (fleet.repo / "README.md").write_text("mine, uncommitted\n")

    def merged(name: str, into: str | None = None, *, no_ff: bool = False) -> MergeResult:
        return merge_here(fleet, tasks[name], into, no_ff=no_ff)

    (fleet.repo / "one.txt").write_text("mine, untracked\n")
    refusal = fleet.cli("merge", tasks["one"], code=1).stderr
    assert (
        f"{fleet.repo} has uncommitted changes in files that the merge changes too: one.txt. Commit, stash" in refusal
    )
    assert (tip(fleet), fleet.git("status", "--short")) == (start, "M README.md\n?? one.txt")
    (fleet.repo / "one.txt").unlink()
    fleet.git("update-ref", "CHERRY_PICK_HEAD", "HEAD")
    refusal = fleet.cli("merge", tasks["one"], code=1).stderr
    assert f"unfinished cherry-pick. Finish it with `git -C {fleet.repo} cherry-pick --continue`" in refusal
    fleet.git("update-ref", "-d", "CHERRY_PICK_HEAD")
    assert tip(fleet) == start
    (fleet.repo / "untracked.txt").write_text("stays\n")

    said = fleet.cli("merge", tasks["one"]).stdout
    assert "fast-forward" in said
    assert fleet.git("status", "--short") == "M README.md\n?? untracked.txt", "F12: git itself would merge it"
    assert (fleet.repo / "README.md").read_text() == "mine, uncommitted\n"
    fleet.git("checkout", "--quiet", "README.md")
    assert tip(fleet) == tip(fleet, f"holdfast/{tasks['one']}")
    assert (fleet.repo / "one.txt").read_text() == "one\n"
    assert fleet.git("status", "--short") == "?? untracked.txt"
    assert merged("one").how == "already there"
    assert fleet.git("log", "-1", "--format=%s%n%b").startswith("one\nLeft uncommitted by the agent; committed by")
    assert fleet.git("log", "-1", "--format=%(trailers:key=Holdfast-Task,valueonly)") == tasks["one"]

    (row,) = fleet.json("merge", tasks["two"])
    assert (row["how"], row["into"], row["commit"]) == ("merge commit", "main", tip(fleet))
    parents = fleet.git("log", "-1", "--format=%P %an").split(" ", 2)
    assert parents[1:] == [tip(fleet, f"holdfast/{tasks['two']}"), "Tess Tester"]
    assert (fleet.repo / "two.txt").read_text() == "two\n"
    assert fleet.git("status", "--short") == "?? untracked.txt"
    assert fleet.events(tasks["two"])[-1]["kind"] == "branch.merged"

    before = (tip(fleet), fleet.git("status", "--short"), fleet.git("count-objects"))
    refusal = fleet.cli("merge", tasks["clash"], code=1).stderr
    assert "one.txt" in refusal
    assert "Nothing was changed" in refusal
    assert before[:2] == (tip(fleet), fleet.git("status", "--short"))

    fleet.git("branch", "release", start)
    merged("clash", "release", no_ff=True)  # not checked out anywhere
    assert fleet.git("log", "-1", "--format=%s", "release") == "Merge: clash"
    trailer = "--format=%(trailers:key=Holdfast-Task,valueonly)"
    assert fleet.git("log", "-1", trailer, "release") == tasks["clash"]
    fleet.git("branch", "squashed", start)
    squash(fleet, tasks["kept"], trailer)
    assert fleet.file_on_branch("release", "one.txt") == "theirs"
    assert (fleet.repo / "one.txt").read_text() == "one\n"
    with pytest.raises(NotFound):
        merged("nothing")
    with pytest.raises(UsageError):
        merged("one", "nowhere")


def squash(fleet: Fleet, task_id: str, trailer: str) -> None:
    """F12: one commit with the person's words and the task's trailer; a second squash changes nothing."""
    words = ("merge", task_id, "--into", "squashed", "--squash", "-m", "Keep it\n\nFor good.")
    before, one = tip(fleet, "squashed"), fleet.json(*words)[0]
    assert (one["how"], one["commit"]) == ("squash", tip(fleet, "squashed"))
    assert fleet.git("log", "--format=%P %s", f"{before}..squashed") == f"{before} Keep it"
    assert fleet.git("log", "-1", "--format=%b", "squashed").startswith("For good.\n\nHoldfast-Task:")
    assert fleet.git("log", "-1", trailer, "squashed") == task_id
    assert fleet.git("show", "squashed:k.txt") == "k"
    assert fleet.json(*words)[0]["how"] == "already there"
    rows = {row["task"]: row["merged_into"] for row in fleet.json("branches")}
    assert rows[task_id] == "squashed"
    fleet.git("branch", "--quiet", "-f", "squashed", before)
    rows = {row["task"]: row["merged_into"] for row in fleet.json("branches")}
    assert rows[task_id] is None, "that commit is gone from the branch"
    assert "--squash" in fleet.cli(*words, "--no-ff", code=2).stderr
    assert "is empty" in fleet.cli("merge", task_id, "-m", " ", code=2).stderr
    fleet.git("branch", "--quiet", "-D", "squashed")


def killed_while_merging(fleet: Fleet, task_id: str) -> None:
    """Killed at its points and at any instant, alone or with its group: old or new commit, a clean checkout; and again
    works. `HOLDFAST_FUZZ_MERGES=50` kills it fifty times, from its start to its end."""
    start, end = tip(fleet), tip(fleet, f"holdfast/{task_id}")
    points = ("merge.moved:1:kill", "merge.checkout:1:kill", "")
    span = 0.0  # of a whole one
    for number in range(len(points) + KILLS):
        env = {"HOLDFAST_FAULT": points[number] if number < len(points) else ""}
        began = time.monotonic()
        with fleet.start(
            "merge", task_id, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, session=True
        ) as merging:
            if number >= len(points):
                time.sleep(span * (number - len(points) + 0.5) / KILLS)
                (os.killpg if number % 2 else os.kill)(merging.pid, signal.SIGKILL)
        span = time.monotonic() - began if number == len(points) - 1 else span
        assert merging.returncode in (-signal.SIGKILL, 0)
        wait_until(lambda: not processes_of(fleet.repo), "git has come to its end")
        assert fleet.git("status", "--short") == ""
        assert not (fleet.repo / ".git" / "index.lock").exists()
        assert tip(fleet) in (start, end)
        merge_here(fleet, task_id)
        if number == 0:  # it was merged, and nobody had been told
            assert fleet.kinds(task_id).count("branch.merged") == 1
        assert tip(fleet) == end
        assert len(list((fleet.repo / "d").iterdir())) == 300
        fleet.git("reset", "--quiet", "--hard", start)


def proposed(fleet: Fleet, task_id: str) -> None:
    """Through `gh` where it is installed, else by hand."""
    remote = fleet.root / "remote.git"
    fleet.git("init", "--quiet", "--bare", str(remote))
    fleet.git("remote", "add", "origin", str(remote))
    branch = f"holdfast/{task_id}"
    tools = fleet.root / "tools"
    tools.mkdir()
    for name in ("git", "sh"):
        (tools / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    without = fleet.cli("pr", task_id, env={"PATH": str(tools)})
    assert without.stdout == f"origin/{branch}\n"
    assert f"Pushing {branch} to {remote}" in without.stderr
    assert fleet.git("rev-parse", branch, cwd=remote) == tip(fleet, branch)
    fleet.git("push", "--quiet", "origin", f":{branch}")
    (tools / "gh").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {fleet.root}/said\nread code < {fleet.root}/code; exit $code\n'
    )
    (tools / "gh").chmod(0o755)
    (fleet.root / "code").write_text("1")
    assert "is pushed, but" in fleet.cli("pr", task_id, code=1, env={"PATH": str(tools)}).stderr
    (fleet.root / "code").write_text("0")
    fleet.cli("pr", task_id, "--draft", env={"PATH": str(tools)})
    words = (fleet.root / "said").read_text().splitlines()
    assert words[:8] == ["pr", "create", "--head", branch, "--base", "main", "--title", "clash"]
    assert words[-1] == "--draft"
    assert fleet.git("rev-parse", branch, cwd=remote) == tip(fleet, branch)


def pruned(fleet: Fleet, tasks: dict[str, str]) -> None:
    """Merged ones; unmerged ones only when asked, saved first; never of a living task, in use, or of others."""
    fleet.git("worktree", "add", "--quiet", str(fleet.root / "theirs"), f"holdfast/{tasks['many']}")
    write = {"write": {"path": "p.txt", "text": "p"}}
    paused = fleet.add_scenario(write, {"commit": "p"}, {"limit": {"kind": "rate", "for": "1h"}})
    fleet.wait_state(paused, "paused")
    with pytest.raises(Conflict):
        merge_here(fleet, paused)
    fleet.git("branch", "holdfast/mine", "main")
    fleet.git("branch", "--quiet", "-D", "release")  # so that nothing but its own branch has what clashed
    everything = fleet.branches()
    rows = {row["branch"]: row for row in fleet.json("branches")}
    assert rows[f"holdfast/{tasks['one']}"]["merged_into"] == "main"
    assert rows[f"holdfast/{tasks['clash']}"]["merged_into"] is None  # its copy on the remote is no merge
    assert rows["holdfast/mine"]["stays"] == "no task of this home made it"
    assert rows[f"holdfast/{tasks['kept']}"]["stays"] == "its workspace is preserved"
    assert rows[f"holdfast/{paused}"]["stays"] == "its task is paused"
    assert "checked out" in rows[f"holdfast/{tasks['many']}"]["stays"]
    assert f"holdfast/{tasks['one']} " in fleet.cli("branches", "prune", "--dry-run").stdout
    assert fleet.branches() == everything
    fleet.cli("branches", "prune", "--merged")
    assert set(everything) - set(fleet.branches()) == {f"holdfast/{tasks[name]}" for name in ("one", "two")}
    assert fleet.show(tasks["one"])["branch"] is None

    ended = {tasks[name]: tip(fleet, f"holdfast/{tasks[name]}") for name in ("clash", "dirty")}
    fleet.git("branch", "holder", f"holdfast/{tasks['clash']}")
    with fleet.as_its_user():
        (held,) = [one for one in list_branches(Queries(str(fleet.home))) if one.task == tasks["clash"]]
        assert held.merged_into == "holder"
        fleet.git("branch", "--quiet", "-D", "holder")  # while others were pruned: nothing else has it any more
        assert remove_branch(str(fleet.home), held)
    assert fleet.show(tasks["clash"])["salvages"]
    fleet.cli("branches", "prune", "--all-ended")
    left = {f"holdfast/{name}" for name in (tasks["kept"], tasks["many"], paused, "mine")}
    assert set(fleet.branches()) == left
    for task_id, commit_id in ended.items():
        restore_branch(str(fleet.home), fleet.show(task_id)["salvages"][-1], f"back-{task_id}", staged=False)
        assert fleet.git("merge-base", "--is-ancestor", commit_id, f"back-{task_id}", check=True) == ""
    assert fleet.file_on_branch(f"back-{tasks['dirty']}", "dirty.txt") == "more"
    assert fleet.file_on_branch(f"back-{tasks['clash']}", "one.txt") == "theirs"
    fleet.cli("cancel", paused)
    fleet.wait_clean()
    fleet.doctor()


def test_a_merge_without_merge_tree(fleet: Fleet) -> None:
    """git before 2.38: computed in a scratch clone; the same results and the same refusals."""
    from holdfast.workspaces.git.merge import MergeRequest, _merge_in_clone, _merge_tree

    for name, script in (("a", "echo a > a.txt"), ("b", "echo b > b.txt"), ("c", "echo c > a.txt")):
        fleet.git("switch", "--quiet", "-c", name, "main")
        subprocess.run(["sh", "-c", script], cwd=fleet.repo, check=True)
        fleet.git("add", ".")
        fleet.git("commit", "--quiet", "-m", name)
    fleet.git("switch", "--quiet", "main")
    repo = str(fleet.repo)
    fleet.home.mkdir()
    plan = MergeRequest(repo=repo, source="a", source_tip=tip(fleet, "a"), target="b", target_tip=tip(fleet, "b"))
    assert _merge_in_clone(plan, str(fleet.home)) == _merge_tree(plan)
    assert list((fleet.home / "scratch").iterdir()) == []
    clash = MergeRequest(repo=repo, source="a", source_tip=tip(fleet, "a"), target="c", target_tip=tip(fleet, "c"))
    with pytest.raises(Refused, match=r"changed the same places: a\.txt"):
        _merge_tree(clash)
    with pytest.raises(Refused, match=r"changed the same places: a\.txt"):
        _merge_in_clone(clash, str(fleet.home))


@pytest.mark.parametrize(
    ("url", "page"),
    [
        ("https://tess:secret@github.com/o/r.git", "https://github.com/o/r/compare/main...holdfast/7f3a?expand=1"),
        ("git@github.com:o/r", "https://github.com/o/r/compare/main...holdfast/7f3a?expand=1"),
        ("ssh://git@github.example.org:2222/o/r.git/", "https://github.example.org/o/r/compare/main...holdfast/7f3a"),
        (
            "git@gitlab.com:group/sub/r.git",
            "https://gitlab.com/group/sub/r/-/merge_requests/new?merge_request%5Bsource",
        ),
        ("https://codeberg.org/o/r.git", None),
        ("/srv/git/github.com/r.git", None),
        ("../github.com:o/r", None),
    ],
)
def test_the_page_on_which_a_person_opens_a_pull_request(fleet: Fleet, url: str, page: str | None) -> None:
    """F12: of GitHub and GitLab, by the address of the remote; never with a login."""
    fleet.git("remote", "add", "origin", url)
    proposal = PullRequest(
        repo=str(fleet.repo), remote="origin", branch="holdfast/7f3a", base="main", title="t", body="b"
    )
    found = proposal.compare_page
    assert found is None if page is None else found is not None and found.startswith(page), found
    assert "secret" not in str(found)


def test_commits_have_the_identity_of_the_shell_that_added_the_task(fleet: Fleet) -> None:
    """GIT_AUTHOR_* and GIT_COMMITTER_* of `run`: in commits of the agent, in leftovers, and in a merge commit."""
    (fleet.root / "user" / ".gitconfig").unlink()
    ada = {
        f"GIT_{who}_{what}": f"{who.title()} {what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    script = "echo a > a; git add a; git commit -qm 'by the agent'; echo b >> b"
    fleet.cli("run", "Add a and b", "--", "sh", "-c", script, env=ada)
    [task] = fleet.json("ps", "--all", "--json")
    fleet.cli("merge", task["id"], "--no-ff", env=ada)
    form = "--format=%an %ae, %cn %ce: %s"
    who = "Author NAME Author EMAIL, Committer NAME Committer EMAIL"
    assert fleet.git("log", form, f"{task['base_commit']}..main").splitlines() == [
        f"{who}: Merge: Add a and b",
        f"{who}: Add a and b",
        f"{who}: by the agent",
    ]
    fleet.cli("send", task["id"], "Add a test for it")
    fleet.cli("wait", task["id"])
    assert fleet.git("log", "-1", "--format=%s", task["branch"]) == "Add a test for it", "not the same subject again"
    fleet.cli("run", "Add c", "--", "sh", "-c", "echo c > c")
    assert fleet.git("log", "-1", "--format=%an", "--branches", "--grep=Add c") == "Holdfast", "none is known here"
    fleet.cli("down")


def test_why_sees_what_was_merged_by_hand(fleet: Fleet) -> None:
    """Issue 19, 8: by git, as no event tells of it. A later round of the task is not merged by that."""
    fleet.up()
    task = fleet.queue("echo $HOLDFAST_RUN_NUMBER >> a.txt; git add -A; git commit -qm work")
    branch = fleet.wait_state(task, "completed")["branch"]
    fleet.wait_clean()
    offered, there = f"`holdfast merge {task}` merges it", "and main has all of it"
    assert offered in (said := fleet.cli("why", task).stdout)
    assert there not in said
    fleet.git("merge", "--no-ff", "-qm", "by hand", branch)
    assert there in (said := fleet.cli("why", task).stdout)
    assert offered not in said
    assert "`holdfast branches prune --merged` deletes the branch" in said
    fleet.cli("send", task, "once more")
    wait_until(lambda: len(fleet.show(task)["runs"]) == 2, "the message begins a second run")
    fleet.wait_state(task, "completed")
    fleet.wait_clean()
    assert offered in (said := fleet.cli("why", task).stdout)
    assert there not in said
