"""Why a task waits: every kind of reason has a clause, sentences and JSON, and the most important one comes first."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast.api.tasks.why.circumstances import Circumstances
from holdfast.api.tasks.why.read import add_raise_command, is_announced
from holdfast.api.tasks.why.reason import Candidate, SupervisorFacts, WaitCause, WaitKind, WaitReason
from holdfast.api.tasks.why.text import as_json, clause, sentences
from holdfast.core.dispatch.terms import Lane
from holdfast.core.dispatch.workers import Worker

NOW = 1_800_000_000.0
UP = Circumstances(supervisor=SupervisorFacts(pid=1, agents=2, held=None))
FULL = Circumstances(supervisor=SupervisorFacts(pid=1, agents=2, held="the disk is full"))


def row(**more: Any) -> Any:
    return {
        "id": "t1", "state": "queued", "agent": "claude", "account": None, "provider": "anthropic", "labels": {},
        "reason": "waiting for a free agent", "failure_reason": None, "pause_reason": None, "resume_after": None,
        "not_before": None, "needs": {}, "issue": None, "worker": None, "strategy": "worktree", "repo_id": "r",
        "repo": "/r", "runs": 0, "last_run": None, "stage": None, "priority": 0, "begun": False, "seq": 9,
        "resume_attempts": 0, "max_resumes": 3,
    } | more  # fmt: skip


def kinds(around: Circumstances, task: Any) -> list[WaitKind]:
    return [reason.kind for reason in around.waits(task, NOW)]


@pytest.mark.parametrize(
    ("around", "task", "kind", "words"),
    [
        (Circumstances(), row(), WaitKind.NO_SUPERVISOR, "no supervisor is running"),
        (
            UP,
            row(needs={"a": "queued", "b": "failed", "c": "queued"}),
            WaitKind.DEPENDENCIES,
            "after a (queued), b (failed) and 1 more",
        ),
        (UP, row(not_before=NOW + 5), WaitKind.NOT_BEFORE, "not before"),
        (UP, row(not_before=NOW + 5, runs=1, reason="crashed"), WaitKind.BACK_OFF, "; crashed"),
        (
            FULL,
            row(),
            WaitKind.PRESSURE,
            "held: the disk is full",
        ),
        (UP, row(issue="X-1"), WaitKind.ISSUE, "its issue X-1 is not claimed by Holdfast now"),
        (UP, row(worker="web"), WaitKind.WORKER, "for worker web, which is not there"),
        (replace(UP, checkouts={"r": "t0"}), row(strategy="none"), WaitKind.CHECKOUT, "its checkout is in use by t0"),
        (replace(UP, queue=[(0, True, 1), (0, True, 9)]), row(), WaitKind.QUEUED_BEHIND, "1 ahead of it"),
        (replace(UP, at_work=2), row(), WaitKind.SLOTS, "next: 2 working, room for 2"),
        (UP, row(), WaitKind.NEXT, "next"),
        (
            UP,
            row(state="paused", pause_reason="operator", reason="paused by me"),
            WaitKind.OPERATOR_PAUSE,
            "operator, until you resume it: paused by me",
        ),
        (
            UP,
            row(state="paused", pause_reason="usage_limit", resume_after=NOW + 60, reason="x"),
            WaitKind.LIMIT_PAUSE,
            "usage_limit, until",
        ),
        (
            replace(UP, resumes=False),
            row(state="paused", pause_reason="rate_limit", resume_after=NOW + 60, reason="x"),
            WaitKind.LIMIT_PAUSE,
            "rate_limit, until you resume it: x",
        ),
        (
            UP,
            row(state="paused", pause_reason="auth", reason="x"),
            WaitKind.LOGIN_PAUSE,
            "auth, until you resume it: x",
        ),
        (
            UP,
            row(state="paused", pause_reason="approval", reason="x", stage={"awaits_approval": True}),
            WaitKind.APPROVAL,
            "approval, until you approve it: x",
        ),
    ],
)
def test_the_first_reason_makes_the_clause(around: Circumstances, task: Any, kind: WaitKind, words: str) -> None:
    assert kinds(around, task)[0] is kind
    assert words in around.clause(task, NOW)


def test_workers_are_the_only_lanes_where_no_anonymous_agent_runs() -> None:
    lanes = (Worker(lane=Lane(name="web", agent="claude"), restart=True),)
    around = replace(UP, supervisor=SupervisorFacts(1, 0, None), lanes=lanes)
    ready: Any = {"web": {"name": "web", "state": "ready", "reason": "-"}}
    assert kinds(replace(around, workers=ready), row()) == [WaitKind.ANY_WORKER]
    assert kinds(around, row()) == [WaitKind.ANY_WORKER], "a supervisor will start it"
    stopped: Any = {"web": {"name": "web", "state": "stopped", "reason": "-"}}
    [reason] = replace(around, workers=stopped).waits(row(), NOW)
    assert (reason.kind, reason.needs_person) == (WaitKind.NO_WORKER, True)
    assert sentences(reason, "t1") == ["It waits for a worker, and web is stopped: `holdfast worker start web`."]
    [reason] = replace(around, workers=ready).waits(row(agent="codex"), NOW)
    assert (reason.kind, reason.causes) == (WaitKind.NO_WORKER, ())
    benched: Any = {"web": {"name": "web", "state": "benched", "reason": "-"}}
    [reason] = replace(around, workers=benched).waits(row(), NOW)
    assert not reason.needs_person, "a benched worker continues by itself"


def test_what_is_held_is_asked_with_the_facts_of_the_task() -> None:
    asked: list[Candidate] = []

    def test(task: Candidate) -> WaitReason:
        asked.append(task)
        return WaitReason(kind=WaitKind.BUDGET, causes=(WaitCause(name="day", reason="the day is spent"),))

    task = row(account="work", labels={"team": "web"})
    assert replace(UP, tests=(test,)).clause(task, NOW) == "held: the day is spent"
    assert asked == [Candidate("t1", "claude", "work", "anthropic", {"team": "web"}, task["repo"])]


@pytest.mark.parametrize("kind", WaitKind)
def test_every_kind_has_words_and_json(kind: WaitKind) -> None:
    cause = WaitCause(name="provider:x", state="stopped", reason="why", since=NOW, until=NOW + 60)
    reason = WaitReason(
        kind=kind, name="n", text="t", causes=(cause,), tasks=("t0",), count=1, limit=1, until=NOW, command="holdfast x"
    )
    assert clause(reason, NOW)
    assert bool(sentences(reason, "t1")) == (kind is not WaitKind.NEXT)
    assert json.loads(json.dumps(as_json(reason)))["kind"] == kind


def test_a_spent_budget_of_its_own_is_raised_by_resuming() -> None:
    [reason] = UP.waits(row(state="paused", pause_reason="budget", reason="spent"), NOW)
    assert "holdfast resume t1`" in sentences(reason, "t1")[-1]
    spent: Any = {"task_usd": {"spent": 1.0, "limit": 1.0, "left": 0}}
    told = sentences(add_raise_command(reason, "t1", spent), "t1")
    assert "Raise the total: `holdfast resume t1 --budget-usd X`." in told


def test_add_announces_only_what_does_not_end_soon() -> None:
    assert is_announced(WaitReason(kind=WaitKind.ACCOUNT))
    assert is_announced(WaitReason(kind=WaitKind.HOLD, needs_person=True))
    assert not is_announced(WaitReason(kind=WaitKind.HOLD))
    assert not is_announced(WaitReason(kind=WaitKind.NO_SUPERVISOR, needs_person=True)), "add says so by itself"
