"""Issues of a tracker in the matrix: one whose agent crashes once, one that fails, one that a person closes then."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.harness import tracker_stand_in
from tests.harness.matrix.steps import RAN, insist, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands
from holdfast.core.tasks.trackers import Issue, issue_prompt

_ISSUES = {"m-crash": "crash once", "m-fail": "fail", "m-shut": "be closed meanwhile"}
_SCRIPT = (
    RAN
    + 'case "$(cat)" in crash*) [ -e $WORLD/killed ] || { touch $WORLD/killed; kill -9 $$; };; fail*) exit 1;; esac\n'
    + write("done.txt", "done")
)


def prompt(issue: str) -> str:
    return issue_prompt(Issue(id=issue, title=_ISSUES[issue], status="open", assignee=None))


def issues(world: World) -> None:
    folder = world.repo / ".beads"
    folder.mkdir()
    (folder / ".gitignore").write_text("*\n")
    found = [
        {"id": issue, "title": title, "status": "open", "priority": number, "issue_type": "task"}
        for number, (issue, title) in enumerate(_ISSUES.items())
    ]
    closed = {"claim": [{"id": "m-shut", "status": "closed"}]}
    (folder / "standin.json").write_text(json.dumps({"issues": found, "how": {"before": closed}}))
    tool = [sys.executable, "-I", "-S", str(Path(tracker_stand_in.__file__))]
    world.configure(
        f'agent = "command"\n[command]\nargv = {json.dumps(["sh", "-c", _SCRIPT])}\n'
        f'[tracker]\nkind = "beads"\npoll = "50ms"\ncommand = {json.dumps(tool)}\n'
    )
    repo = str(world.repo)
    insist(world, "init", lambda: Commands(str(world.home)).register(repo), lambda: False)
    up_to_the_end(world, "up")


def problems(world: World) -> list[str]:
    """What a tracker shows that should not be: a claim of ours that nobody works on, or a closed issue that is open."""
    read = json.loads((world.repo / ".beads" / "standin.json").read_text())["issues"]
    stands = {issue["id"]: (issue["status"], issue.get("assignee")) for issue in read}
    expected = {"m-crash": "closed", "m-fail": "open", "m-shut": "closed"}
    return [
        f"leaked: issue {issue} is {stands[issue]}, not {status}"
        for issue, status in expected.items()
        if stands[issue][0] != status or (status == "open" and stands[issue][1] is not None)
    ]
