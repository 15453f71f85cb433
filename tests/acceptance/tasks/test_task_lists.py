"""Lists of tasks from outside: all or nothing, each key once, whoever adds them, and told in words."""

from __future__ import annotations

import json
from typing import Any

from tests.acceptance.home.test_retention import AT_ONCE, finish, rows
from tests.fleet import Fleet

LIST = """\
# This week

- [ ] Write one.txt <!-- holdfast: key=one label.area=docs -->
- [x] Done before
- [ ] Write two.txt, after the first
      <!-- holdfast: key=two after=one priority=3 -->
- [ ] Fail <!-- holdfast: key=bad -->
- [ ] Plain words
- [ ] Plain   words
"""
WORK = ("sh", "-c", "read line; case $line in Fail*) exit 1;; esac; echo work > work.txt")


def take(fleet: Fleet, *words: object, code: int = 0) -> dict[str, Any]:
    done = fleet.cli("add", "--json", *words, "--", *WORK, code=code)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_checklist_becomes_tasks_once(fleet: Fleet) -> None:
    """Issue 8, intake: needs within the list, a second run adds nothing, a failed one is told with its retry."""
    path = fleet.root / "tasks.md"
    path.write_text(LIST)
    dry = take(fleet, "--from", path, "--dry-run")
    assert {row["key"] for row in dry["queued"]} >= {"one", "two", "bad"}
    assert {row["id"] for row in dry["queued"]} == {None}
    assert fleet.json("ps", "--all") == []

    first = fleet.cli("add", "--from", path, "--label", "week=46", "--", *WORK)
    assert "as a checklist: 5 task(s), 1 ticked one(s) skipped." in first.stderr
    assert "4 queued, 1 listed twice." in first.stderr
    ids = first.stdout.split()
    by_prompt = {row["prompt"].splitlines()[0]: row for row in fleet.json("ps", "--all")}
    assert set(by_prompt) == {"Write one.txt", "Write two.txt, after the first", "Fail", "Plain words"}
    one, two = by_prompt["Write one.txt"], by_prompt["Write two.txt, after the first"]
    assert (one["labels"], two["priority"]) == ({"week": "46", "area": "docs"}, 3)
    assert [need["id"] for need in fleet.show(two["id"])["needs"]] == [one["id"]]
    finish(fleet, env={"HOLDFAST_RETRY_MAX": "0"})
    assert fleet.show(two["id"])["state"] == "completed"

    again = fleet.cli("add", "--from", path, "--", *WORK)
    assert again.stdout == ""
    bad = by_prompt["Fail"]["id"]
    assert "0 queued, 4 already known (" in again.stderr
    assert all(task_id in again.stderr for task_id in ids)
    assert f"Task {bad} is failed: `holdfast retry {bad}` queues it again." in again.stderr
    path.write_text(LIST + "- [ ] New one <!-- holdfast: after=one -->\n")
    more = take(fleet, "--from", path)
    assert ([row["where"] for row in more["queued"]], len(more["known"])) == (["line 10"], 4)

    # A mistake anywhere: nothing is queued, and all of them are told.
    path.write_text(
        "- [ ] Good\n- [ ] a <!-- holdfast: agnet=x -->\n- [ ] b <!-- holdfast: after=bad -->\n"
        "- [ ] c <!-- holdfast: after=oen key=c -->\n- [ ] d <!-- holdfast: timeout=soon -->\n"
        "- [ ] e <!-- holdfast: acount=work -->\n"
    )
    refused = fleet.cli("add", "--from", path, "--", *WORK, code=2)
    assert refused.stdout == ""
    for wanted in (
        "line 2: 'agnet' is not an option of a task. Did you mean 'agent'?",
        f"line 3: it comes after 'bad', whose task {bad} is failed: `holdfast retry {bad}` first.",
        "line 4: it comes after 'oen', but no task has that key.",
        "line 5: 'timeout': 'soon' is not a duration",
        "line 6: 'acount' is not an option of a task. Did you mean 'account'?",
        "Nothing was queued: 5 mistake(s).",
    ):
        assert wanted in refused.stderr, refused.stderr
    assert len(fleet.json("ps", "--all")) == 5
    told = take(fleet, "--from", path, code=2)["mistakes"]
    assert [row["where"] for row in told] == ["line 2", "line 6", "line 3", "line 4", "line 5"]

    # Where two things could be meant, that is asked.
    path.write_text("Please do this:\n\n- [ ] first\n- [ ] second\n")
    assert "Choose --as checklist" in fleet.cli("add", "--from", path, "--", *WORK, code=2).stderr
    assert len(take(fleet, "--from", path, "--as", "checklist")["queued"]) == 2
    assert take(fleet, "--from", path, "--as", "prompt")["state"] == "queued"  # one task, as ever


