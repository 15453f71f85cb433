"""`holdfast salvage`, from outside: saved work is listed, looked into, brought back, and let go in its time."""

from __future__ import annotations

import signal
import subprocess

from tests.fleet import Fleet, wait_until

MESS = (
    "printf 'staged\\n' > both.txt; git add both.txt; printf 'and changed\\r\\n' > both.txt; "
    "printf 'new' > 'n w.txt'; rm README.md; ln -s nowhere link; exit 3"
)
POINTS = ["tx.salvage.drop", "reclaim.repack", "tx.salvage.forget"]
NOW = {"HOLDFAST_SALVAGE_KEEP": "1ms"}


def failed(fleet: Fleet) -> str:
    """A task that failed and left something of everything."""
    task_id = fleet.add("mess", command=("sh", "-c", MESS))
    assert fleet.up("--idle-exit", "0s").wait(timeout=60) == 0, fleet.log()
    return task_id


def shadow(fleet: Fleet, *arguments: str, check: bool = True) -> str:
    [path] = (fleet.home / "shadows").glob("*.git")
    return fleet.git(*arguments, cwd=path, check=check)


def test_saved_work_is_listed_shown_and_brought_back(fleet: Fleet) -> None:
    """R-TREE-13: as a branch, as files byte for byte, as a patch; staged content too; nothing is ever overwritten."""
    task_id = failed(fleet)
    [row] = fleet.json("salvage", "list")
    assert (row["task"], row["files"], row["partial"], row["details"]["index"]) == (task_id, 4, False, "saved")
    assert row["size"] == len("and changed\r\n") + len("new") + len("nowhere")
    assert row["expires_at"] > row["created_at"]
    assert row["id"] in fleet.cli("salvage", "list").stdout

    [shown] = fleet.json("salvage", "show", row["id"][:6])
    assert {one["path"]: one["status"] for one in shown["changed"]} == {
        "README.md": "D", "both.txt": "A", "link": "A", "n w.txt": "A"
    }  # fmt: skip
    said = fleet.cli("salvage", "show", task_id).stdout
    assert "deleted       README.md" in said
    assert "--patch --staged" in said
    patch = fleet.cli("salvage", "show", task_id, "--patch").stdout
    subprocess.run(["git", "apply", "--check"], input=patch.encode(), cwd=fleet.repo, env=fleet.env, check=True)
    assert "+staged" in fleet.cli("salvage", "show", task_id, "--patch", "--staged").stdout

    fleet.cli("salvage", "restore", task_id, "--branch", "rescued")
    assert fleet.file_on_branch("rescued", "n w.txt") == "new"
    fleet.cli("salvage", "restore", task_id, "--branch", "index", "--staged")
    assert fleet.file_on_branch("index", "both.txt") == "staged"
    place = fleet.root / "place"
    fleet.cli("salvage", "restore", row["id"], "--to", place)
    assert (place / "both.txt").read_bytes() == b"and changed\r\n"
    assert (place / "link").is_symlink()
    assert sorted(item.name for item in place.iterdir()) == ["both.txt", "link", "n w.txt", "src"]
    assert [item.name for item in fleet.root.iterdir() if "holdfast-restore" in item.name] == []

    refusals: list[tuple[tuple[object, ...], int, str]] = [
        (("restore", task_id, "--to", place), 4, "not an empty directory"),
        (("restore", task_id, "--branch", "rescued"), 4, "exists"),
        (("restore", task_id), 2, "--to DIR"),
        (("restore", task_id, "--to", fleet.root / "none" / "x"), 2, "does not exist"),
        (("show", "zzzz"), 3, "Neither a salvage nor a task"),
        (("list", "--yes"), 2, "--yes is for `salvage prune`"),
        (("prune", task_id), 2, "Add --yes"),
    ]
    for words, code, text in refusals:
        done = fleet.cli("salvage", *words, code=code)
        assert text in done.stderr, (words, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1

    assert fleet.json("salvage", "prune", row["id"], "--dry-run")[0]["dropped"] is False
    fleet.cli("salvage", "prune", "--task", task_id, "--yes")
    assert fleet.cli("salvage", "list").stdout == "Nothing was salvaged.\n"
    assert shadow(fleet, "for-each-ref", "refs/salvage") == ""
    assert shadow(fleet, "cat-file", "-t", row["commit"], check=False) == ""  # its room is given back
    assert "salvage.dropped" in fleet.kinds(task_id)
    assert fleet.file_on_branch("rescued", "n w.txt") == "new"


def test_expired_work_goes_killed_at_any_step(fleet: Fleet) -> None:
    """`salvage.keep`: marked, its commit, its room, its row; a supervisor that is killed in between hurts nothing, and
    the next one finishes."""
    task_id = failed(fleet)
    [saved] = fleet.json("salvage", "list")
    for point in POINTS:
        process = fleet.up(env={**NOW, "HOLDFAST_FAULT": f"{point}:1:kill"})
        assert process.wait(timeout=60) == -signal.SIGKILL, point
    process = fleet.up(env=NOW)
    wait_until(lambda: not rows_left(fleet), "every row is gone")
    fleet.cli("down")
    assert process.wait(timeout=60) == 0
    assert fleet.json("salvage", "list") == []
    assert shadow(fleet, "cat-file", "-t", saved["commit"], check=False) == ""
    shadow(fleet, "fsck", "--strict")
    assert fleet.kinds(task_id).count("salvage.dropped") == 1
    assert "All well." in fleet.doctor()


def rows_left(fleet: Fleet) -> int:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(f"file:{fleet.home / 'holdfast.db'}?mode=ro", uri=True)) as database:
        return int(database.execute("SELECT count(*) FROM salvages").fetchone()[0])


def test_work_that_an_unfinished_task_may_need_does_not_expire(fleet: Fleet) -> None:
    task_id = failed(fleet)
    fleet.cli("retry", task_id)
    refused = fleet.cli("salvage", "prune", task_id, "--yes", code=4)
    assert "may continue with" in refused.stderr
    assert fleet.cli("salvage", "prune", env=NOW).stdout == "Nothing to drop.\n"
    assert len(fleet.show(task_id)["salvages"]) == 1
