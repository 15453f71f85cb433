"""Both trackers give typed answers; beads, against the stand-in for `br`, never touches what is not ours."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.harness import tracker_stand_in
from tests.standin import StandIn

from holdfast.api.commands import check_prompt
from holdfast.base.text import is_text
from holdfast.core.tasks.trackers import LONGEST_BODY, Issue, issue_prompt
from holdfast.trackers.beads import BeadsTracker, parse_issues
from holdfast.trackers.builtin import NoTracker
from holdfast.trackers.port import ChangeDone, ChangeRefused, MissingIssue, OverwrittenChange, Tracker, UnknownAnswer

T = TypeVar("T")
US, ANN = "holdfast-here-1", "ann"


async def run(argv: Sequence[str], *, cwd: str, env: Mapping[str, str], timeout: float) -> tuple[int, bytes, bytes]:
    """The stand-in in this process, which costs nothing; acceptance tests run it as a command."""
    if argv[0] != "br":
        raise FileNotFoundError(2, "No such file or directory")
    if json.loads(Path(cwd, ".beads", "standin.json").read_text())["how"].get("slow", 0) > timeout:
        return 124, b"", b"timed out after all"
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            tracker_stand_in.main(list(argv[1:]), cwd, env)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, out.getvalue().encode(), err.getvalue().encode()


def now(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


@pytest.fixture
def standin(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


@pytest.fixture
def beads(standin: StandIn) -> BeadsTracker:
    return make(standin)


def make(standin: StandIn, *, timeout: float = 20.0, label: str = "") -> BeadsTracker:
    cwd = str(standin.folder.parent)
    return BeadsTracker(["br"], cwd=cwd, run=run, env={}, timeout=timeout, label=label, settling=0.0)


@pytest.fixture(params=["builtin", "beads"])
def tracker(request: pytest.FixtureRequest) -> Tracker:
    return NoTracker() if request.param == "builtin" else request.getfixturevalue("beads")


def test_what_is_not_there_is_missing_and_cannot_be_changed(tracker: Tracker) -> None:
    """R-CRASH-08: the contract that both adapters keep."""
    assert now(tracker.ready()) in ((), [])
    assert now(tracker.show("bd-none")) == MissingIssue()
    for answer in (tracker.claim("bd-none", US), tracker.release("bd-none", US), tracker.close("bd-none", US, "done")):
        assert isinstance(now(answer), ChangeRefused)


def test_ready_work_is_open_unassigned_and_somebodys_work(standin: StandIn, beads: BeadsTracker) -> None:
    """R-CRASH-08: from `ready --json`, whatever else an older tool lists there."""
    standin.add("bd-1", description="what", acceptance_criteria="when", priority=0, labels=["hold"])
    standin.add("bd-2", assignee=ANN)
    standin.add("bd-3", status="in_progress")
    standin.add("bd-4", issue_type="epic")
    standin.add("bd-5", blocked=True)
    ready = now(beads.ready())
    assert not isinstance(ready, UnknownAnswer)
    assert [issue.id for issue in ready] == ["bd-1"]
    assert (ready[0].description, ready[0].acceptance, ready[0].priority) == ("what", "when", 0)
    assert now(make(standin, label="other").ready()) == []
    standin.behave(plain_ready=True, no_actor=True)
    assert [issue.id for issue in now(beads.ready())] == ["bd-1"]  # type: ignore[union-attr]  # not Unknown: it would say so
    assert now(beads.claim("bd-1", US)) == ChangeDone(), "an old tool without --actor hears it from the environment"
    assert standin.stands("bd-1") == ("in_progress", US)


@pytest.mark.parametrize("shape", ["array", "object", "envelope"])
def test_a_claim_and_its_end_in_each_shape_of_answers(standin: StandIn, beads: BeadsTracker, shape: str) -> None:
    """R-CRASH-08: claimed, not claimed twice, released only by its holder, closed with its note."""
    standin.behave(shape=shape, huge=300_000)
    standin.add("bd-1")
    assert now(beads.claim("bd-1", US)) == ChangeDone()
    assert standin.stands("bd-1") == ("in_progress", US)
    assert now(beads.claim("bd-1", US)) == ChangeDone(), "after a crash: it is ours already"
    assert now(beads.claim("bd-1", "holdfast-there-2")) == ChangeRefused(f"{US} has it (in_progress)")
    assert now(beads.release("bd-1", "holdfast-there-2")) == ChangeRefused(f"{US} has it (in_progress)")
    assert now(beads.release("bd-1", US)) == ChangeDone()
    assert standin.stands("bd-1") == ("open", None)
    assert now(beads.release("bd-1", US)) == ChangeRefused("it is open", is_free=True)
    assert now(beads.claim("bd-1", US)) == ChangeDone()
    assert now(beads.close("bd-1", US, "on branch b")) == ChangeDone()
    assert standin.get("bd-1")["close_reason"] == "on branch b"
    for again in (beads.claim("bd-1", US), beads.release("bd-1", US), beads.close("bd-1", US, "again")):
        assert now(again) == ChangeRefused("it is closed", is_over=True)
    assert standin.stands("bd-1")[0] == "closed"
    assert now(beads.note("bd-1", US, "a word")) == ChangeDone()
    assert standin.get("bd-1")["comments"] == [{"author": US, "text": "a word"}]


def test_release_is_one_call_with_both_changes(standin: StandIn, beads: BeadsTracker) -> None:
    standin.add("bd-1", status="in_progress", assignee=US)
    now(beads.release("bd-1", US))
    writes = [call for call in standin.calls() if call[0] == "update"]
    assert [call[:6] for call in writes] == [["update", "bd-1", "--assignee", "", "--status", "open"]]


@pytest.mark.parametrize(
    "change", [{"assignee": ANN}, {"assignee": ANN, "status": "in_progress"}, {"status": "closed"}]
)
def test_a_change_between_look_and_release_is_put_back(
    standin: StandIn, beads: BeadsTracker, change: dict[str, str]
) -> None:
    """R-CRASH-08: a person takes over, or closes, in just that moment."""
    standin.add("bd-1", status="in_progress", assignee=US)
    standin.behave(before={"update": [{"id": "bd-1", **change}]})
    status, assignee = change.get("status", "in_progress"), change.get("assignee", US)
    answer = now(beads.release("bd-1", US))
    if assignee == US:  # closed under our name: what they said stands
        assert answer == ChangeDone(OverwrittenChange(US, "closed", restored=True))
    else:
        assert answer == ChangeDone(OverwrittenChange(ANN, status, restored=True))
    assert standin.stands("bd-1") == (status, assignee)


def test_a_change_between_look_and_claim_or_close_is_put_back(standin: StandIn, beads: BeadsTracker) -> None:
    """R-CRASH-08: `--claim` would reopen what a person closes in that moment; `close` would end what they took over."""
    standin.add("bd-1")
    standin.add("bd-2", status="in_progress", assignee=US)
    closed, taken = {"id": "bd-1", "status": "closed"}, {"id": "bd-2", "assignee": ANN}
    standin.behave(before={"claim": [closed], "close": [taken]})
    assert now(beads.claim("bd-1", US)) == ChangeDone(OverwrittenChange(None, "closed", restored=True))
    assert standin.stands("bd-1") == ("closed", None)
    assert now(beads.close("bd-2", US, "done")) == ChangeDone(OverwrittenChange(ANN, "in_progress", restored=True))
    assert standin.stands("bd-2") == ("in_progress", ANN)


def test_two_homes_race_and_only_the_read_back_counts(standin: StandIn, beads: BeadsTracker) -> None:
    """R-CRASH-08: the tool lets both write (its claim looks, then writes): who was first has it, and is read back."""
    standin.add("bd-1")
    standin.behave(before={"claim": [{"id": "bd-1", "assignee": "holdfast-there-2", "status": "in_progress"}]})
    answer = now(beads.claim("bd-1", US))
    assert answer == ChangeDone(OverwrittenChange("holdfast-there-2", "in_progress", restored=True)), "they were first"
    assert standin.stands("bd-1") == ("in_progress", "holdfast-there-2")
    standin.add("bd-2")
    theirs = {"id": "bd-2", "assignee": "holdfast-there-2", "status": "in_progress"}
    standin.behave(lies=True, before={"look": [theirs]})
    assert now(beads.claim("bd-2", US)) == ChangeRefused("holdfast-there-2 has it (in_progress)"), (
        "whatever its exit code"
    )


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"broken": 1}, "it ended with 1"),
        ({"garbage": ""}, "empty"),
        ({"garbage": "Segmentation fault"}, "not JSON"),
        ({"garbage": "[" * 100_000}, "not JSON"),
        ({"garbage": "{}"}, "not understood"),
        ({"garbage": '[{"id": "bd-1"}]'}, "not understood"),
        ({"garbage": '[{"id": "bd-1", "status": "open", "assignee": 7}]'}, "not understood"),
        ({"garbage": "[]"}, "no issue"),
        ({"slow": 30}, "did not answer within 0.5 s"),
    ],
)
def test_an_answer_that_is_not_understood_is_unknown(standin: StandIn, how: dict[str, Any], says: str) -> None:
    """R-CRASH-08: never "no assignee", and nothing is changed on the strength of it."""
    standin.add("bd-1", status="in_progress", assignee=US)
    standin.behave(**how)
    tracker = make(standin, timeout=0.5 if "slow" in how else 20.0)
    for answer in (tracker.show("bd-1"), tracker.release("bd-1", US)):
        found = now(answer)
        assert isinstance(found, UnknownAnswer)
        assert says in found.why
    assert not any(call[0] in ("update", "close") for call in standin.calls())
    assert standin.stands("bd-1") == ("in_progress", US)


def test_a_part_of_an_id_is_no_id_and_a_tool_that_is_missing_is_unknown(standin: StandIn, beads: BeadsTracker) -> None:
    """The tools resolve `bd-1` to `bd-12` when there is no other: what they then answer is about somebody else's."""
    standin.add("bd-12", status="in_progress", assignee=US)
    assert now(beads.show("bd-1")) == MissingIssue()
    assert now(beads.release("bd-1", US)) == ChangeRefused("it is gone")
    assert standin.stands("bd-12") == ("in_progress", US)
    nothing = BeadsTracker(["/nowhere/br"], cwd=str(standin.folder.parent), run=run, env={}, timeout=1.0)
    found = now(nothing.show("bd-1"))
    assert isinstance(found, UnknownAnswer)
    assert "cannot be started" in found.why
    assert isinstance(now(nothing.claim("bd-1", US)), UnknownAnswer)


