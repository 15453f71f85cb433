"""Tasks that work in a clone of their own, from outside."""

from __future__ import annotations

import subprocess

from tests.fleet import Fleet, wait_until


def test_a_clone_leaves_a_branch_or_a_salvage_and_nothing_else(fleet: Fleet) -> None:
    """R-CLEAN-05, R-TREE-13, R-TREE-05: an agent that ruins its own `.git` config and hooks harms nobody; what it
    committed is a branch of the user's repository, what it left is saved, even when its workspace is preserved."""
    fleet.up()
    spoil = (
        "git config core.hooksPath hooks; mkdir hooks; printf '#!/bin/sh\\ntouch /$HOME/canary\\n' > hooks/pre-commit; "
        "chmod +x hooks/pre-commit; git config core.fsmonitor 'touch /$HOME/canary'; "
    )
    work = "echo one > one; git add one; git -c core.hooksPath=x commit -qm one; echo two > two; "
    clone = ("--workspace", "clone")
    good = fleet.add("good", *clone, command=("sh", "-c", work + spoil))
    bad = fleet.add("bad", *clone, command=("sh", "-c", work + "exit 3"))
    kept = fleet.add("kept", *clone, "--preserve-on-failure", command=("sh", "-c", work + "exit 3"))
    for task in (good, bad, kept):
        fleet.wait_state(task, "completed", "failed")
    fleet.wait_clean()
    assert not (fleet.root / "user" / "canary").exists()
    assert sorted(fleet.branches()) == sorted(f"holdfast/{task}" for task in (good, bad, kept))
    assert [fleet.file_on_branch(f"holdfast/{task}", "one") for task in (good, bad, kept)] == ["one"] * 3
    assert fleet.file_on_branch(f"holdfast/{good}", "two") == "two"
    assert fleet.show(bad)["salvages"][-1]["files"] == 1
    preserved = fleet.show(kept)["workspace"]
    assert (preserved["strategy"], preserved["state"]) == ("clone", "preserved")
    assert fleet.git("status", "--porcelain") == ""
    assert fleet.worktrees() == []
    assert "+two" in fleet.cli("diff", good).stdout
    fleet.cli("workspaces", "clean", kept)
    wait_until(lambda: fleet.show(kept)["workspace"]["state"] == "gone", "the preserved clone is dropped")
    assert list((fleet.home / "workspaces").glob("*/*")) == []
    fleet.cli("doctor", "--invariants")


def test_a_repository_with_many_branches_and_tags_gets_its_work(fleet: Fleet) -> None:
    """The user's own branches and tags are not the agent's. Its work is a branch, and nothing of the clone stays."""
    head = fleet.git("rev-parse", "HEAD")
    lines = [f"create refs/{kind}/v{number} {head}\n" for kind in ("heads", "tags") for number in range(205)]
    subprocess.run(["git", "update-ref", "--stdin"], cwd=fleet.repo, input="".join(lines).encode(), check=True)
    fleet.up()
    work = "echo one > one; git add one; git commit -qm one; git branch aside HEAD~1; git tag mine"
    task = fleet.add("good", "--workspace", "clone", command=("sh", "-c", work))
    empty = fleet.add("empty", "--workspace", "clone", command=("sh", "-c", "exit 3"))
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    assert fleet.wait_state(empty, "completed", "failed")["salvages"] == [], "an empty salvage was made"
    fleet.wait_clean()
    assert fleet.branches() == [f"holdfast/{task}"]
    assert fleet.file_on_branch(f"holdfast/{task}", "one") == "one"
    assert f"Its work is on branch holdfast/{task}" in fleet.cli("why", task).stdout
    assert fleet.json("alerts") == []
    assert list((fleet.home / "workspaces").glob("*/*")) == []


def test_tags_on_files_and_directories_do_not_block_the_delivery(fleet: Fleet) -> None:
    """A branch cannot name a blob or a tree. They come as tags beside the task's branch."""
    fleet.up()
    work = (
        "echo one > one; git add one; git commit -qm one; git tag on-tree HEAD^{tree}; "
        "git tag on-blob $(echo blob | git hash-object -w --stdin); git tag -am note noted on-blob"
    )
    task = fleet.add("good", "--workspace", "clone", command=("sh", "-c", work))
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    fleet.wait_clean()
    assert fleet.json("alerts") == []
    assert fleet.file_on_branch(f"holdfast/{task}", "one") == "one"
    [tag] = [name for name in fleet.git("tag").splitlines() if "on-blob" in name]
    assert tag.startswith(f"holdfast/{task}-also/tags/on-blob-")
    assert fleet.git("cat-file", "blob", tag) == "blob"
    assert list((fleet.home / "workspaces").glob("*/*")) == []


def test_a_token_in_the_address_of_origin_reaches_neither_the_clone_nor_a_view(fleet: Fleet) -> None:
    """`https://TOKEN@host` has no password, so the token was left in (F8)."""
    token = "ghx_Tok3nAsUserName0123456789abcdef"
    fleet.git("config", "remote.origin.url", f"https://{token}@example.org/x/y.git")
    script = f"git config remote.origin.url; grep -r {token[:12]} .git; echo; cat {fleet.repo}/.git/config"
    task_id = fleet.add("x", "--workspace", "clone", command=("sh", "-c", script))
    fleet.cli("up", "--idle-exit", "0s")
    said = fleet.cli("logs", task_id).stdout
    assert said.startswith("https://example.org/x/y.git\n\n"), "what its clone has"
    assert "https://[redacted: a token]@example.org/x/y.git" in said, "what the user's own file has, and it can read"
    assert token not in said
