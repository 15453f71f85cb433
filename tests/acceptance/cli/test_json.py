"""`--json` as a script sees it: a number of the format in each object, and a schema for each output."""

from __future__ import annotations

import json

import jsonschema
import pytest
from tests.fleet import Fleet


def test_an_output_is_what_its_schema_says(fleet: Fleet) -> None:
    """Issue 20, item 6: the schema that the installed package prints is the one that its output keeps."""
    fleet.add("look", command=("true",))
    schema = json.loads(fleet.cli("help", "--schema", "ps").stdout)
    (line,) = fleet.cli("ps", "--json").stdout.splitlines()
    row = json.loads(line)
    jsonschema.validate(row, schema)
    assert row["schema"] == 1
    for broken in ({**row, "state": 7}, {**row, "schema": 2}, {key: row[key] for key in row if key != "prompt"}):
        assert not jsonschema.Draft202012Validator(schema).is_valid(broken)
    jsonschema.validate({**row, "tomorrow": 1}, schema)  # fields are only ever added


def test_the_schemas_are_found_from_the_help(fleet: Fleet) -> None:
    every = json.loads(fleet.cli("help", "--schema").stdout)
    page = fleet.cli("help", "json").stdout
    assert all(f"| `{name}` |" in page for name in every["outputs"])
    assert "holdfast help --schema" in page
    refused = fleet.cli("help", "--schema", "alert ack", code=3).stderr
    assert "Did you mean `holdfast help --schema 'alerts ack'`?" in refused


def test_commands_that_act(fleet: Fleet) -> None:
    """Issue 20, item 6: each prints one object (Fleet.cli checks it against its schema), and no sentence."""
    (made,) = fleet.json("init", "--gate", "true", "--permission", "edit")
    assert (made["repo"], made["gate"], made["permission"], made["trusted"]) == (str(fleet.repo), "true", "edit", True)
    assert any("Permissions: edit" in note for note in made["notes"])
    assert fleet.json("down") == [{"stopped": False, "pid": None, "mode": "graceful"}]
    task = fleet.add("look", "--delay", "1h", "--no-gate", command=("true",))
    (paused,) = fleet.json("pause", task)
    assert (paused["id"], paused["state"], paused["pause_reason"]) == (task, "paused", "operator")
    (resumed,) = fleet.json("resume", task)
    assert (resumed["id"], resumed["state"]) == (task, "queued")
    (cancelled,) = fleet.json("cancel", task, "--why", "too late")
    assert (cancelled["state"], cancelled["subtasks"]) == ("cancelled", [])
    assert fleet.json("retry", task, "--fresh") == [
        {"id": task, "state": "queued", "reason": "queued again, from its base"}
    ]
    fleet.cli("up", "--json", code=2)
    (started,) = fleet.json("up", "--detach")
    assert (started["pid"], started["started"], started["holds"]) == (fleet.supervisor_pid(), True, [])
    (again,) = fleet.json("up", "--detach")
    assert (again["pid"], again["started"]) == (started["pid"], False)
    assert again["note"]
    assert fleet.json("cancel", task, "--no-wait")[0]["id"] == task
    assert fleet.json("down", "--now") == [{"stopped": True, "pid": started["pid"], "mode": "now"}]


def test_the_home_as_objects(fleet: Fleet) -> None:
    """`backup`, `restore` and `purge` print one object each, and ask nothing without a terminal."""
    fleet.add("look", command=("true",))
    (copy,) = fleet.json("backup")
    refused = fleet.cli("restore", copy["path"], "--json", code=1)
    assert json.loads(refused.stderr.splitlines()[-1])["error"] == "Refused"
    (restored,) = fleet.json("restore", copy["path"], "--yes")
    assert (restored["path"], restored["tasks"]) == (copy["path"], {"queued": 1})
    (task,) = fleet.json("ps")
    fleet.cli("cancel", task["id"])
    (planned,) = fleet.json("purge", "--dry-run")
    assert planned["dry_run"]
    assert any("1 cancelled" in line for line in planned["found"])
    (gone,) = fleet.json("purge", "--yes")
    assert (gone["home"], gone["repo"], gone["kept"]) == (str(fleet.home), None, [])
    assert fleet.json("purge", "--yes")[0]["found"] == []


def test_a_pull_request_as_an_object(fleet: Fleet) -> None:
    """What `gh` prints is a field of the object, and not a line of its own."""
    fleet.up()
    task = fleet.add("write", command=("sh", "-c", "echo hi > hi.txt"))
    fleet.wait_state(task, "completed")
    bare = fleet.root / "origin.git"
    fleet.git("init", "--bare", "--quiet", str(bare))
    fleet.git("remote", "add", "origin", str(bare))
    (pushed,) = fleet.json("pr", task, "--push-only")
    assert (pushed["task"], pushed["opened"], pushed["urls"]) == (task, False, [str(bare)])
    tools = fleet.root / "tools"
    tools.mkdir()
    (tools / "gh").write_text("#!/bin/sh\necho https://example.org/pull/7\n")
    (tools / "gh").chmod(0o755)
    fleet.env["PATH"] = f"{tools}:{fleet.env['PATH']}"
    (opened,) = fleet.json("pr", task)
    assert (opened["opened"], opened["page"]) == (True, "https://example.org/pull/7")
    assert fleet.cli("pr", task).stdout == "https://example.org/pull/7\n"


@pytest.mark.parametrize(
    ("words", "error", "code", "then"),
    [
        (("show", "zz0000"), "NotFound", 3, "holdfast ps --all"),
        (("stats", "everything"), "UsageError", 2, "holdfast stats --help"),
        (("retry", "{task}"), "Conflict", 4, None),
        (("workspaces", "clean"), "UsageError", 2, "holdfast workspaces clean ID…"),
    ],
)
def test_an_error_is_an_object(fleet: Fleet, words: tuple[str, ...], error: str, code: int, then: str | None) -> None:
    """Standard output stays empty; the last line of standard error has what a script needs."""
    task = fleet.add("look", command=("true",))
    done = fleet.cli(*(word.format(task=task) for word in words), "--json", code=code)
    assert done.stdout == ""
    row = json.loads(done.stderr.splitlines()[-1])
    assert (row["schema"], row["error"], row["exit_code"]) == (1, error, code)
    assert row["kept"]
    assert row["next"] == then or then is None
    assert row["next"].startswith("holdfast ")
    plain = fleet.cli(*(word.format(task=task) for word in words), code=code)
    assert plain.stderr == f"holdfast: {row['message']}\n"


def test_an_option_behind_the_dashes_is_the_agents(fleet: Fleet) -> None:
    refused = fleet.cli("add", "x", "--delay", "soon", "--", "agent", "--json", code=2)
    assert refused.stderr.startswith("holdfast: ")