def test_json_and_folders_and_two_at_once(fleet: Fleet) -> None:
    """Issue 8, intake: of processes that add the same list at the same moment, each key is added by one."""
    path = fleet.root / "tasks.jsonl"
    rows = [{"prompt": f"Do {n}", "key": f"k{n}", "after": [f"k{n - 1}"] if n else None} for n in range(30)]
    path.write_text("".join(json.dumps({k: v for k, v in row.items() if v}) + "\n" for row in rows))
    killed = fleet.cli("add", "--from", path, "--", *WORK, code=None, env={"HOLDFAST_FAULT": "tx.intake.take:7:kill"})
    assert killed.returncode == -9  # in the middle of the list: then there is nothing of it
    assert fleet.json("ps") == []
    racers = [fleet.start("add", "--from", path, "--json", "--", *WORK) for _ in range(3)]
    found = [json.loads(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sorted(row["key"] for each in found for row in each["queued"]) == sorted(f"k{n}" for n in range(30))
    assert all(len(each["queued"]) + len(each["known"]) == 30 for each in found)
    assert len(fleet.json("ps")) == 30

    folder = fleet.root / "prompts"
    folder.mkdir()
    (folder / "b.md").write_text("Do b\n<!-- holdfast: after=a,k29 -->\n")
    (folder / "a.txt").write_text("Do a\n")
    (folder / "notes.pdf").write_bytes(b"\0")
    taken = take(fleet, "--from", folder)
    assert (taken["format"], [row["key"] for row in taken["queued"]]) == ("folder", ["a", "b"])
    by_key = {row["key"]: row["id"] for each in (*found, taken) for row in each["queued"]}
    needs = {need["id"] for need in fleet.show(by_key["b"])["needs"]}
    assert needs == {by_key["a"], by_key["k29"]}
    (folder / "bad.md").write_bytes(b"\xff\0")
    (folder / "out.md").symlink_to("/etc/passwd")
    refusal = fleet.cli("add", "--from", folder, "--", *WORK, code=2).stderr
    assert "out.md is a link to a file outside the folder" in refusal
    assert "root:" not in refusal
    (folder / "out.md").unlink()
    assert "not text" in fleet.cli("add", "--from", folder, "--", *WORK, code=2).stderr
    other = fleet.make_repo(fleet.root / "other")
    assert len(take(fleet, "--from", path, "--repo", other)["queued"]) == 30  # keys are each repository's own

    for words, why in (
        (("--from", "/dev/null", "--as", "jsonl"), "not a plain file"),
        (("--from", fleet.root / "nowhere.jsonl"), "cannot be read"),
        (("--as", "jsonl", "x"), "--as belongs to --from"),
        (("--dry-run", "x"), "--dry-run belongs to --from"),
    ):
        assert why in fleet.cli("add", *words, "--", *WORK, code=2).stderr


def test_what_was_taken_in_outlives_its_task_and_goes_with_its_repository(fleet: Fleet) -> None:
    """A task that is forgotten, with its results, does not come back with the next reading of its list."""
    path = fleet.root / "list.jsonl"
    path.write_text('{"prompt": "nothing"}\n')

    def add() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(fleet.cli("add", "--json", "--from", path, "--", "true").stdout)
        return found

    [task] = add()["queued"]
    finish(fleet)
    assert rows(fleet, "SELECT count(*) FROM results") == [(1,)]
    finish(fleet, AT_ONCE)
    assert fleet.json("ps", "--all") == []
    assert rows(fleet, "SELECT count(*) FROM results") == [(0,)]
    again = add()
    assert again["queued"] == []
    assert again["known"] == [{"id": task["id"], "key": task["key"], "where": "line 1", "state": None}]
    assert f"already known ({task['id']})" in fleet.cli("add", "--from", path, "--", "true").stderr
    fleet.cli("purge", "--repo", fleet.repo, "--yes")
    assert rows(fleet, "SELECT count(*) FROM intake") == [(0,)]
    assert len(add()["queued"]) == 1
