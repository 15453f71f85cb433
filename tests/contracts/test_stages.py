"""The facet `staging` of a store: a task's row follows its stage, under the fence and at once with the settlement."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.base.errors import Conflict, NotOwner
from holdfast.base.instant import Instant
from holdfast.core.dispatch.accounts import BlockedTasks
from holdfast.core.dispatch.terms import ClaimTerms
from holdfast.core.model import PauseReason, Task, TaskSpec
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.retry_budgets import Budget, count_losses_in_a_row
from holdfast.core.states import TaskState
from holdfast.core.workflows.next_stage import NextStep, StageEnd, StageStep, decide_next_step, is_workflow_over
from holdfast.core.workflows.result import StageResult
from holdfast.core.workflows.workflow import Progress, Stage
from holdfast.store.port.transaction import Host, Ownership, Transaction
from holdfast.store.port.workspaces import Checkpoint
from holdfast.store.sqlite.engine.store import SqliteStore

NOW = Instant(wall=1000.0, boottime=10.0, boot_id="boot")
STAGES = (
    Stage(name="plan", agent="alpha", agent_options={"account": "a"}, timeout=10.0, provider="acme"),
    Stage(name="build", agent="beta", agent_options={"account": "b", "x": 1}, timeout=20.0, approval=True),
    Stage(name="ship", agent="gamma", timeout=30.0),
)
DONE = StageEnd(completed=True, reason="so")
SAID = Verdict(outcome=Outcome.COMPLETED, reason="so", session_id="session-1")


class Shop:
    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        host = Host(id="host", boot_id="boot", pid=1, start_ticks=1, version="0", agents=1)
        store.write(lambda tx: tx.hosts.open(host, 30.0, NOW))
        self.repo = store.write(lambda tx: tx.workspaces.register_repo("/repo", "/repo/.git", NOW))
        self.add("task1", stages=STAGES, agent="alpha", agent_options={"account": "a"}, timeout=10.0, provider="acme")

    def add(self, task_id: str, **spec: object) -> None:
        given: dict[str, object] = {"agent": "command", **spec}
        new = TaskSpec(id=task_id, repo_id=self.repo.id, prompt="work", **given)  # type: ignore[arg-type]  # fields of it
        self.store.write(lambda tx: tx.tasks.add(new, NOW))

    def claim(self) -> Task:
        task = self.store.write(lambda tx: tx.tasks.claim("host", NOW))
        assert task is not None
        return task

    def task(self) -> Task:
        return self.store.write(lambda tx: tx.tasks.get("task1"))

    def end_stage(self, task: Task, end: StageEnd = DONE, **details: object) -> NextStep:
        """As the supervisor settles it."""
        following = decide_next_step(task.spec.stages, task.progress, end)
        ownership = Ownership(task_id=task.id, fence=task.fence, owner="host")
        action = {
            StageStep.WAIT: PolicyAction.PAUSE,
            StageStep.COMPLETE: PolicyAction.COMPLETE,
            StageStep.FAIL: PolicyAction.FAIL,
        }
        decision = Decision(
            action=action.get(following.step, PolicyAction.REQUEUE),
            reason=following.reason,
            pause=PauseReason.APPROVAL if following.step is StageStep.WAIT else None,
            spends=(Budget.STAGE,) if following.passed else (Budget.RUNS,),
            keeps_session=following.keeps_session,
            stage={"step": str(following.step), "name": task.spec.stages[following.progress.stage].name},
        )

        def settle(tx: Transaction) -> None:
            progress = task.progress
            tx.results.record(ownership, StageResult(stage=progress.stage, name="x", visit=progress.visit, run_id=None))
            tx.stages.move(ownership, following, NOW, **details)  # type: ignore[arg-type]  # its options
            tx.tasks.settle(ownership, None, SAID, decision, None, NOW)

        self.store.write(settle)
        return following

    def kinds(self) -> list[str]:
        return [str(row["kind"]) for row in self.store.view("last_events", task="task1", limit=100)]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    store = SqliteStore(str(tmp_path))
    try:
        yield Shop(store)
    finally:
        store.close()


def test_the_row_names_the_next_stage(shop: Shop) -> None:
    """R-RES-09, R-CRASH-03: agent, options, account, timeout and provider are the next stage's, its session is new; a
    stale owner changes nothing."""
    task = shop.claim()
    stale = Ownership(task_id="task1", fence=task.fence - 1, owner="host")
    following = decide_next_step(STAGES, task.progress, DONE)
    with pytest.raises(NotOwner):
        shop.store.write(lambda tx: tx.stages.move(stale, following, NOW))
    with pytest.raises(NotOwner):
        shop.store.write(lambda tx: tx.stages.keep(stale, Progress(stage=2), NOW))
    assert shop.task().progress == Progress()

    shop.end_stage(task)
    queued = shop.task()
    assert (queued.state, queued.spec.agent, queued.account, queued.session_id) == (TaskState.QUEUED, "beta", "b", None)
    assert queued.spec.agent_options == {"account": "b", "x": 1}
    assert (queued.spec.timeout, queued.spec.provider) == (20.0, "")
    assert queued.progress == Progress(stage=1, visit=1)
    assert "task.stage" in shop.kinds()
    assert "task.requeued" not in shop.kinds()


def test_of_the_same_priority_who_has_begun_goes_first(shop: Shop) -> None:
    first = shop.claim()
    shop.add("task2", stages=STAGES, agent="alpha")
    second = shop.claim()
    shop.end_stage(second)
    again = Decision(action=PolicyAction.REQUEUE, reason="down")
    ownership = Ownership(task_id="task1", fence=first.fence, owner="host")
    shop.store.write(lambda tx: tx.tasks.settle(ownership, None, SAID, again, None, NOW))
    shop.add("urgent", priority=9)
    names = ["urgent", "task2", "task1"]
    assert [shop.store.view("ahead", id=name)[0]["count(*)"] for name in names] == [0, 1, 2]
    assert shop.store.write(lambda tx: tx.tasks.has_claimable_task(NOW))
    assert [shop.claim().id for _ in names] == names
    assert not shop.store.write(lambda tx: tx.tasks.has_claimable_task(NOW))


def test_a_stage_that_is_done_is_progress_and_may_give_resumes_back(shop: Shop) -> None:
    """R-RES-05: off by default."""
    for resets, left in ((False, 1), (True, 0)):
        task = shop.claim()
        ownership = Ownership(task_id="task1", fence=task.fence, owner="host")
        pause = Decision(
            action=PolicyAction.PAUSE, reason="limit", pause=PauseReason.USAGE_LIMIT, spends=(Budget.LOST,)
        )
        shop.store.write(
            lambda tx, own=ownership, pause=pause: tx.tasks.settle(own, None, SAID, pause, None, NOW)  # type: ignore[misc]
        )
        shop.store.write(lambda tx: tx.tasks.resume("task1", "ann", NOW))
        assert shop.task().session_id == "session-1"
        shop.end_stage(shop.claim(), resets_resumes=resets)
        after = shop.task()
        assert after.resume_attempts == left
        ledger = shop.store.write(lambda tx, after=after: tx.tasks.ledger(after))  # type: ignore[misc]  # its own
        assert count_losses_in_a_row(ledger) == 0


def test_a_person_approves_sends_back_or_is_told_why_not(shop: Shop) -> None:
    with pytest.raises(Conflict, match="waits for nobody's approval"):
        shop.store.write(lambda tx: tx.stages.approve("task1", "ann", NOW))
    shop.end_stage(shop.claim())
    shop.end_stage(shop.claim())
    waiting = shop.task()
    assert (waiting.state, waiting.pause_reason, waiting.progress.awaits) == ("paused", "approval", True)
    assert waiting.session_id == "session-1"
    with pytest.raises(Conflict, match="`holdfast approve task1`"):
        shop.store.write(lambda tx: tx.tasks.resume("task1", "ann", NOW))
    assert len(shop.store.view("alerts", all=0)) == 1
    shop.store.write(lambda tx: tx.stages.approve("task1", "ann", NOW, "shorter"))
    again = shop.task()
    assert (again.state, again.progress.feedback, again.session_id) == ("queued", "shorter", "session-1")
    assert shop.store.view("alerts", all=0) == []
    shop.end_stage(shop.claim())
    told = shop.store.write(lambda tx: tx.stages.approve("task1", "ann", NOW))
    assert told == "stage 2 of 3 (build) approved by ann; stage 3 of 3 (ship) follows"
    on = shop.task()
    assert (on.spec.agent, on.progress.stage, on.session_id, on.resume_attempts) == ("gamma", 2, None, 0)
    assert shop.kinds().count("task.approved") == 2
    with pytest.raises(Conflict):
        shop.store.write(lambda tx: tx.stages.approve("task1", "bob", NOW))


def test_a_retry_goes_on_at_the_stage_and_a_fresh_one_at_the_first(shop: Shop) -> None:
    shop.end_stage(shop.claim())
    shop.end_stage(shop.claim(), StageEnd(completed=False, reason="no", text="why"))
    assert shop.task().state is TaskState.FAILED
    shop.store.write(lambda tx: tx.tasks.retry("task1", "ann", False, NOW))
    task = shop.task()
    assert (task.spec.agent, task.progress.stage, task.progress.visit) == ("beta", 1, 2)
    assert "why" in task.progress.feedback
    assert len(shop.store.write(lambda tx: tx.results.of_task("task1"))) == 2, "what was done still counts"
    shop.end_stage(shop.claim(), StageEnd(completed=False, reason="no"))
    shop.store.write(lambda tx: tx.tasks.retry("task1", "ann", True, NOW))
    task = shop.task()
    assert (task.spec.agent, task.spec.timeout, task.progress, task.account) == ("alpha", 10.0, Progress(), "a")
    assert shop.store.write(lambda tx: tx.results.of_task("task1")) == []


def test_a_checkpoint_leads_back_to_its_stage(shop: Shop) -> None:
    """R-RES-11: with its session where it was taken at work; of one at a stage's end, with the stage after it."""
    shop.end_stage(shop.claim())
    point = Checkpoint(
        task_id="task1", number=1, repo_id=shop.repo.id, workspace_id="w", ref="r", commit="c", base=None, key="k",
        files=1, why="a test", session_id="old",
    )  # fmt: skip
    shop.store.write(lambda tx: tx.stages.return_to_checkpoint("task1", replace(point, stage=1), NOW))
    assert shop.task().progress.visit == 1, "it is there"
    task = shop.claim()
    ownership = Ownership(task_id="task1", fence=task.fence, owner="host")

    def cut_short(tx: Transaction) -> None:
        tx.stages.keep(ownership, replace(task.progress, checks="run1", tries=1), NOW)
        tx.tasks.settle(ownership, None, SAID, Decision(action=PolicyAction.REQUEUE, reason="down"), None, NOW)

    shop.store.write(cut_short)
    shop.store.write(lambda tx: tx.stages.return_to_checkpoint("task1", replace(point, stage=1), NOW))
    again = shop.task()
    assert (again.progress.checks, again.progress.visit, again.progress.tries) == ("", 1, 1), "its agent runs again"
    assert again.session_id == "old"
    shop.store.write(lambda tx: tx.stages.return_to_checkpoint("task1", replace(point, stage=0), NOW))
    back = shop.task()
    assert (back.progress.stage, back.spec.agent, back.session_id, back.progress.visit) == (0, "alpha", "old", 2)
    ended = replace(point, stage=0, details={"next_stage": 1})
    shop.store.write(lambda tx: tx.stages.return_to_checkpoint("task1", ended, NOW))
    on = shop.task()
    assert (on.progress.stage, on.spec.agent, on.session_id, on.account) == (1, "beta", None, "b")


def test_what_has_no_stage_left_waits_for_no_agent(shop: Shop) -> None:
    """R-RES-08: its last stage is approved; that its agent's account is shut, or its provider away, is all the same."""
    last = Stage(name="only", agent="alpha", agent_options={"account": "a"}, provider="acme", approval=True)
    shop.claim()
    shop.add("task2", stages=(last,), agent="alpha", agent_options={"account": "a"}, provider="acme")
    shop.end_stage(shop.claim())
    shop.store.write(lambda tx: tx.stages.approve("task2", "ann", NOW))
    away = ClaimTerms(
        blocked=BlockedTasks(accounts=frozenset({"alpha/a"}), agents=frozenset({"alpha"})),
        providers_down=frozenset({"acme"}),
    )
    task = shop.store.write(lambda tx: tx.tasks.claim("host", NOW, away))
    assert task is not None
    assert is_workflow_over(task.spec.stages, task.progress)