def test_shapes_that_were_seen() -> None:
    """What `br`, `bd` and its versioned envelope print; whitespace and null are nobody."""
    issue = {"id": "bd-1", "title": "t", "status": "open", "assignee": " "}
    for shape in ([issue], issue, {"schema_version": 1, "data": [issue]}, {"data": issue}, {"issues": [issue]}):
        found = parse_issues(json.dumps(shape).encode())
        assert not isinstance(found, UnknownAnswer)
        assert [(one.id, one.assignee) for one in found] == [("bd-1", None)]
    assert isinstance(parse_issues(b"\xff"), UnknownAnswer)
    assert isinstance(parse_issues(json.dumps({"data": [issue], "issues": [issue]}).encode()), UnknownAnswer)
    assert isinstance(now(NoTracker().show("x")), MissingIssue)


def test_what_issues_say_is_anybodys_words_and_harms_no_other_issue(standin: StandIn, beads: BeadsTracker) -> None:
    """One issue that cannot be stored, or whose id looks like an option, must not keep the others from being taken."""
    standin.add("bd-1", title="a\0b\ud800", description="\udfff")
    standin.add("--db=/tmp/another")
    standin.add("bd-\n2")
    found = now(beads.ready())
    assert not isinstance(found, UnknownAnswer)
    assert [issue.id for issue in found] == ["bd-1"]
    assert is_text(issue_prompt(found[0]))
    most = 4 * LONGEST_BODY  # bytes: every character of it may need four
    huge = Issue(id="x", title="\U0001f600" * most, status="open", assignee=None, description="\U0001f600" * most)
    check_prompt(issue_prompt(replace(huge, acceptance=huge.description)))
