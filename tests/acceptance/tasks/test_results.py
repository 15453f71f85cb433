"""Results from outside: what agents answered and changed, shown, exported, and forgotten with their task."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

from tests.acceptance.home.test_retention import finish
from tests.fleet import Fleet


def test_every_task_has_a_result_and_a_report(fleet: Fleet) -> None:
    """Issue 8, results: answer, files and commit of tasks without a workflow; controls of agents reach no terminal."""
    good = fleet.add(
        "Write the notes",
        "--scenario",
        fleet.scenario(
            {"say": "I look around"},
            {"tool": {"name": "Bash", "input": "ls", "for": "1ms"}},
            {"write": {"path": "notes.txt", "text": "notes\n"}},
            {"print": "Done: \x1b[31mnotes.txt\x1b[0m\nVERDICT: approve"},
            {"usage": {"input": 1200, "output": 30, "cost_usd": 0.02}},
        ),
    )
    bad = fleet.add("Break", command=("sh", "-c", "echo half > half.txt; echo '```'; echo '<b>'; exit 3"))
    finish(fleet, env={"HOLDFAST_RETRY_MAX": "0"})
    waiting = fleet.add("Later", "--delay", "9h", command=("true",))

    [found] = fleet.json("show", good, "--results")
    [stage] = found["stages"]
    run = fleet.show(good)["runs"][-1]
    assert (found["task"], found["state"], found["workflow"], found["members"]) == (good, "completed", None, [])
    assert list(stage) == [
        "name", "visit", "attempt", "member", "agent", "outcome", "reason", "ruling", "passed", "text",
        "files", "changed", "commit", "gate", "started_at", "ended_at", "run",
    ]  # fmt: skip
    assert (stage["name"], stage["outcome"], stage["passed"], stage["run"]) == ("work", "completed", True, run["id"])
    assert stage["text"] == "Done: \x1b[31mnotes.txt\x1b[0m\nVERDICT: approve"  # exact for programs …
    assert stage["files"] == ["notes.txt"]
    assert stage["commit"] == fleet.git("rev-parse", f"holdfast/{good}")
    assert (stage["started_at"], stage["ended_at"]) == (run["started_at"], run["ended_at"])
    shown = fleet.cli("show", good, "--results").stdout
    assert "\x1b" not in shown  # … and harmless for people
    assert "  Done: notes.txt\n  VERDICT: approve\n  changed notes.txt\n" in shown

    [failed] = fleet.json("show", bad, "--results")[0]["stages"]
    assert (failed["outcome"], failed["passed"], failed["files"]) == ("failed", False, ["half.txt"])
    assert failed["text"] == "```\n<b>"
    assert "No stage has ended yet" in fleet.cli("show", waiting, "--results").stdout

    text = fleet.cli("report", good).stdout
    assert text.startswith("# Write the notes\n")
    for wanted in ("> Done: notes.txt", "1 200 tokens in, 30 out, $0.0200", "- `notes.txt`", f"`holdfast/{good}`"):
        assert wanted in text
    target = fleet.root / "report.md"
    fleet.cli("report", bad, "--output", target)
    assert "````\n```\n<b>\n````" in target.read_text()
    assert "It failed" not in target.read_text().replace("**failed**", "")
    refused = fleet.cli("report", bad, "-o", fleet.root / "no" / "where", code=2)
    assert "cannot be written" in refused.stderr
    exported = json.loads(fleet.cli("report", good, "--json").stdout)
    assert (exported["files"], exported["runs"], exported["stages"]) == (["notes.txt"], 1, [stage])
    assert "No stage has ended yet" in fleet.cli("report", waiting).stdout

    # A retry begins again: what an earlier generation left is kept, but not this one's.
    fleet.cli("cancel", waiting)
    fleet.cli("retry", bad)
    assert fleet.json("show", bad, "--results")[0]["stages"] == []
    finish(fleet, env={"HOLDFAST_RETRY_MAX": "0"})
    assert len(fleet.json("show", bad, "--results")[0]["stages"]) == 1
    with closing(sqlite3.connect(fleet.home / "holdfast.db")) as database:
        kept = database.execute("SELECT number, generation FROM results WHERE task_id = ? ORDER BY 1", (bad,))
        assert kept.fetchall() == [(1, 0), (2, 1)]
