"""What every store must do, as code. Written against `holdfast.store.port` alone: an adapter passes it unchanged.

An adapter's test module supplies one fixture, `bench`, and takes over every `Test…` class of this module together
with the fixture `scene`; `test_sqlite_store.py` shows how. Nothing here knows how rows are kept: what is
looked at comes from the port's own reads and from the named views.

Time is a parameter of the store, so no test waits for it.
"""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pytest

from holdfast.base.errors import Conflict, HoldfastError, LeaseLost, NotFound, NotOwner, Unavailable
from holdfast.base.ids import new_id
from holdfast.base.instant import Instant
from holdfast.core.dispatch.accounts import AccountPause, BlockedTasks
from holdfast.core.dispatch.terms import ClaimTerms, Lane, OperatorBlocks
from holdfast.core.model import (
    Claim,
    Event,
    Level,
    PauseReason,
    Report,
    ReportKind,
    RequestKind,
    Run,
    StopWhy,
    Strategy,
    Task,
    TaskSpec,
    Workspace,
)
from holdfast.core.runs.intervals import AdaptiveTimeout
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.preserve import Disposition
from holdfast.core.runs.retry_budgets import RESUMES_SPENT, Budget, ResumeDecision, decide_resume
from holdfast.core.states import WORKSPACE_MOVES, RunState, TaskState, WorkspaceState
from holdfast.core.task_settings import (
    BudgetRules,
    ContainerRules,
    HealthRules,
    RunLimits,
    SalvageRules,
    SubtaskRules,
    WorkspaceRules,
)
from holdfast.core.tasks.requests import parse_answer
from holdfast.core.workflows.workflow import Member, OnFailure, Stage
from holdfast.store.port.transaction import (
    AgentReports,
    Host,
    Operation,
    Ownership,
    Salvaged,
    Store,
    Transaction,
    Writer,
)

T = TypeVar("T")
Row = dict[str, Any]

BOOT = "boot-one"
START = Instant(wall=1_700_000_000.0, boottime=1_000.0, boot_id=BOOT)
TTL = 30.0
PATIENCE = 60.0  # seconds after which a concurrent test gives up waiting for a fact


class Bench(Protocol):
    """What an adapter supplies: stores and writers on the same data, several at once, reopened at will.

    `writer` is called inside a running event loop. The bench closes whatever a test left open.
    """

    def store(self) -> Store: ...
    def writer(self) -> Writer: ...
    def close_all(self) -> None: ...


# -- words of the tests ------------------------------------------------------------------------------------------


def ended_with(outcome: Outcome, session: str | None = None, **more: Any) -> Verdict:
    return Verdict(outcome=outcome, reason=f"it ended as {outcome}", session_id=session, **more)


COMPLETED = ended_with(Outcome.COMPLETED)
COMPLETE = Decision(action=PolicyAction.COMPLETE, reason="evidence of success", spends=(Budget.RUNS,))
FAIL = Decision(action=PolicyAction.FAIL, reason="exit code 2", failure="failed", spends=(Budget.RUNS,))
REQUEUE = Decision(action=PolicyAction.REQUEUE, reason="its host was lost", spends=(Budget.LOST,))
CANCEL = Decision(action=PolicyAction.CANCEL, reason="cancelled by an operator")
PAUSE = Decision(
    action=PolicyAction.PAUSE, reason="rate limited", pause=PauseReason.RATE_LIMIT, resume_after=START.wall + 60
)

DONE = Report(kind=ReportKind.COMPLETE, message="all tests pass")
GAVE_UP = Report(kind=ReportKind.FAIL, message="no compiler")

KEEP = Disposition(preserve=True, tier="task", reason="preserve_on_failure=true")
CLEAN = Disposition(preserve=False, tier="default", reason="cancelled")


class Undone(Exception):
    """A question that is taken back."""


class Scene:
    """One store, a clock that only the test moves, and shorthands for the ways that many tests walk."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.store = bench.store()
        self.now = START
        self.repo = self.write(lambda tx: tx.workspaces.register_repo("/src/app", "/src/app/.git", self.now))

    # doing

    def reopen(self) -> None:
        """Close whatever is open and come back with nothing but what was stored."""
        self.bench.close_all()
        self.store = self.bench.store()

    def write(self, operation: Operation[T]) -> T:
        return self.store.write(operation)

    def tick(self, seconds: float = 1.0) -> Instant:
        self.now = self.now._replace(wall=self.now.wall + seconds, boottime=self.now.boottime + seconds)
        return self.now

    def spec(self, **changes: Any) -> TaskSpec:
        return TaskSpec(**{"id": new_id(), "repo_id": self.repo.id, "prompt": "do it", "agent": "scripted"} | changes)

    def add(self, **changes: Any) -> Task:
        spec = self.spec(**changes)
        return self.write(lambda tx: tx.tasks.add(spec, self.now))

    def open_host(self, ttl: float = TTL) -> str:
        """A new supervisor incarnation; every other one is lost by that."""
        host = Host(id=new_id(), boot_id=self.now.boot_id, pid=4711, start_ticks=1, version="0.1.0", agents=4)
        self.write(lambda tx: tx.hosts.open(host, ttl, self.now))
        return host.id

    def beat(self, host: str) -> None:
        self.write(lambda tx: tx.hosts.beat(host, TTL, self.now))

    def claim(self, host: str) -> Task | None:
        return self.write(lambda tx: tx.tasks.claim(host, self.now))

    def take(self, host: str) -> Ownership:
        """Claim what is next; there has to be something."""
        task = self.claim(host)
        assert task is not None
        return grip_of(task)

    def running(self, host: str | None = None, **changes: Any) -> Ownership:
        """A new task, claimed at once: it outranks whatever else waits."""
        task = self.add(**{"priority": 1_000} | changes)
        ownership = self.take(host or self.open_host())
        assert ownership.task_id == task.id
        return ownership

    def adopt(self, task: Task, host: str) -> Task:
        return self.write(lambda tx: tx.tasks.adopt(task, host, self.now))

    def intend_run(self, ownership: Ownership) -> str:
        run_id = new_id()
        self.write(lambda tx: tx.runs.intend(ownership, run_id, self.now))
        return run_id

    def started_run(self, ownership: Ownership) -> str:
        run_id = self.intend_run(ownership)
        self.write(lambda tx: tx.runs.record_start(ownership, run_id, 99, self.now))
        return run_id

    def ended_run(self, ownership: Ownership, verdict: Verdict = COMPLETED) -> str:
        run_id = self.started_run(ownership)
        self.write(lambda tx: tx.runs.ended(ownership, run_id, verdict, self.now))
        return run_id

    def settle(
        self,
        ownership: Ownership,
        decision: Decision,
        run_id: str | None = None,
        verdict: Verdict = COMPLETED,
        disposition: Disposition | None = None,
    ) -> TaskState:
        return self.write(lambda tx: tx.tasks.settle(ownership, run_id, verdict, decision, disposition, self.now))

    def workspace_for(self, ownership: Ownership, state: WorkspaceState = WorkspaceState.READY) -> Workspace:
        """The task's workspace, walked from its intent to `state`."""
        workspace = a_workspace(ownership.task_id, self.repo.id)
        self.write(lambda tx: tx.workspaces.intend(ownership, workspace, self.now))
        for step in _WAY_TO[state]:
            workspace = self.move(workspace, step)
        return workspace

    def move(self, workspace: Workspace, state: WorkspaceState) -> Workspace:
        return self.write(lambda tx: tx.workspaces.move(workspace, state, f"test: {state}", self.now))

    def paused(self, decision: Decision = PAUSE, **changes: Any) -> str:
        ownership = self.running(**changes)
        self.settle(ownership, decision, self.ended_run(ownership, ended_with(Outcome.RATE_LIMITED)))
        return ownership.task_id

    def resume(self, task_id: str) -> ResumeDecision:
        return self.write(lambda tx: tx.tasks.resume(task_id, "ann", self.now))

    def resume_due(self, task_id: str) -> ResumeDecision:
        return self.write(lambda tx: tx.tasks.resume(task_id, "the supervisor", self.now, operator=False))

    def retry(self, task_id: str, fresh: bool = False) -> None:
        self.write(lambda tx: tx.tasks.retry(task_id, "ann", fresh, self.now))

    def cancel(self, task_id: str, why: str = "") -> None:
        self.write(lambda tx: tx.tasks.cancel_waiting(task_id, "ann", why, self.now))

    def stop(self, ownership: Ownership, run_id: str, why: StopWhy) -> None:
        self.write(lambda tx: tx.runs.record_stop_request(ownership, run_id, why, self.now))

    def dispose(self, workspace: Workspace, disposition: str, reason: str) -> None:
        self.write(lambda tx: tx.workspaces.dispose(workspace, disposition, reason, self.now))

    def record_cleanup_failure(self, workspace: Workspace, why: str, retry_at: float) -> int:
        return self.write(lambda tx: tx.workspaces.record_cleanup_failure(workspace, why, retry_at, self.now))

    def salvage(self, workspace: Workspace, salvaged: Salvaged) -> None:
        self.write(lambda tx: tx.workspaces.record_salvage(workspace, salvaged, self.tick()))

    def race(self, operation: Operation[T], times: int = 2) -> list[T | HoldfastError]:
        """The same operation from several stores at once."""
        return at_once(*(partial(self.bench.store().write, operation) for _ in range(times)))

    # looking

    def get(self, task_id: str) -> Task:
        return self.write(lambda tx: tx.tasks.get(task_id))

    def current(self, task_id: str) -> Workspace | None:
        return self.write(lambda tx: tx.workspaces.current(task_id))

    def state(self, task_id: str) -> TaskState:
        return self.get(task_id).state

    def tasks(self) -> list[Row]:
        return self.store.view("tasks")

    def row(self, task_id: str) -> Row:
        (row,) = self.store.view("task", id=task_id)
        return row

    def runs(self, task_id: str) -> list[Row]:
        return self.store.view("runs", id=task_id)

    def spends(self, task_id: str) -> list[str]:
        """Every budget entry of the task, over all its generations."""
        generations = range(int(self.row(task_id)["generation"]) + 1)
        return [str(r["budget"]) for g in generations for r in self.store.view("spends", id=task_id, generation=g)]

    def events(self, task_id: str | None = None, after: int = 0) -> list[Row]:
        rows = self.store.view("events", after=after, task=task_id, limit=100_000)
        return [{**row, "data": _json(row["data"])} for row in rows]

    def kinds(self, task_id: str | None = None, after: int = 0) -> list[str]:
        return [event["kind"] for event in self.events(task_id, after)]

    def last_seq(self) -> int:
        events = self.events()
        return int(events[-1]["seq"]) if events else 0

    def everything(self) -> Row:
        """All that the store shows: equal before and after means that nothing was written."""
        ids = [str(row["id"]) for row in self.tasks()]
        return {
            "tasks": [self.row(i) for i in ids],
            "needs": {i: self.store.view("needs", id=i) for i in ids},
            "runs": {i: self.runs(i) for i in ids},
            "spends": {i: self.spends(i) for i in ids},
            "events": self.events(),
            "workspaces": self.store.view("workspaces", all=True),
            "salvages": self.store.view("salvages", task=None),
            "alerts": self.store.view("alerts", all=True),
            "requests": self.store.view("pending_requests", task=None),
            "repos": self.store.view("repos"),
            "host": self.store.view("host"),
        }


_WAY_TO: Mapping[WorkspaceState, tuple[WorkspaceState, ...]] = {
    WorkspaceState.INTENDED: (),
    WorkspaceState.READY: (WorkspaceState.READY,),
    WorkspaceState.PRESERVED: (WorkspaceState.READY, WorkspaceState.PRESERVED),
    WorkspaceState.TRASHED: (WorkspaceState.READY, WorkspaceState.TRASHED),
    WorkspaceState.GONE: (WorkspaceState.GONE,),
}


def grip_of(task: Task) -> Ownership:
    assert task.owner is not None
    return Ownership(task_id=task.id, fence=task.fence, owner=task.owner)


def a_workspace(task_id: str, repo_id: str) -> Workspace:
    return Workspace(
        id=new_id(),
        task_id=task_id,
        repo_id=repo_id,
        strategy=Strategy.WORKTREE,
        path=f"/work/{task_id}",
        branch=f"holdfast/{task_id}",
        base_commit="c0ffee",
        state=WorkspaceState.INTENDED,
        disposition=None,
    )


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def at_once(*jobs: Callable[[], T]) -> list[T | HoldfastError]:
    """Run all jobs in threads that set off together; each one's result or refusal, in order."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[], T]) -> T | HoldfastError:
        barrier.wait(PATIENCE)
        try:
            return job()
        except HoldfastError as refusal:
            return refusal

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(PATIENCE) for future in [pool.submit(run, job) for job in jobs]]


def within_patience(work: Coroutine[Any, Any, T]) -> T:
    """Run it in a loop of its own; a write that is never answered fails the test instead of hanging it."""

    async def bounded() -> T:
        async with asyncio.timeout(PATIENCE):
            return await work

    return asyncio.run(bounded())


def refusals(answers: list[T | HoldfastError]) -> list[HoldfastError]:
    return [answer for answer in answers if isinstance(answer, HoldfastError)]


@pytest.fixture
def scene(bench: Bench) -> Scene:
    return Scene(bench)


# -- tasks: add and get ------------------------------------------------------------------------------------------


class TestAdd:
    """Promise 1: what was acknowledged is there, as it was asked for."""

    def test_every_setting_comes_back_as_it_was_given(self, scene: Scene) -> None:
        """A field that an adapter forgets to store shows here: each one has a value unlike its default."""
        parent, first = scene.add(), scene.add()
        spec = TaskSpec(
            id=new_id(),
            repo_id=scene.repo.id,
            prompt="Größe prüfen\n— \"quoted\" 'twice' \\ 日本語 🦀",
            agent="command",
            agent_options={"argv": ["sh", "-c", "true"], "depth": {"a": [1, None, 2.5]}},
            strategy=Strategy.DIRECTORY,
            directory_copy=True,
            base_ref="feature/x",
            priority=-7,
            labels={"team": "core"},
            parent_id=parent.id,
            needs=(first.id,),
            not_before=START.wall + 5.25,
            timeout=12.5,
            grace=0.75,
            orphan_grace=7.5,
            max_resumes=0,
            preserve_on_failure=False,
            preserve_strategy_default=True,
            preserve_global_default=True,
            cleanup_on_complete=False,
            keep_workspace=True,
            commit_leftovers="tracked",
            environment={"pass": ["CI"], "set": {"A": "b"}},
            health=HealthRules(stuck_after=math.inf, on_stuck="notify"),
            limits=RunLimits(memory=10**9, output=None),
            workspace=WorkspaceRules(setup=("make deps", "true"), copy=(".env",), preserve_ttl=math.inf),
            salvage=SalvageRules(max_files=3, ignored=("*.log",)),
            container=ContainerRules(image="tools:1", network="none"),
            budget=BudgetRules(usd=2.5),
            subtasks=SubtaskRules(max_depth=1),
            base_from_parent=True,
            provider="acme",
            adaptive_floor=2.5,
            workflow="ours",
            stages=(
                Stage(
                    name="do",
                    agent="scripted",
                    agent_options={"a": [1]},
                    retry=2,
                    gate="make",
                    on_failure=OnFailure.BACK,
                ),
                Stage(
                    name="all", agent="a", members=(Member(name="m", agent="b", agent_options={"c": 1}),), apart=True
                ),
            ),
            range_base="main~3",
            schedule="nightly",
            fire_time="2026-11-16T02:00:00Z",
        )
        plain = scene.spec()
        asked = {"id", "repo_id", "prompt", "agent"}
        same = [
            f.name for f in fields(TaskSpec) if f.name not in asked and getattr(spec, f.name) == getattr(plain, f.name)
        ]
        assert same == [], "give these fields a value of their own in this test"

        added = scene.write(lambda tx: tx.tasks.add(spec, scene.now))

        reopened = scene.bench.store()
        assert added.spec == spec
        assert reopened.write(lambda tx: tx.tasks.get(spec.id)) == added

    def test_a_new_task_is_queued_unowned_and_unspent(self, scene: Scene) -> None:
        task = scene.add()
        assert (task.state, task.fence, task.owner) == (TaskState.QUEUED, 0, None)
        assert (task.generation, task.resume_attempts, task.fresh) == (0, 0, False)
        assert scene.write(lambda tx: tx.tasks.ledger(task)) == []
        assert scene.kinds(task.id) == ["task.queued"]

    def test_an_unknown_task_is_not_found_by_name(self, scene: Scene) -> None:
        """R-RES-02: the words for an unknown id."""
        with pytest.raises(NotFound, match=r"^Task not found: nosuch$"):
            scene.get("nosuch")

    def test_sequence_is_the_order_of_acceptance_whoever_wrote(self, scene: Scene) -> None:
        one, other = scene.store, scene.bench.store()
        ids = []
        for scene.store in (one, other, other, one, other, one):
            ids.append(scene.add().id)
        rows = scene.tasks()
        assert [row["id"] for row in rows] == ids
        assert [row["seq"] for row in rows] == sorted({row["seq"] for row in rows})

    @pytest.mark.parametrize("relation", ["needs", "parent_id"])
    def test_a_relation_to_an_unknown_task_is_refused(self, scene: Scene, relation: str) -> None:
        before = scene.everything()
        with pytest.raises(NotFound, match="Task not found: nosuch"):
            scene.add(**{relation: ("nosuch",) if relation == "needs" else "nosuch"})
        assert scene.everything() == before

    @pytest.mark.parametrize("decision", [FAIL, CANCEL], ids=["failed", "cancelled"])
    def test_a_task_after_one_that_will_not_complete_is_refused(self, scene: Scene, decision: Decision) -> None:
        """It could never start; the refusal names the next command (promise 5)."""
        ownership = scene.running()
        scene.settle(ownership, decision)
        before = scene.everything()
        with pytest.raises(Conflict, match=f"holdfast retry {ownership.task_id}"):
            scene.add(needs=(ownership.task_id,))
        assert scene.everything() == before

    def test_a_failed_parent_does_not_forbid_a_subtask(self, scene: Scene) -> None:
        """R-RES-10: parenthood is not a dependency."""
        ownership = scene.running()
        scene.settle(ownership, FAIL)
        assert scene.add(parent_id=ownership.task_id).state is TaskState.QUEUED

    @pytest.mark.parametrize("changes", ["same id", "unknown repo"])
    def test_a_spec_that_contradicts_the_store_is_a_typed_refusal(self, scene: Scene, changes: str) -> None:
        """Interfaces know only `holdfast.base.errors`; anything else reaches a person as a traceback."""
        task = scene.add()
        with pytest.raises(HoldfastError):
            scene.add(**({"id": task.id} if changes == "same id" else {"repo_id": "nosuch"}))


# -- claim -------------------------------------------------------------------------------------------------------


class TestClaim:
    """Promise 3: one holder per task, and only one whose own lease is good."""

    def test_priority_first_then_order_of_acceptance(self, scene: Scene) -> None:
        low, first, second, high = (scene.add(priority=p) for p in (-1, 0, 0, 5))
        host = scene.open_host()
        claimed = [scene.claim(host) for _ in range(5)]
        assert [task.id if task else None for task in claimed] == [high.id, first.id, second.id, low.id, None]

    def test_a_claim_raises_the_fence_takes_ownership_and_tells(self, scene: Scene) -> None:
        task = scene.add(not_before=START.wall)
        host = scene.open_host()
        scene.tick(2)
        claimed = scene.claim(host)
        assert claimed is not None
        assert (claimed.state, claimed.fence, claimed.owner) == (TaskState.RUNNING, 1, host)
        assert scene.get(task.id) == claimed
        row = scene.row(task.id)
        assert (row["not_before"], row["updated_at"]) == (None, scene.now.wall)
        event = scene.events(task.id)[-1]
        assert (event["kind"], event["data"]) == ("task.claimed", {"host": host, "fence": 1})

    def test_nothing_to_claim_writes_nothing(self, scene: Scene) -> None:
        host = scene.open_host()
        before = scene.everything()
        assert scene.claim(host) is None
        assert scene.everything() == before

    def test_not_before_holds_to_the_instant_and_blocks_nobody_else(self, scene: Scene) -> None:
        """Back-off (R-TERM-11) rests on this."""
        host = scene.open_host()
        waiting = scene.add(priority=9, not_before=scene.now.wall + 10)
        other = scene.add()
        assert scene.take(host).task_id == other.id
        scene.tick(9.999)
        assert scene.claim(host) is None
        scene.tick(0.001)
        assert scene.take(host).task_id == waiting.id

    def test_a_dependent_waits_for_every_need_and_blocks_nobody_else(self, scene: Scene) -> None:
        host = scene.open_host()
        needs = [scene.running(host) for _ in range(2)]
        dependent = scene.add(priority=9, needs=tuple(ownership.task_id for ownership in needs))
        bystander = scene.add()
        assert scene.take(host).task_id == bystander.id
        scene.settle(needs[0], COMPLETE)
        assert scene.claim(host) is None, "one need is still running"
        scene.settle(needs[1], PAUSE)
        assert scene.claim(host) is None, "one need is paused"
        scene.resume(needs[1].task_id)
        resumed = scene.claim(host)
        assert resumed is not None
        scene.settle(grip_of(resumed), COMPLETE)
        assert scene.take(host).task_id == dependent.id

    def test_strategy_none_is_exclusive_per_repo_and_blocks_nobody_else(self, scene: Scene) -> None:
        """DESIGN, Workspaces: `none` is the checkout itself, one task at a time (R-CLEAN-05)."""
        host = scene.open_host()
        elsewhere = scene.write(lambda tx: tx.workspaces.register_repo("/src/lib", "/src/lib/.git", scene.now))
        holder = scene.running(host, strategy=Strategy.NONE)
        blocked = scene.add(priority=9, strategy=Strategy.NONE)
        tree = scene.add(priority=5, strategy=Strategy.WORKTREE)
        other_repo = scene.add(priority=1, strategy=Strategy.NONE, repo_id=elsewhere.id)
        claimed = [scene.claim(host) for _ in range(3)]
        assert [task.id if task else None for task in claimed] == [tree.id, other_repo.id, None]
        scene.settle(holder, COMPLETE)
        assert scene.take(host).task_id == blocked.id

    def test_an_expired_lease_claims_nothing_until_it_is_renewed(self, scene: Scene) -> None:
        scene.add()
        host = scene.open_host(ttl=30)
        scene.tick(30)
        assert scene.claim(host) is None, "a lease that ends now has ended"
        scene.beat(host)
        assert scene.claim(host) is not None

    def test_the_lease_counts_boot_time_of_its_own_boot(self, scene: Scene) -> None:
        """DESIGN, Clocks: leases by CLOCK_BOOTTIME. A wall clock may jump; a lease of another boot is none."""
        scene.add()
        host = scene.open_host(ttl=30)
        rebooted = scene.now._replace(boot_id="boot-two", boottime=1.0)
        assert scene.write(lambda tx: tx.tasks.claim(host, rebooted)) is None
        scene.now = scene.now._replace(wall=scene.now.wall + 86_400, boottime=scene.now.boottime + 1)
        assert scene.claim(host) is not None

    def test_a_lost_a_stopped_and_an_unknown_host_claim_nothing(self, scene: Scene) -> None:
        scene.add()
        lost = scene.open_host()
        stopped = scene.open_host()
        scene.write(lambda tx: tx.hosts.close(stopped, scene.now))
        before = scene.everything()
        assert [scene.claim(host) for host in (lost, stopped, "nosuch")] == [None, None, None]
        assert scene.everything() == before

    def test_many_claimers_at_once_never_share_a_task(self, scene: Scene) -> None:
        """Nothing run twice: four connections claim until nothing is left."""
        tasks = [scene.add() for _ in range(24)]
        host = scene.open_host()

        def claim_all(store: Store) -> list[tuple[str, int]]:
            mine = []
            while (task := store.write(lambda tx: tx.tasks.claim(host, scene.now))) is not None:
                mine.append((task.id, task.fence))
            return mine

        stores = [scene.bench.store() for _ in range(4)]
        answers = at_once(*(partial(claim_all, store) for store in stores))
        assert refusals(answers) == []
        claimed = [claim for answer in answers if isinstance(answer, list) for claim in answer]
        assert sorted(claimed) == sorted((task.id, 1) for task in tasks)


# -- fences ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FencedWrite:
    """A write under a ownership, and what must be there before it so that only the ownership decides."""

    prepare: Callable[[Scene, Ownership], Any]
    write: Callable[[Transaction, Ownership, Any, Instant], object]


FENCED: Mapping[str, FencedWrite] = {
    "tasks.set_base": FencedWrite(
        lambda scene, ownership: None,
        lambda tx, ownership, _, now: tx.tasks.set_base(ownership, "beef", "holdfast/x", now),
    ),
    "tasks.settle": FencedWrite(
        lambda scene, ownership: scene.ended_run(ownership),
        lambda tx, ownership, run, now: tx.tasks.settle(ownership, run, COMPLETED, COMPLETE, KEEP, now),
    ),
    "tasks.leave_session": FencedWrite(
        lambda scene, ownership: None, lambda tx, ownership, _, now: tx.tasks.drop_session(ownership, "work", now)
    ),
    "runs.intend": FencedWrite(
        lambda scene, ownership: new_id(), lambda tx, ownership, run, now: tx.runs.intend(ownership, run, now)
    ),
    "runs.started": FencedWrite(
        lambda scene, ownership: scene.intend_run(ownership),
        lambda tx, ownership, run, now: tx.runs.record_start(ownership, run, 7, now),
    ),
    "runs.stopping": FencedWrite(
        lambda scene, ownership: scene.started_run(ownership),
        lambda tx, ownership, run, now: tx.runs.record_stop_request(ownership, run, StopWhy.DOWN, now),
    ),
    "runs.reported": FencedWrite(
        lambda scene, ownership: scene.started_run(ownership),
        lambda tx, ownership, run, now: tx.runs.reported(ownership, run, AgentReports(offset=7, claims=(DONE,)), now),
    ),
    "runs.ended": FencedWrite(
        lambda scene, ownership: scene.started_run(ownership),
        lambda tx, ownership, run, now: tx.runs.ended(ownership, run, COMPLETED, now),
    ),
    "workspaces.intend": FencedWrite(
        lambda scene, ownership: a_workspace(ownership.task_id, scene.repo.id),
        lambda tx, ownership, workspace, now: tx.workspaces.intend(ownership, workspace, now),
    ),
    "workspaces.ready": FencedWrite(
        lambda scene, ownership: scene.workspace_for(ownership, WorkspaceState.INTENDED),
        lambda tx, ownership, workspace, now: tx.workspaces.ready(ownership, workspace, "made", now),
    ),
}


def _adopted(scene: Scene, ownership: Ownership) -> Ownership:
    """Another incarnation took the task over; the old one does not know yet."""
    new_host = scene.open_host()
    task = scene.get(ownership.task_id)
    scene.adopt(task, new_host)
    return ownership


def _finish(scene: Scene, ownership: Ownership, decision: Decision) -> Ownership:
    """The attempt is over, its run settled; the old ownership is all that is left."""
    run = scene.write(lambda tx: tx.runs.open_run(ownership.task_id))
    if run is not None and run.state is not RunState.ENDED:
        scene.write(lambda tx: tx.runs.ended(ownership, run.id, COMPLETED, scene.now))
    scene.settle(ownership, decision, run.id if run else None)
    return ownership


def _claimed_again(scene: Scene, ownership: Ownership) -> Ownership:
    _finish(scene, ownership, REQUEUE)
    assert scene.take(ownership.owner).task_id == ownership.task_id
    return ownership


STALE: Mapping[str, Callable[[Scene, Ownership], Ownership]] = {
    "an older fence": lambda scene, ownership: replace(ownership, fence=ownership.fence - 1),
    "a fence from nowhere": lambda scene, ownership: replace(ownership, fence=ownership.fence + 1),
    "another owner": lambda scene, ownership: replace(ownership, owner="somebody-else"),
    "adopted by another host": _adopted,
    "requeued": lambda scene, ownership: _finish(scene, ownership, REQUEUE),
    "completed": lambda scene, ownership: _finish(scene, ownership, COMPLETE),
    "claimed again by the same host": _claimed_again,
}


class TestFence:
    """Promise 3: a stale holder's writes are refused, every one of them, and leave nothing behind."""

    @pytest.mark.parametrize("name", FENCED)
    def test_the_present_owner_may_write(self, scene: Scene, name: str) -> None:
        """The control: with the right ownership each of these writes happens."""
        ownership = scene.running()
        prepared = FENCED[name].prepare(scene, ownership)
        before = scene.everything()
        scene.write(lambda tx: FENCED[name].write(tx, ownership, prepared, scene.now))
        assert scene.everything() != before

    @pytest.mark.parametrize("stale", STALE)
    @pytest.mark.parametrize("name", FENCED)
    def test_a_stale_write_is_refused_and_leaves_nothing(self, scene: Scene, name: str, stale: str) -> None:
        """R-CRASH-03. The operation swallows the refusal and commits: nothing, not even an event, may come with it."""
        host = scene.open_host()
        first = scene.running(host)
        scene.settle(first, REQUEUE)
        ownership = scene.take(host)
        prepared = FENCED[name].prepare(scene, ownership)
        old = STALE[stale](scene, ownership)
        before = scene.everything()

        def swallow(tx: Transaction) -> None:
            with pytest.raises(NotOwner):
                FENCED[name].write(tx, old, prepared, scene.now)

        scene.write(swallow)
        assert scene.everything() == before

    def test_fences_only_rise(self, scene: Scene) -> None:
        """Claim, adoption, requeue, pause, resume, failure and retry: no step lowers or reuses a fence."""
        host = scene.open_host()
        ownership = scene.running(host)
        seen = [ownership.fence]
        for decision in (REQUEUE, PAUSE, FAIL):
            successor = scene.open_host()
            task = scene.get(ownership.task_id)
            adopted = scene.adopt(task, successor)
            scene.settle(grip_of(adopted), decision)
            if decision is PAUSE:
                scene.resume(ownership.task_id)
            if decision is FAIL:
                scene.retry(ownership.task_id)
            assert scene.get(ownership.task_id).fence == adopted.fence, "only a holder raises it"
            ownership = scene.take(successor)
            seen += [adopted.fence, ownership.fence]
        assert seen == sorted(set(seen))

    @pytest.mark.parametrize("name", ["runs.started", "runs.ended", "tasks.settle"])
    def test_a_grip_reaches_only_its_own_tasks_rows(self, scene: Scene, name: str) -> None:
        """DESIGN, States: every transition is a compare-and-set under id, state, fence and owner."""
        host = scene.open_host()
        mine, other = scene.running(host), scene.running(host)
        prepared = FENCED[name].prepare(scene, other)
        before = scene.runs(other.task_id)
        with pytest.raises(Conflict):
            scene.write(lambda tx: FENCED[name].write(tx, mine, prepared, scene.now))
        assert scene.runs(other.task_id) == before

    @pytest.mark.parametrize("name", ["workspaces.intend", "workspaces.ready"])
    def test_a_grip_reaches_only_its_own_tasks_workspace(self, scene: Scene, name: str) -> None:
        host = scene.open_host()
        mine, other = scene.running(host), scene.running(host)
        prepared = FENCED[name].prepare(scene, other)
        before = scene.store.view("workspaces", all=True)
        with pytest.raises(Conflict):
            scene.write(lambda tx: FENCED[name].write(tx, mine, prepared, scene.now))
        assert scene.store.view("workspaces", all=True) == before


class TestAdopt:
    """DESIGN, States: one compare-and-set moves the owner to the new incarnation and raises the fence (R-TERM-10)."""

    def test_adoption_moves_owner_and_fence_and_keeps_the_run(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        new_host = scene.open_host()
        (task,) = scene.write(lambda tx: tx.tasks.running_elsewhere(new_host))
        adopted = scene.adopt(task, new_host)
        assert (adopted.state, adopted.owner, adopted.fence) == (TaskState.RUNNING, new_host, ownership.fence + 1)
        event = scene.events(ownership.task_id)[-1]
        assert event["kind"] == "task.adopted"
        assert event["data"] == {"host": new_host, "from": ownership.owner, "fence": adopted.fence}
        new_grip = grip_of(adopted)
        scene.write(lambda tx: tx.runs.ended(new_grip, run_id, COMPLETED, scene.now))
        assert scene.settle(new_grip, COMPLETE, run_id) is TaskState.COMPLETED

    def test_a_task_of_a_live_host_is_not_adopted(self, scene: Scene) -> None:
        """Also not when that host is late with its beat: only a host that was declared lost or has stopped gives up."""
        ownership = scene.running()
        task = scene.get(ownership.task_id)
        scene.tick(10 * TTL)
        before = scene.everything()
        with pytest.raises(NotOwner):
            scene.adopt(task, ownership.owner)
        assert scene.everything() == before

    def test_a_stopped_hosts_task_may_be_adopted(self, scene: Scene) -> None:
        ownership = scene.running()
        scene.write(lambda tx: tx.hosts.close(ownership.owner, scene.now))
        new_host = scene.open_host()
        task = scene.get(ownership.task_id)
        assert scene.adopt(task, new_host).owner == new_host

    def test_only_a_live_host_adopts(self, scene: Scene) -> None:
        ownership = scene.running()
        lost = scene.open_host()
        stopped = scene.open_host()
        scene.write(lambda tx: tx.hosts.close(stopped, scene.now))
        task = scene.get(ownership.task_id)
        before = scene.everything()
        for host in (lost, stopped, "nosuch"):
            with pytest.raises(NotOwner):
                scene.adopt(task, host)
        assert scene.everything() == before

    def test_what_was_seen_before_somebody_else_adopted_is_worthless(self, scene: Scene) -> None:
        ownership = scene.running()
        seen = scene.get(ownership.task_id)
        _adopted(scene, ownership)
        third = scene.open_host()
        before = scene.everything()
        with pytest.raises(NotOwner):
            scene.adopt(seen, third)
        with pytest.raises(NotOwner):
            scene.adopt(replace(seen, owner=third), third)
        assert scene.everything() == before

    def test_what_was_seen_before_its_owner_claimed_it_again_is_worthless(self, scene: Scene) -> None:
        """Same task, same owner, another attempt: only the fence tells them apart."""
        host = scene.open_host()
        ownership = scene.running(host)
        seen = scene.get(ownership.task_id)
        _claimed_again(scene, ownership)
        new_host = scene.open_host()
        before = scene.everything()
        with pytest.raises(NotOwner):
            scene.adopt(seen, new_host)
        assert scene.everything() == before

    def test_a_task_that_does_not_run_is_not_adopted(self, scene: Scene) -> None:
        task = scene.add()
        old = scene.open_host()
        new_host = scene.open_host()
        for seen in (task, replace(task, owner=old)):
            with pytest.raises(NotOwner):
                scene.adopt(seen, new_host)
        assert scene.get(task.id) == task

    def test_two_at_once_one_adopts(self, scene: Scene) -> None:
        ownership = scene.running()
        new_host = scene.open_host()
        task = scene.get(ownership.task_id)
        answers = scene.race(lambda tx: tx.tasks.adopt(task, new_host, scene.now))
        assert [type(refusal) for refusal in refusals(answers)] == [NotOwner]
        assert scene.get(task.id).fence == ownership.fence + 1


class TestHosts:
    """One lease per incarnation; opening one ends all others, which the home's lock makes safe."""

    def test_opening_declares_the_others_lost_once(self, scene: Scene) -> None:
        first = scene.open_host()
        second = Host(id=new_id(), boot_id=BOOT, pid=2, start_ticks=1, version="0.1.0", agents=4)
        third = replace(second, id=new_id())
        assert scene.write(lambda tx: tx.hosts.open(second, TTL, scene.now)) == [first]
        assert scene.write(lambda tx: tx.hosts.open(third, TTL, scene.now)) == [second.id]
        told = [(event["kind"], event["data"]["host"]) for event in scene.events()]
        started, lost = "host.started", "host.lost"
        assert told == [(started, first), (lost, first), (started, second.id), (lost, second.id), (started, third.id)]
        assert [row["id"] for row in scene.store.view("host")] == [third.id]

    def test_a_host_that_is_lost_or_stopped_cannot_beat(self, scene: Scene) -> None:
        lost = scene.open_host()
        stopped = scene.open_host()
        scene.write(lambda tx: tx.hosts.close(stopped, scene.now))
        for host in (lost, stopped, "nosuch"):
            with pytest.raises(LeaseLost):
                scene.beat(host)
        assert scene.store.view("host") == []

    def test_running_here_and_elsewhere_split_what_runs(self, scene: Scene) -> None:
        old = scene.open_host()
        theirs = [scene.running(old).task_id for _ in range(2)]
        new_host = scene.open_host()
        mine = scene.running(new_host).task_id
        scene.add()
        here = scene.write(lambda tx: tx.tasks.running_here(new_host))
        elsewhere = scene.write(lambda tx: tx.tasks.running_elsewhere(new_host))
        assert [task.id for task in here] == [mine]
        assert [task.id for task in elsewhere] == theirs


class TestHolding:
    def test_something_waits_exactly_when_a_claim_would_find_it(self, scene: Scene) -> None:
        """The same condition as the claim's: delays, needs and exclusive checkouts count."""

        def waits() -> bool:
            return scene.write(lambda tx: tx.tasks.has_claimable_task(scene.now))

        host = scene.open_host()
        assert not waits()
        scene.add(not_before=scene.now.wall + 5)
        assert not waits()
        scene.tick(5)
        scene.beat(host)
        assert waits()
        ownership = scene.take(host)
        assert not waits()
        scene.add(needs=(ownership.task_id,))
        assert not waits()
        exclusive = scene.add(strategy=Strategy.NONE)
        assert waits()
        assert scene.take(host).task_id == exclusive.id
        scene.add(strategy=Strategy.NONE)
        assert not waits()

    def test_a_host_that_holds_says_why_until_it_is_over(self, scene: Scene) -> None:
        """One event per episode; a changed reason is only noted."""
        host = scene.open_host()
        after = scene.last_seq()
        scene.write(lambda tx: tx.hosts.hold(host, "no memory", {"memory": 1}, scene.now, tell=True))
        scene.write(lambda tx: tx.hosts.hold(host, "no memory; load", {"memory": 1}, scene.now, tell=False))
        assert scene.store.view("host")[0]["held"] == "no memory; load"
        scene.write(lambda tx: tx.hosts.release(host, "there is room", scene.now))
        scene.write(lambda tx: tx.hosts.release(host, "again", scene.now))
        assert scene.store.view("host")[0]["held"] is None
        events = [(event["kind"], event["reason"]) for event in scene.events(None, after)]
        assert events == [("dispatch.held", "no memory"), ("dispatch.released", "there is room")]
        assert scene.events(None, after)[0]["data"] == {"memory": 1}

    @pytest.mark.parametrize("how", ["closed", "lost"])
    def test_a_host_that_is_gone_holds_nothing(self, scene: Scene, how: str) -> None:
        host = scene.open_host()
        scene.write(lambda tx: tx.hosts.hold(host, "no memory", {}, scene.now, tell=True))
        if how == "closed":
            scene.write(lambda tx: tx.hosts.close(host, scene.now))
            assert "dispatch.released" in [event["kind"] for event in scene.events(None)]
        scene.open_host()
        assert scene.store.view("host")[0]["held"] is None


# -- runs --------------------------------------------------------------------------------------------------------


class TestRuns:
    def test_one_open_run_per_task_until_it_is_settled(self, scene: Scene) -> None:
        """The store itself refuses a second agent, whatever state the first run is in short of settled."""
        host = scene.open_host()
        ownership = scene.running(host)
        run_id = new_id()
        first = scene.write(lambda tx: tx.runs.intend(ownership, run_id, scene.now))
        assert (first.number, first.state, first.stop_why) == (1, RunState.INTENDED, None)
        steps: list[Callable[[Transaction], object]] = [
            lambda tx: None,
            lambda tx: tx.runs.record_start(ownership, run_id, 7, scene.now),
            lambda tx: tx.runs.record_stop_request(ownership, run_id, StopWhy.DOWN, scene.now),
            lambda tx: tx.runs.ended(ownership, run_id, ended_with(Outcome.STOPPED), scene.now),
        ]
        for step in steps:
            scene.write(step)
            before = scene.everything()
            with pytest.raises(Conflict):
                scene.intend_run(ownership)
            assert scene.everything() == before
            open_run = scene.write(lambda tx: tx.runs.open_run(ownership.task_id))
            assert open_run is not None
            assert open_run.id == run_id
        scene.settle(ownership, REQUEUE, run_id)
        assert scene.write(lambda tx: tx.runs.open_run(ownership.task_id)) is None
        claimed = scene.claim(host)
        assert claimed is not None
        second = scene.write(lambda tx: tx.runs.intend(grip_of(claimed), new_id(), scene.now))
        assert second.number == 2

    def test_what_runs_of_one_kind_took(self, scene: Scene) -> None:
        """R-TERM-13: the latest completed runs of completed tasks, of one repository and agent, newest first."""
        other = scene.write(lambda tx: tx.workspaces.register_repo("/other", "/other/.git", scene.now)).id
        host = scene.open_host()

        def lasts(seconds: float, verdict: Verdict, decision: Decision, **changes: Any) -> None:
            ownership = scene.running(host, **changes)
            run_id = scene.started_run(ownership)
            scene.tick(seconds)
            scene.write(lambda tx: tx.runs.ended(ownership, run_id, verdict, scene.now))
            scene.settle(ownership, decision, run_id)

        lasts(1.0, COMPLETED, COMPLETE)
        lasts(9.0, COMPLETED, COMPLETE, agent="command")
        lasts(8.0, COMPLETED, COMPLETE, repo_id=other)
        lasts(7.0, ended_with(Outcome.TIMEOUT), FAIL)
        lasts(2.0, COMPLETED, COMPLETE)
        lasts(3.0, COMPLETED, COMPLETE)
        repo = scene.repo.id
        assert scene.write(lambda tx: tx.runs.recent_durations(repo, "scripted", 50)) == [3.0, 2.0, 1.0]
        assert scene.write(lambda tx: tx.runs.recent_durations(repo, "scripted", 2)) == [3.0, 2.0]
        assert scene.write(lambda tx: tx.runs.recent_durations(repo, "nobody", 50)) == []

    def test_a_run_may_have_a_timeout_of_its_own(self, scene: Scene) -> None:
        """R-TERM-13: recorded with the intent, before anything is started."""
        ownership, run_id = scene.running(), new_id()
        allotted = AdaptiveTimeout(seconds=720.0, reason="adaptive: because")
        made = scene.write(lambda tx: tx.runs.intend(ownership, run_id, scene.now, allotted))
        assert made.timeout == 720.0
        (row,) = scene.runs(ownership.task_id)
        assert (row["timeout"], row["timeout_why"]) == (720.0, "adaptive: because")
        found = scene.write(lambda tx: tx.runs.open_run(ownership.task_id))
        assert found is not None
        assert found.timeout == 720.0

    def test_a_whole_run_leaves_its_columns_and_events(self, scene: Scene) -> None:
        """R-TERM-08: `agent.terminated` exactly once per run; a death that we asked for is not unexpected."""
        ownership = scene.running()
        run_id = scene.intend_run(ownership)
        after = scene.last_seq()
        at = [scene.tick() for _ in range(3)]
        scene.write(lambda tx: tx.runs.record_start(ownership, run_id, 4242, at[0]))
        scene.write(lambda tx: tx.runs.record_stop_request(ownership, run_id, StopWhy.CANCEL, at[1]))
        verdict = ended_with(Outcome.CANCELLED, "session-1", error_tail="bye")
        scene.write(lambda tx: tx.runs.ended(ownership, run_id, verdict, at[2]))
        (row,) = scene.runs(ownership.task_id)
        assert (row["state"], row["pid"], row["stop_why"]) == ("ended", 4242, "cancel")
        assert (row["started_at"], row["ended_at"]) == (at[0].wall, at[2].wall)
        assert (row["outcome"], row["reason"], row["session_id"]) == ("cancelled", verdict.reason, "session-1")
        events = scene.events(ownership.task_id, after)
        assert [e["kind"] for e in events] == ["run.started", "run.stopping", "run.ended", "agent.terminated"]
        assert {e["run"] for e in events} == {run_id}
        facts = {"outcome": "cancelled", "unexpected": False, "fence": ownership.fence}
        assert events[-2]["data"] == facts
        words = {"reason_word": "cancelled", "agent": "scripted", "stage": "work"}
        assert events[-1]["data"] == facts | words

    @pytest.mark.parametrize("outcome", Outcome)
    def test_only_an_end_that_somebody_wanted_is_expected(self, scene: Scene, outcome: Outcome) -> None:
        """R-TERM-08, R-CRASH-01."""
        ownership = scene.running()
        scene.ended_run(ownership, ended_with(outcome))
        (told,) = [e for e in scene.events(ownership.task_id) if e["kind"] == "agent.terminated"]
        wanted = outcome in {Outcome.COMPLETED, Outcome.CANCELLED, Outcome.STOPPED, Outcome.PAUSED}
        assert told["data"]["unexpected"] is not wanted
        assert told["level"] == ("info" if wanted else "warning")

    def test_the_verdict_comes_back_whole(self, scene: Scene) -> None:
        ownership = scene.running()
        verdict = ended_with(Outcome.RATE_LIMITED, "s", resets_at=START.wall + 77.5, error_tail="429\nslow down")
        run_id = scene.started_run(ownership)
        with pytest.raises(Conflict):
            scene.write(lambda tx: tx.runs.verdict(run_id))
        scene.write(lambda tx: tx.runs.ended(ownership, run_id, verdict, scene.now))
        assert scene.bench.store().write(lambda tx: tx.runs.verdict(run_id)) == verdict

    def test_a_run_may_end_without_having_started(self, scene: Scene) -> None:
        """core/states: `intended → ended`, proven never to have started."""
        ownership = scene.running()
        run_id = scene.intend_run(ownership)
        scene.write(lambda tx: tx.runs.ended(ownership, run_id, ended_with(Outcome.LOST), scene.now))
        assert scene.settle(ownership, REQUEUE, run_id) is TaskState.QUEUED

    def test_steps_out_of_turn_are_conflicts_that_change_nothing(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.ended_run(ownership)
        before = scene.everything()
        with pytest.raises(Conflict):
            scene.write(lambda tx: tx.runs.record_start(ownership, run_id, 7, scene.now))
        with pytest.raises(Conflict):
            scene.write(lambda tx: tx.runs.ended(ownership, run_id, COMPLETED, scene.now))
        scene.write(
            lambda tx: tx.runs.record_stop_request(ownership, run_id, StopWhy.CANCEL, scene.now)
        )  # too late: it ended meanwhile
        assert scene.everything() == before

    def test_a_cancel_outranks_a_down_and_nothing_outranks_a_cancel(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        seen = []
        for why in (StopWhy.DOWN, StopWhy.CANCEL, StopWhy.DOWN):
            scene.stop(ownership, run_id, why)
            seen.append(scene.runs(ownership.task_id)[0]["stop_why"])
        assert seen == ["down", "cancel", "cancel"]
        assert [e["reason"] for e in scene.events(ownership.task_id) if e["kind"] == "run.stopping"] == [
            "down",
            "cancel",
        ]

    def test_a_wish_to_stop_is_noted_before_the_start(self, scene: Scene) -> None:
        """The reason is on disk before any signal, so that a death that we asked for is never a crash."""
        ownership = scene.running()
        run_id = scene.intend_run(ownership)
        for _ in range(2):
            scene.stop(ownership, run_id, StopWhy.CANCEL)
        run = scene.write(lambda tx: tx.runs.open_run(ownership.task_id))
        assert run is not None
        assert (run.state, run.stop_why) == (RunState.INTENDED, StopWhy.CANCEL)
        assert scene.kinds(ownership.task_id).count("run.stopping") == 1, "the same wish again is no news"


# -- reports of agents -------------------------------------------------------------------------------------------


class TestReports:
    """R-TERM-12: what an agent says of itself is taken in once, and its first claim stands."""

    def report(self, scene: Scene, ownership: Ownership, run_id: str, **news: Any) -> Run:
        return scene.write(
            lambda tx: tx.runs.reported(ownership, run_id, AgentReports(**{"offset": 1} | news), scene.now)
        )

    def test_the_first_claim_stands_and_is_told_with_the_change(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        at = scene.now
        first = self.report(scene, ownership, run_id, offset=80, claims=(DONE,))
        assert first.claim == Claim(kind=DONE.kind, message=DONE.message, at=at)
        for claims in ((DONE,), (GAVE_UP,), (DONE, GAVE_UP)):
            scene.tick()
            later = self.report(scene, ownership, run_id, offset=200, claims=claims)
            assert later.claim == first.claim
        told = [event for event in scene.events(ownership.task_id) if event["kind"] == "agent.claimed"]
        assert [(event["level"], event["data"]["kind"], event["data"]["counts"]) for event in told] == [
            ("info", "complete", True),
            ("warning", "fail", False),
        ]
        scene.reopen()
        kept = scene.write(lambda tx: tx.runs.open_run(ownership.task_id))
        assert kept is not None
        assert (kept.claim, kept.heard.offset, kept.heard.contradicted) == (first.claim, 200, True)

    def test_claims_that_differ_within_one_look(self, scene: Scene) -> None:
        ownership = scene.running()
        run = self.report(scene, ownership, scene.started_run(ownership), claims=(GAVE_UP, DONE))
        assert run.claim is not None
        assert run.claim.kind is ReportKind.FAIL
        assert scene.kinds(ownership.task_id).count("agent.claimed") == 2

    def test_progress_is_an_event_and_the_reason_that_people_see(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        half = Report(kind=ReportKind.PROGRESS, message="tests", percent=50)
        self.report(scene, ownership, run_id, progress=half)
        assert scene.row(ownership.task_id)["reason"] == "its agent is at 50 %: tests"
        self.report(scene, ownership, run_id, claims=(DONE,))
        assert "complete: all tests pass" in scene.row(ownership.task_id)["reason"]
        self.report(scene, ownership, run_id, progress=half)
        assert "complete" in scene.row(ownership.task_id)["reason"], "a claim is not talked over"
        assert _json(scene.runs(ownership.task_id)[0]["reports"])["progress"]["message"] == "tests"
        assert scene.kinds(ownership.task_id).count("agent.progress") == 2

    def test_refusals_are_counted_and_told_once(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        for _ in range(3):
            run = self.report(scene, ownership, run_id, refused=2, refused_why="a wrong token")
        assert run.heard.refused == 6
        assert scene.kinds(ownership.task_id).count("agent.reports-refused") == 1

    def test_a_run_that_has_ended_reports_no_more(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.ended_run(ownership)
        before = scene.everything()
        with pytest.raises(Conflict):
            self.report(scene, ownership, run_id, claims=(DONE,))
        with pytest.raises(NotFound):
            self.report(scene, ownership, "no-such-run", claims=(DONE,))
        assert scene.everything() == before


# -- settle ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ending:
    """A decision and every column that it must leave in the task's row."""

    decision: Decision
    verdict: Verdict
    event: tuple[str, str]  # kind, level
    columns: Row


NOTHING_KNOWN = '{"changed":null,"refused":null,"first":[]}'  # of an ended task whose runs recorded no result


def _ending(
    state: str, event: str, decision: Decision, verdict: Verdict, level: str = "info", **columns: Any
) -> Ending:
    unless_told = {"failure_reason": None, "pause_reason": None, "resume_after": None, "not_before": None}
    terminal = state in ("completed", "failed", "cancelled")
    told = {
        "state": state,
        "reason": decision.reason,
        "outcome": str(verdict.outcome),
        "owner": None,
        "ended_at": START.wall + 100 if terminal else None,
        "updated_at": START.wall + 100,
        "session_id": "session-2",
        "truth": NOTHING_KNOWN if terminal else None,
    }
    return Ending(decision, verdict, (event, level), unless_told | told | columns)


_AUTH = Decision(action=PolicyAction.PAUSE, reason="log in again", pause=PauseReason.AUTH, alert=True)
_CRASH_LOOP = replace(FAIL, failure="crash_loop", alert=True, spends=(Budget.CRASH, Budget.RUNS))
_NEW_SESSION = replace(REQUEUE, keeps_session=False, spends=(Budget.SESSION, Budget.RUNS))

ENDINGS: Mapping[str, Ending] = {
    "complete": _ending("completed", "task.completed", COMPLETE, ended_with(Outcome.COMPLETED, "session-2")),
    "fail": _ending(
        "failed", "task.failed", FAIL, ended_with(Outcome.FAILED, "session-2"), "warning", failure_reason="failed"
    ),
    "fail, spent out": _ending(
        "failed",
        "task.failed",
        _CRASH_LOOP,
        ended_with(Outcome.CRASHED, "session-2"),
        "warning",
        failure_reason="crash_loop",
    ),
    "requeue at once": _ending("queued", "task.requeued", REQUEUE, ended_with(Outcome.LOST), session_id="session-1"),
    "requeue with back-off": _ending(
        "queued",
        "task.requeued",
        replace(REQUEUE, delay=8.0, spends=(Budget.RETRY, Budget.RUNS)),
        ended_with(Outcome.TIMEOUT, "session-2"),
        not_before=START.wall + 108,
    ),
    "requeue, session lost": _ending(
        "queued", "task.requeued", _NEW_SESSION, ended_with(Outcome.SESSION_LOST, "session-2"), session_id=None
    ),
    "pause until the reset": _ending(
        "paused",
        "task.paused",
        PAUSE,
        ended_with(Outcome.RATE_LIMITED, "session-2"),
        pause_reason="rate_limit",
        resume_after=START.wall + 60,
    ),
    "pause for an operator": _ending(
        "paused", "task.paused", _AUTH, ended_with(Outcome.AUTH, "session-2"), pause_reason="auth"
    ),
    "cancel": _ending("cancelled", "task.cancelled", CANCEL, ended_with(Outcome.CANCELLED, "session-2")),
}


class TestSettle:
    """Promises 3 to 5: the end of an attempt is one transaction, with its spends, its event and its run."""

    def attempt(self, scene: Scene, ending: Ending) -> tuple[Ownership, str]:
        """A second attempt (so there is a session from before) with a workspace and an ended run."""
        host = scene.open_host(ttl=1_000)
        ownership = scene.running(host)
        scene.settle(ownership, replace(REQUEUE, spends=()), verdict=ended_with(Outcome.STOPPED, "session-1"))
        ownership = scene.take(host)
        scene.workspace_for(ownership)
        run_id = scene.ended_run(ownership, ending.verdict)
        scene.tick(100)
        return ownership, run_id

    @pytest.mark.parametrize("name", ENDINGS)
    def test_every_column_event_spend_and_run_of_an_ending(self, scene: Scene, name: str) -> None:
        """R-RES-01, R-CRASH-03, R-CRASH-09."""
        ending = ENDINGS[name]
        ownership, run_id = self.attempt(scene, ending)
        before, after = scene.row(ownership.task_id), scene.last_seq()

        state = scene.settle(ownership, ending.decision, run_id, ending.verdict, KEEP)

        assert state == ending.columns["state"]
        assert scene.row(ownership.task_id) == before | ending.columns
        assert scene.spends(ownership.task_id) == [str(budget) for budget in ending.decision.spends]
        ledger = scene.write(lambda tx: tx.tasks.ledger(tx.tasks.get(ownership.task_id)))
        assert {entry.at for entry in ledger} <= {scene.now}
        assert [run["state"] for run in scene.runs(ownership.task_id)] == ["settled"]
        told = scene.events(ownership.task_id, after)[0]
        assert (told["kind"], told["level"], told["run"]) == (*ending.event, run_id)
        assert told["reason"] == ending.decision.reason
        assert told["data"] == {
            "outcome": str(ending.verdict.outcome),
            "fence": ownership.fence,
            "delay": ending.decision.delay,
            "resume_after": ending.decision.resume_after,
            "pause_reason": ending.decision.pause,
            "failure_reason": ending.decision.failure,
            "spends": [str(budget) for budget in ending.decision.spends],
        }
        crashed = ["crash.recorded"] * (ending.verdict.outcome is Outcome.CRASHED)
        expected = [ending.event[0], *crashed] + ["alert.raised"] * ending.decision.alert
        assert scene.kinds(ownership.task_id, after) == expected

    @pytest.mark.parametrize("name", ENDINGS)
    def test_only_an_ending_decides_the_workspaces_fate(self, scene: Scene, name: str) -> None:
        """R-CLEAN-03: between attempts the workspace stays `ready`; only a terminal state cleans or preserves."""
        ending = ENDINGS[name]
        ownership, run_id = self.attempt(scene, ending)
        state = scene.settle(ownership, ending.decision, run_id, ending.verdict, KEEP)
        workspace = scene.current(ownership.task_id)
        assert workspace is not None
        assert workspace.state is WorkspaceState.READY, "settling decides; the clean-up service carries it out"
        terminal = state in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELLED)
        assert workspace.disposition == ("preserve" if terminal else None)
        (row,) = scene.store.view("workspace", id=ownership.task_id)
        assert row["reason"] == ("preserve_on_failure=true (task)" if terminal else "test: ready")

    def test_an_alert_names_the_task_and_the_way_on(self, scene: Scene) -> None:
        """R-CRASH-06."""
        ending = ENDINGS["fail, spent out"]
        ownership, run_id = self.attempt(scene, ending)
        scene.settle(ownership, ending.decision, run_id, ending.verdict, KEEP)
        (alert,) = scene.store.view("alerts", all=False)
        assert (alert["task"], alert["level"], alert["count"]) == (ownership.task_id, "critical", 1)
        assert f"holdfast retry {ownership.task_id}" in str(alert["remedy"])

    def test_settle_is_all_or_nothing(self, scene: Scene) -> None:
        """A transaction that dies after the settle takes the run, the spends, the dependents and the event with it."""
        ending = ENDINGS["fail, spent out"]
        ownership, run_id = self.attempt(scene, ending)
        scene.add(needs=(ownership.task_id,))
        before = scene.everything()

        def settle_and_die(tx: Transaction) -> None:
            tx.tasks.settle(ownership, run_id, ending.verdict, ending.decision, KEEP, scene.now)
            raise RuntimeError("killed before the commit")

        with pytest.raises(RuntimeError, match="killed before the commit"):
            scene.write(settle_and_die)
        assert scene.everything() == before

    def test_a_task_is_settled_once(self, scene: Scene) -> None:
        """Nothing run twice: one accepted result."""
        ownership = scene.running()
        run_id = scene.ended_run(ownership)
        scene.settle(ownership, COMPLETE, run_id)
        before = scene.everything()
        with pytest.raises(NotOwner):
            scene.settle(ownership, FAIL, run_id)
        assert scene.everything() == before

    def test_a_run_that_has_not_ended_cannot_be_settled(self, scene: Scene) -> None:
        """Death before release."""
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        before = scene.everything()
        with pytest.raises(Conflict):
            scene.settle(ownership, REQUEUE, run_id)
        assert scene.everything() == before

    def test_a_task_with_an_open_run_is_not_settled_past_it(self, scene: Scene) -> None:
        """Death before release: a claim is never released while its agent might live."""
        ownership = scene.running()
        scene.started_run(ownership)
        with pytest.raises(Conflict):
            scene.settle(ownership, REQUEUE, None)

    def test_a_frozen_task_is_not_released(self, scene: Scene) -> None:
        """DESIGN, outcome `unknown`: freeze is no ending. Settling with it is refused and changes nothing."""
        ownership = scene.running()
        run_id = scene.ended_run(ownership, ended_with(Outcome.UNKNOWN))
        before = scene.everything()
        freeze = Decision(action=PolicyAction.FREEZE, reason="cannot prove it dead", alert=True)
        with pytest.raises(Conflict, match="nothing proves its end"):
            scene.settle(ownership, freeze, run_id)
        assert scene.everything() == before

    def test_without_a_run_too(self, scene: Scene) -> None:
        """A launch that failed before any run was intended."""
        ownership = scene.running()
        assert scene.settle(ownership, FAIL, None, ended_with(Outcome.LAUNCH_ERROR)) is TaskState.FAILED
        assert scene.row(ownership.task_id)["outcome"] == "launch_error"
        assert scene.spends(ownership.task_id) == ["runs"]

    def test_completion_resets_resume_attempts_and_nothing_else_does(self, scene: Scene) -> None:
        """R-RES-05: not another pause, not a requeue, not a failure."""
        host = scene.open_host()
        ownership = scene.running(host)
        counts = []
        for decision in (PAUSE, PAUSE, REQUEUE, COMPLETE):
            scene.settle(ownership, decision, scene.ended_run(ownership))
            counts.append(scene.get(ownership.task_id).resume_attempts)
            if decision is PAUSE:
                scene.resume(ownership.task_id)
            claimed = scene.claim(host)
            if claimed is not None:
                ownership = grip_of(claimed)
        assert counts == [0, 1, 2, 0]

        failed = scene.paused()
        scene.resume(failed)
        claimed = scene.claim(scene.open_host())
        assert claimed is not None
        scene.settle(grip_of(claimed), FAIL)
        assert scene.get(failed).resume_attempts == 1

    def test_the_first_base_and_branch_are_kept_across_attempts(self, scene: Scene) -> None:
        host = scene.open_host()
        ownership = scene.running(host)
        scene.write(lambda tx: tx.tasks.set_base(ownership, "c0ffee", "holdfast/x", scene.now))
        scene.settle(ownership, REQUEUE)
        claimed = scene.claim(host)
        assert claimed is not None
        assert (claimed.base_commit, claimed.branch) == ("c0ffee", "holdfast/x")

    @pytest.mark.parametrize("decision", [None, REQUEUE, PAUSE, COMPLETE, FAIL, CANCEL])
    def test_a_branch_is_forgotten_only_after_the_end(self, scene: Scene, decision: Decision | None) -> None:
        """Its branch had no commit of its own and was deleted: nobody is to be sent there."""
        ownership = scene.running()
        scene.write(lambda tx: tx.tasks.set_base(ownership, "c0ffee", "holdfast/x", scene.now))
        if decision is not None:
            scene.settle(ownership, decision)
        scene.write(lambda tx: tx.tasks.clear_branch(ownership.task_id, scene.now))
        over = decision in (COMPLETE, FAIL, CANCEL)
        assert scene.get(ownership.task_id).branch == (None if over else "holdfast/x")
        assert scene.get(ownership.task_id).base_commit == "c0ffee"


class TestDependents:
    """DESIGN, States: a dependent of a failed or cancelled task is cancelled, with that reason."""

    def family(self, scene: Scene) -> tuple[Ownership, dict[str, str]]:
        """a ← b ← c, and d needs both a and c: a diamond. e has nothing to do with them."""
        a = scene.running()
        b = scene.add(needs=(a.task_id,)).id
        c = scene.add(needs=(b,)).id
        d = scene.add(needs=(a.task_id, c)).id
        return a, {"b": b, "c": c, "d": d, "e": scene.add().id}

    @pytest.mark.parametrize(("decision", "word"), [(FAIL, "has failed"), (CANCEL, "was cancelled")])
    def test_all_are_cancelled_transitively_once_each(self, scene: Scene, decision: Decision, word: str) -> None:
        a, ids = self.family(scene)
        scene.settle(a, decision)
        assert {name: scene.state(i) for name, i in ids.items()} == {
            "b": TaskState.CANCELLED,
            "c": TaskState.CANCELLED,
            "d": TaskState.CANCELLED,
            "e": TaskState.QUEUED,
        }
        assert scene.row(ids["b"])["reason"] == f"it needs task {a.task_id}, which {word}"
        assert scene.row(ids["c"])["reason"] == f"it needs task {ids['b']}, which was cancelled"
        for name in "bcd":
            (told,) = [e for e in scene.events(ids[name]) if e["kind"] == "task.cancelled"]
            assert told["reason"] == scene.row(ids[name])["reason"]
            assert scene.row(ids[name])["ended_at"] == scene.now.wall

    def test_a_long_chain_is_cancelled_to_its_end(self, scene: Scene) -> None:
        """Longer than any stack."""
        ownership = scene.running()
        specs = [scene.spec(needs=(ownership.task_id,))]
        for _ in range(1_200):
            specs.append(scene.spec(needs=(specs[-1].id,)))
        scene.write(lambda tx: [tx.tasks.add(spec, scene.now) for spec in specs])
        scene.settle(ownership, FAIL)
        assert {row["state"] for row in scene.tasks() if row["id"] != ownership.task_id} == {"cancelled"}
        assert scene.kinds().count("task.cancelled") == len(specs)

    def test_completion_cancels_nobody(self, scene: Scene) -> None:
        a, ids = self.family(scene)
        scene.settle(a, COMPLETE)
        assert {scene.state(i) for i in ids.values()} == {TaskState.QUEUED}

    @pytest.mark.parametrize("decision", [REQUEUE, PAUSE], ids=["requeue", "pause"])
    def test_what_may_still_complete_cancels_nobody(self, scene: Scene, decision: Decision) -> None:
        a, ids = self.family(scene)
        scene.settle(a, decision)
        assert {scene.state(i) for i in ids.values()} == {TaskState.QUEUED}

    def test_a_waiting_task_that_is_cancelled_takes_its_dependents_along(self, scene: Scene) -> None:
        root = scene.add().id
        dependent = scene.add(needs=(root,)).id
        last = scene.add(needs=(dependent,)).id
        scene.cancel(root)
        assert [scene.state(i) for i in (root, dependent, last)] == [TaskState.CANCELLED] * 3

    def test_the_resume_limit_takes_dependents_along_and_leaves_subtasks_alone(self, scene: Scene) -> None:
        """R-RES-10, R-CLEAN-09."""
        parent = scene.paused(max_resumes=0)
        subtask = scene.add(parent_id=parent).id
        dependent = scene.add(needs=(parent,)).id
        assert scene.resume_due(parent).allowed is False
        assert (scene.state(subtask), scene.state(dependent)) == (TaskState.QUEUED, TaskState.CANCELLED)

    def test_a_retry_of_a_task_whose_need_cannot_complete_is_refused(self, scene: Scene) -> None:
        """Promise 5, and the reason that `add` gives for refusing the same thing."""
        a, ids = self.family(scene)
        scene.settle(a, FAIL)
        with pytest.raises(Conflict):
            scene.retry(ids["b"])


# -- operators' commands -----------------------------------------------------------------------------------------


class TestCancelWaiting:
    @pytest.mark.parametrize("state", ["queued", "paused"])
    def test_a_waiting_task_is_cancelled_with_who_and_why(self, scene: Scene, state: str) -> None:
        """R-CLEAN-10: the workspace of a cancelled task is cleaned too."""
        ownership = scene.running()
        scene.workspace_for(ownership)
        scene.settle(ownership, PAUSE if state == "paused" else replace(REQUEUE, delay=60))
        after = scene.last_seq()
        scene.tick()
        scene.cancel(ownership.task_id, "not needed")
        row = scene.row(ownership.task_id)
        assert (row["state"], row["reason"]) == ("cancelled", "cancelled by ann: not needed")
        assert (row["owner"], row["not_before"], row["ended_at"]) == (None, None, scene.now.wall)
        assert [(e["kind"], e["reason"]) for e in scene.events(ownership.task_id, after)] == [
            ("task.cancelled", "cancelled by ann: not needed")
        ]
        (workspace,) = scene.write(lambda tx: tx.workspaces.to_clean(scene.now))
        assert (workspace.task_id, workspace.disposition) == (ownership.task_id, "salvage"), "nobody saved its work yet"
        assert scene.write(lambda tx: tx.tasks.tasks_due_to_resume(scene.tick(1_000))) == []

    @pytest.mark.parametrize("decision", [None, COMPLETE, FAIL, CANCEL])
    def test_only_a_waiting_one(self, scene: Scene, decision: Decision | None) -> None:
        """Requests, not pokes: only its supervisor settles a running task."""
        ownership = scene.running()
        if decision is not None:
            scene.settle(ownership, decision)
        before = scene.everything()
        with pytest.raises(Conflict, match="nothing was changed"):
            scene.cancel(ownership.task_id)
        assert scene.everything() == before

    def test_an_unknown_one(self, scene: Scene) -> None:
        with pytest.raises(NotFound, match="Task not found: nosuch"):
            scene.cancel("nosuch")


class TestResume:
    """One compare-and-set for manual, automatic and API resumes."""

    def test_a_resume_counts_requeues_and_tells(self, scene: Scene) -> None:
        """R-RES-02, R-RES-07."""
        task_id = scene.paused()
        after = scene.last_seq()
        decision = scene.resume(task_id)
        assert (decision.allowed, decision.attempt) == (True, 1)
        row = scene.row(task_id)
        assert (row["state"], row["resume_attempts"]) == ("queued", 1)
        assert (row["pause_reason"], row["resume_after"], row["reason"]) == (None, None, "resume 1 of 3")
        assert scene.spends(task_id) == ["resume"]
        (told,) = scene.events(task_id, after)
        assert told["kind"] == "task.resumed"
        assert "resume 1 of 3" in told["message"]
        assert told["data"] == {"resume_attempts": 1, "max_resume_attempts": 3, "by": "ann", "forced": False}

    @pytest.mark.parametrize("decision", [None, REQUEUE, COMPLETE, FAIL, CANCEL])
    def test_what_is_not_paused_is_a_conflict_that_changes_nothing(
        self, scene: Scene, decision: Decision | None
    ) -> None:
        """R-RES-02."""
        ownership = scene.running()
        if decision is not None:
            scene.settle(ownership, decision)
        before = scene.everything()
        with pytest.raises(Conflict, match="not paused"):
            scene.resume(ownership.task_id)
        assert scene.everything() == before

    def test_an_unknown_task(self, scene: Scene) -> None:
        """R-RES-02."""
        with pytest.raises(NotFound, match=r"^Task not found: nosuch$"):
            scene.resume("nosuch")

    @pytest.mark.parametrize("round_", range(5))
    def test_two_at_once_one_wins_and_the_counter_rises_by_one(self, scene: Scene, round_: int) -> None:
        """R-RES-02: the other gets a clear conflict and spends nothing."""
        task_id = scene.paused()
        answers = scene.race(lambda tx: tx.tasks.resume(task_id, "ann", scene.now))
        assert [type(refusal) for refusal in refusals(answers)] == [Conflict]
        assert scene.get(task_id).resume_attempts == 1
        assert scene.spends(task_id).count("resume") == 1
        assert scene.kinds(task_id).count("task.resumed") == 1

    def test_two_in_one_batch_of_a_writer(self, scene: Scene) -> None:
        """R-RES-02, on the supervisor's way to write."""
        task_id = scene.paused()

        async def both() -> list[ResumeDecision | BaseException]:
            writer = scene.bench.writer()
            try:
                operations = [writer.write(lambda tx: tx.tasks.resume(task_id, "auto", scene.now)) for _ in range(2)]
                return await asyncio.gather(*operations, return_exceptions=True)
            finally:
                writer.close()

        answers = within_patience(both())
        assert sorted(type(answer).__name__ for answer in answers) == ["Conflict", "ResumeDecision"]
        assert scene.get(task_id).resume_attempts == 1

    @pytest.mark.parametrize("limit", [3, 1, 0])
    def test_beyond_the_limit_the_task_fails_and_the_pause_fields_stay(self, scene: Scene, limit: int) -> None:
        """R-RES-03, R-RES-04, R-CLEAN-09: with 3, the 4th fails as (4/3); 0 allows none."""
        host = scene.open_host()
        ownership = scene.running(host, max_resumes=limit, preserve_on_failure=True)
        scene.workspace_for(ownership)
        for _ in range(limit):
            scene.settle(ownership, PAUSE, scene.ended_run(ownership, ended_with(Outcome.RATE_LIMITED)))
            assert scene.resume(ownership.task_id).allowed
            ownership = scene.take(host)
        scene.settle(ownership, PAUSE, scene.ended_run(ownership, ended_with(Outcome.RATE_LIMITED)))
        paused, after, spends = scene.row(ownership.task_id), scene.last_seq(), scene.spends(ownership.task_id)

        scene.tick()
        before = scene.everything()
        by_hand = scene.resume(ownership.task_id)
        assert (by_hand.allowed, by_hand.attempt) == (False, limit + 1)
        assert scene.everything() == before, "only an automatic resume may end a task"
        decision = scene.resume_due(ownership.task_id)

        words = f"Maximum resume attempts exceeded ({limit + 1}/{limit})"
        assert (decision.allowed, decision.attempt) == (False, limit + 1)
        assert words in decision.message
        assert f"holdfast events {ownership.task_id}" in decision.message
        assert scene.row(ownership.task_id) == paused | {
            "state": "failed",
            "reason": decision.message,
            "failure_reason": "max_resume_attempts_exceeded",
            "resume_attempts": limit + 1,
            "updated_at": scene.now.wall,
            "ended_at": scene.now.wall,
            "truth": NOTHING_KNOWN,
        }
        assert (paused["pause_reason"], paused["resume_after"]) == ("rate_limit", PAUSE.resume_after)
        told = scene.events(ownership.task_id, after)
        kinds = ["task.resume-refused", "task.failed", "alert.raised"]
        assert [event["kind"] for event in told] == kinds, "in this order"
        assert told[2]["reason"] == f"task:{ownership.task_id}:resumes"
        for event in told[:2]:
            assert (event["level"], event["message"]) == ("warning", f"{decision.message}.")
            assert event["data"] == {
                "resume_attempts": limit + 1,
                "max_resume_attempts": limit,
                "by": "the supervisor",
                "failure_reason": "max_resume_attempts_exceeded",
            }
        assert scene.spends(ownership.task_id) == spends, "a refused resume spends nothing"
        (workspace,) = scene.write(lambda tx: tx.workspaces.to_clean(scene.now))
        assert workspace.disposition == "preserve"
        assert scene.write(lambda tx: tx.tasks.tasks_due_to_resume(scene.tick(1_000))) == []

    def test_a_resume_that_would_be_refused_fails_the_task_at_its_pause(self, scene: Scene) -> None:
        """R-RES-04: the same events, numbers and fields, without a wait that only ends in a failure."""
        host = scene.open_host()
        ownership = scene.running(host, max_resumes=0)
        run, after = scene.ended_run(ownership, ended_with(Outcome.RATE_LIMITED)), scene.last_seq()
        refused = decide_resume(0, 0, ownership.task_id)
        decision = replace(
            PAUSE, action=PolicyAction.FAIL, reason=refused.message, failure=RESUMES_SPENT, refused=refused
        )
        scene.settle(ownership, decision, run)
        row = scene.row(ownership.task_id)
        assert (row["state"], row["failure_reason"], row["resume_attempts"]) == ("failed", RESUMES_SPENT, 1)
        assert (row["pause_reason"], row["resume_after"]) == ("rate_limit", PAUSE.resume_after)
        told = [event for event in scene.events(ownership.task_id, after) if event["kind"].startswith("task.")]
        assert [event["kind"] for event in told] == ["task.resume-refused", "task.failed"]
        numbers = {(event["data"]["resume_attempts"], event["data"]["max_resume_attempts"]) for event in told}
        assert numbers == {(1, 0)}
        assert {event["data"]["failure_reason"] for event in told} == {RESUMES_SPENT}

    def test_a_run_without_an_answer_returns_its_resume(self, scene: Scene) -> None:
        """R-RES-08: one limit costs one resume at most, however many probes meet it."""
        host = scene.open_host()
        ownership = scene.running(host, max_resumes=1)
        for _ in range(3):
            scene.settle(ownership, replace(PAUSE, returns_resume=True), scene.ended_run(ownership))
            assert scene.get(ownership.task_id).resume_attempts == 0
            assert scene.resume(ownership.task_id).attempt == 1
            ownership = scene.take(host)

    @pytest.mark.parametrize("end", ["refused", "cancelled", "paused by an operator and resumed"])
    def test_a_wait_ends_with_its_pause(self, scene: Scene, end: str) -> None:
        """The time of a task that no longer waits for a limit stops growing, and is not counted twice."""
        task_id = scene.paused(replace(PAUSE, spends=(Budget.RUNS, Budget.WAIT)), max_resumes=0)
        scene.tick(100)
        if end == "refused":
            assert not scene.resume_due(task_id).allowed
        elif end == "cancelled":
            scene.cancel(task_id)
        else:
            scene.write(lambda tx: tx.tasks.pause_waiting(task_id, "ann", "", None, scene.now))
            assert scene.resume(task_id).allowed
        assert scene.spends(task_id) == ["runs", "wait", "waited"]

    def test_a_run_remembers_that_no_model_answered(self, scene: Scene) -> None:
        """A supervisor that was killed before the settle decides the same."""
        ownership = scene.running(scene.open_host())
        run = scene.ended_run(ownership, replace(ended_with(Outcome.RATE_LIMITED), has_answer=False))
        assert scene.write(lambda tx: tx.runs.verdict(run)).has_answer is False
        other = scene.ended_run(scene.running(scene.open_host()))
        assert scene.write(lambda tx: tx.runs.verdict(other)).has_answer

    @pytest.mark.parametrize(
        "pause", [PauseReason.AUTH, PauseReason.BILLING, PauseReason.APPROVAL, PauseReason.OPERATOR]
    )
    def test_what_a_person_put_right_spends_no_resume(self, scene: Scene, pause: PauseReason) -> None:
        """DESIGN, States: approving or fixing an account spends no resume, not even with a limit of 0."""
        task_id = scene.paused(replace(PAUSE, pause=pause, resume_after=None), max_resumes=0)
        assert scene.get(task_id).pause_reason is pause
        assert scene.resume(task_id).allowed
        task = scene.get(task_id)
        assert (task.state, task.resume_attempts, task.pause_reason) == (TaskState.QUEUED, 0, None)
        assert scene.spends(task_id) == []
        with pytest.raises(Conflict, match="not paused"):
            scene.resume(task_id)

    def test_the_counter_is_durable(self, scene: Scene) -> None:
        """R-RES-02: it lives in the store, not in a supervisor."""
        task_id = scene.paused()
        scene.resume(task_id)
        scene.reopen()
        assert scene.get(task_id).resume_attempts == 1

    def test_due_tasks_come_from_the_store_in_order(self, scene: Scene) -> None:
        """R-RES-08: what is due is read from the store, after any restart."""
        due_at = {30.0: "", 10.0: "", 20.0: ""}
        for seconds in due_at:
            due_at[seconds] = scene.paused(replace(PAUSE, resume_after=START.wall + seconds))
        by_hand = scene.paused(_AUTH)
        delayed = scene.running(scene.open_host())
        scene.settle(delayed, replace(REQUEUE, delay=5.0))
        store = scene.bench.store()

        def due(seconds: float) -> list[str]:
            at = START._replace(wall=START.wall + seconds)
            return list(store.write(lambda tx: tx.tasks.tasks_due_to_resume(at)))

        def next_due(seconds: float) -> float | None:
            at = START._replace(wall=START.wall + seconds)
            found = store.write(lambda tx: tx.tasks.next_due_time(at))
            return None if found is None else found - START.wall

        assert [due(9.9), due(10), due(60)] == [[], [due_at[10.0]], [due_at[10.0], due_at[20.0], due_at[30.0]]]
        assert (next_due(0), next_due(5)) == (5.0, 10.0)
        assert by_hand not in due(1_000_000)
        assert scene.write(lambda tx: tx.tasks.unfinished_count()) == 4, "one waits for an operator and is not work"


class TestRetry:
    def ended_task(self, scene: Scene, decision: Decision = FAIL, state: WorkspaceState | None = None) -> str:
        ownership = scene.running()
        if state is not None:
            scene.workspace_for(ownership)
        verdict = ended_with(Outcome.FAILED, "session-1")
        scene.settle(ownership, decision, scene.ended_run(ownership, verdict), verdict, KEEP)
        workspace = scene.current(ownership.task_id)
        if workspace is not None and state not in (None, WorkspaceState.READY):
            assert state is not None
            scene.move(workspace, state)
        return ownership.task_id

    @pytest.mark.parametrize("decision", [FAIL, CANCEL], ids=["failed", "cancelled"])
    def test_a_retry_starts_budgets_afresh_in_a_new_generation(self, scene: Scene, decision: Decision) -> None:
        """R-RES-05; promise 4: the old spends stay, but only an operator starts a new ledger."""
        task_id = self.ended_task(scene, replace(decision, spends=(Budget.CRASH, Budget.RUNS)))
        before, after = scene.row(task_id), scene.last_seq()
        scene.tick()
        scene.retry(task_id)
        assert scene.row(task_id) == before | {
            "state": "queued",
            "reason": "retried by ann, where it stopped",
            "failure_reason": None,
            "generation": 1,
            "updated_at": scene.now.wall,
            "ended_at": None,
            "truth": None,
        }
        task = scene.get(task_id)
        assert scene.write(lambda tx: tx.tasks.ledger(task)) == []
        assert scene.spends(task_id) == ["crash", "runs"], "history is kept"
        assert [(e["kind"], e["data"]) for e in scene.events(task_id, after)] == [("task.queued", {"by": "ann"})]

        scene.settle(scene.take(scene.open_host()), REQUEUE)
        task = scene.get(task_id)
        assert [entry.budget for entry in scene.write(lambda tx: tx.tasks.ledger(task))] == [Budget.LOST]
        assert scene.spends(task_id) == ["crash", "runs", "lost"]

    def test_a_retry_after_the_resume_limit_clears_the_pause(self, scene: Scene) -> None:
        """R-RES-05."""
        task_id = scene.paused(max_resumes=0)
        scene.resume_due(task_id)
        scene.retry(task_id)
        row = scene.row(task_id)
        assert (row["resume_attempts"], row["pause_reason"], row["resume_after"]) == (0, None, None)

    def test_fresh_forgets_the_session_and_plain_keeps_it(self, scene: Scene) -> None:
        """DESIGN: retry continues where it stopped; `--fresh` starts from the base."""
        kept, dropped = self.ended_task(scene), self.ended_task(scene)
        scene.retry(kept)
        scene.retry(dropped, fresh=True)
        assert (scene.get(kept).fresh, scene.get(kept).session_id) == (False, "session-1")
        assert (scene.get(dropped).fresh, scene.get(dropped).session_id) == (True, None)

    @pytest.mark.parametrize("state", [WorkspaceState.PRESERVED, WorkspaceState.TRASHED, WorkspaceState.GONE, None])
    def test_allowed_once_the_workspace_is_preserved_or_put_away(
        self, scene: Scene, state: WorkspaceState | None
    ) -> None:
        task_id = self.ended_task(scene, state=state)
        scene.retry(task_id)
        assert scene.state(task_id) is TaskState.QUEUED

    def test_a_conflict_while_the_workspace_is_still_ready(self, scene: Scene) -> None:
        """DESIGN: retry is a conflict until the last ending is carried out."""
        task_id = self.ended_task(scene, state=WorkspaceState.READY)
        before = scene.everything()
        with pytest.raises(Conflict, match="holdfast up"):
            scene.retry(task_id)
        assert scene.everything() == before

    @pytest.mark.parametrize("decision", [None, REQUEUE, PAUSE, COMPLETE])
    def test_only_a_failed_or_cancelled_task(self, scene: Scene, decision: Decision | None) -> None:
        ownership = scene.running()
        if decision is not None:
            scene.settle(ownership, decision)
        before = scene.everything()
        with pytest.raises(Conflict, match="Nothing was changed"):
            scene.retry(ownership.task_id)
        assert scene.everything() == before

    def test_two_at_once_one_wins(self, scene: Scene) -> None:
        task_id = self.ended_task(scene)
        answers = scene.race(lambda tx: tx.tasks.retry(task_id, "ann", False, scene.now))
        assert [type(refusal) for refusal in refusals(answers)] == [Conflict]
        assert scene.get(task_id).generation == 1

    def test_fresh_holds_until_an_attempt_had_its_workspace(self, scene: Scene) -> None:
        """A host that is lost before the workspace was made must not turn --fresh into a continuation."""
        host = scene.open_host()
        ownership = scene.running(host)
        scene.settle(ownership, FAIL)
        scene.retry(ownership.task_id, fresh=True)
        scene.settle(scene.take(host), REQUEUE, None, ended_with(Outcome.LOST))
        assert scene.get(ownership.task_id).fresh
        ownership = scene.take(host)
        workspace = scene.workspace_for(ownership, WorkspaceState.INTENDED)
        assert scene.get(ownership.task_id).fresh
        scene.write(lambda tx: tx.workspaces.ready(ownership, workspace, "made", scene.now))
        assert not scene.get(ownership.task_id).fresh

    def test_a_conflict_while_a_dropped_workspace_is_being_put_away(self, scene: Scene) -> None:
        """Dropped by an operator, retried before that was carried out: either the tree or the retry, never both."""
        task_id = self.ended_task(scene, state=WorkspaceState.PRESERVED)
        workspace = scene.current(task_id)
        assert workspace is not None
        scene.dispose(workspace, "salvage", "dropped by ann")
        before = scene.everything()
        with pytest.raises(Conflict, match="still being removed"):
            scene.retry(task_id)
        assert scene.everything() == before


class TestRequests:
    """DESIGN: requests, not pokes: durable, with who, when and why."""

    def test_asked_pending_answered(self, scene: Scene) -> None:
        task = scene.add()
        first = scene.write(
            lambda tx: tx.requests.ask(
                RequestKind.CANCEL, task.id, "ann", "too slow", {"now": True, "n": [1]}, scene.now
            )
        )
        second = scene.write(lambda tx: tx.requests.ask(RequestKind.DOWN, None, "bob", "", {}, scene.tick()))
        pending = scene.bench.store().write(lambda tx: tx.requests.pending())
        assert [request.id for request in pending] == [first, second]
        assert (pending[0].kind, pending[0].task_id, pending[0].by) == (RequestKind.CANCEL, task.id, "ann")
        assert (pending[0].why, pending[0].data, pending[0].at) == ("too slow", {"now": True, "n": [1]}, START.wall)
        assert pending[1].task_id is None

        answered_at = scene.tick()
        scene.write(lambda tx: tx.requests.answer(first, parse_answer("cancelled"), answered_at))
        assert [request.id for request in scene.write(lambda tx: tx.requests.pending())] == [second]
        (row,) = scene.store.view("request", id=first)
        assert (row["answer"], row["answered_at"]) == ("cancelled", answered_at.wall)

    def test_a_request_about_no_task_is_refused(self, scene: Scene) -> None:
        before = scene.everything()
        with pytest.raises(NotFound, match=r"^Task not found: nosuch$"):
            scene.write(lambda tx: tx.requests.ask(RequestKind.CANCEL, "nosuch", "ann", "", {}, scene.now))
        assert scene.everything() == before

    def test_a_repository_that_moved_keeps_its_tasks(self, scene: Scene) -> None:
        """Known by its old path; a plain registration of the new place without tasks does not stand in the way."""
        task = scene.add()
        scene.write(lambda tx: tx.workspaces.register_repo("/new/app", "/new/app/.git", scene.now))
        moved = scene.write(lambda tx: tx.workspaces.move_repo("/src/app", "/new/app", "/new/app/.git"))
        assert (moved.id, moved.path, moved.common_dir) == (task.spec.repo_id, "/new/app", "/new/app/.git")
        assert [repo.path for repo in scene.write(lambda tx: tx.workspaces.repos())] == ["/new/app"]
        with pytest.raises(NotFound, match="/src/app"):
            scene.write(lambda tx: tx.workspaces.move_repo("/src/app", "/x", "/x/.git"))

    def test_two_repositories_with_tasks_stay_apart(self, scene: Scene) -> None:
        scene.add()
        other = scene.write(lambda tx: tx.workspaces.register_repo("/other", "/other/.git", scene.now))
        scene.add(repo_id=other.id)
        before = scene.everything()
        with pytest.raises(Conflict, match="known already"):
            scene.write(lambda tx: tx.workspaces.move_repo("/src/app", "/other", "/other/.git"))
        assert scene.everything() == before

    def test_the_first_answer_stands(self, scene: Scene) -> None:
        request = scene.write(lambda tx: tx.requests.ask(RequestKind.DOWN, None, "ann", "", {}, scene.now))
        scene.write(lambda tx: tx.requests.answer(request, parse_answer("done"), scene.now))
        scene.write(lambda tx: tx.requests.answer(request, parse_answer("done twice"), scene.tick()))
        (row,) = scene.store.view("request", id=request)
        assert (row["answer"], row["answered_at"]) == ("done", START.wall)

    def test_a_down_meant_for_a_supervisor_that_is_gone_does_not_stop_the_next(self, scene: Scene) -> None:
        task = scene.add()
        down = scene.write(lambda tx: tx.requests.ask(RequestKind.DOWN, None, "ann", "", {}, scene.now))
        cancel = scene.write(lambda tx: tx.requests.ask(RequestKind.CANCEL, task.id, "ann", "", {}, scene.now))
        scene.tick()
        scene.open_host()
        assert [request.id for request in scene.write(lambda tx: tx.requests.pending())] == [cancel]
        (row,) = scene.store.view("request", id=down)
        assert (row["answered_at"], row["answer"] is not None) == (scene.now.wall, True)


# -- events, alerts, operations ----------------------------------------------------------------------------------


class TestAlerts:
    """R-CRASH-06: one alert per episode."""

    def raise_it(self, scene: Scene, key: str = "disk", level: Level = Level.CRITICAL) -> None:
        scene.write(
            lambda tx: tx.events.raise_alert(key, "The disk is full.", "Free space.", scene.tick(), level=level)
        )

    def acknowledge(self, scene: Scene, number: object) -> None:
        scene.write(lambda tx: tx.events.ack_alert(int(str(number)), "ann", scene.now))

    def test_a_second_one_of_the_same_episode_only_counts(self, scene: Scene) -> None:
        for _ in range(3):
            self.raise_it(scene)
        self.raise_it(scene, "other", Level.WARNING)
        alerts = scene.store.view("alerts", all=False)
        assert [(a["key"], a["count"], a["level"]) for a in alerts] == [
            ("disk", 3, "critical"),
            ("other", 1, "warning"),
        ]
        assert alerts[0]["at"] == START.wall + 1, "since when, not the last time"
        raised = [(e["reason"], e["level"], e["message"]) for e in scene.events() if e["kind"] == "alert.raised"]
        words = "The disk is full. Free space."
        assert raised == [("disk", "critical", words), ("other", "warning", words)]

    def test_an_acknowledged_episode_is_over_and_the_next_one_is_new(self, scene: Scene) -> None:
        self.raise_it(scene)
        (alert,) = scene.store.view("alerts", all=False)
        acked_at = scene.tick()
        self.acknowledge(scene, alert["id"])
        assert scene.store.view("alerts", all=False) == []
        (row,) = scene.store.view("alerts", all=True)
        assert (row["acked_by"], row["acked_at"]) == ("ann", acked_at.wall)
        self.raise_it(scene)
        (again,) = scene.store.view("alerts", all=False)
        assert (again["count"], again["id"] != alert["id"]) == (1, True)
        assert scene.kinds() == ["alert.raised", "alert.acknowledged", "alert.raised"]

    def test_only_an_open_alert_is_acknowledged(self, scene: Scene) -> None:
        self.raise_it(scene)
        (alert,) = scene.store.view("alerts", all=False)
        alert_id = int(str(alert["id"]))
        self.acknowledge(scene, alert_id)
        before = scene.everything()
        for number in (alert_id, alert_id + 1_000):
            with pytest.raises(NotFound):
                self.acknowledge(scene, number)
        assert scene.everything() == before

    def test_an_alert_whose_cause_is_over_is_closed(self, scene: Scene) -> None:
        """Once; the other ones stay, and where none is open nothing happens."""
        self.raise_it(scene)
        self.raise_it(scene, "other")
        closed_at = scene.tick()
        for _again in range(2):
            scene.write(lambda tx: tx.events.close_alert("disk", "space", scene.now))
        assert [alert["key"] for alert in scene.store.view("alerts", all=False)] == ["other"]
        (row,) = [alert for alert in scene.store.view("alerts", all=True) if alert["key"] == "disk"]
        assert (row["acked_by"], row["acked_at"]) == ("space", closed_at.wall)
        assert scene.kinds() == ["alert.raised", "alert.raised", "alert.acknowledged"]

    def test_what_was_wrong_with_a_run_is_over_with_it(self, scene: Scene) -> None:
        ownership = scene.running()
        run_id = scene.started_run(ownership)
        for key in (f"stuck:{run_id}", f"unended:{run_id}", "stuck:another"):
            self.raise_it(scene, key)
        scene.write(lambda tx: tx.runs.ended(ownership, run_id, COMPLETED, scene.now))
        assert [alert["key"] for alert in scene.store.view("alerts", all=False)] == ["stuck:another"]

    def test_many_at_once_are_one_alert(self, scene: Scene) -> None:
        scene.race(lambda tx: tx.events.raise_alert("k", "m", "r", scene.now), 4)
        assert [a["count"] for a in scene.store.view("alerts", all=True)] == [4]
        assert scene.kinds() == ["alert.raised"]


class _Undone(Exception):
    """A test's own reason to roll back."""


class TestEvents:
    """Promise 5. Every change and its event commit together; a follower misses nothing."""

    def test_an_event_comes_back_as_it_was_told(self, scene: Scene) -> None:
        task = scene.add()
        event = Event(
            kind="sweep.completed",
            message="worktree sweep complete",
            level=Level.WARNING,
            component="sweep",
            task_id=task.id,
            run_id="run-1",
            reason="start-up",
            data={"swept_count": 3, "roots": ["/a", "/b"], "ok": True, "none": None},
        )
        scene.write(lambda tx: tx.events.emit(event, scene.now))
        told = scene.events(task.id)[-1]
        assert (told["kind"], told["message"], told["level"]) == (event.kind, event.message, "warning")
        assert (told["component"], told["task"], told["run"]) == ("sweep", task.id, "run-1")
        assert (told["reason"], told["data"], told["at"]) == ("start-up", event.data, START.wall)

    def test_an_event_of_a_transaction_that_failed_was_never_told(self, scene: Scene) -> None:
        def tell_and_die(tx: Transaction) -> None:
            tx.events.emit(Event(kind="attempt.trouble", message="never"), scene.now)
            raise _Undone

        with pytest.raises(_Undone):
            scene.write(tell_and_die)
        assert scene.events() == []

    ROUNDS = 30

    def telling(self, number: int) -> Operation[None]:
        """One to three events in one transaction; every fifth transaction fails."""

        def tell(tx: Transaction) -> None:
            for _ in range(1 + number % 3):
                tx.events.emit(Event(kind="attempt.trouble", message=str(number)), START)
            if number % 5 == 4:
                raise _Undone

        return tell

    def write_singly(self, store: Store) -> None:
        for number in range(self.ROUNDS):
            with suppress(_Undone):
                store.write(self.telling(number))

    async def write_in_batches(self, bench: Bench) -> None:
        writer = bench.writer()
        await asyncio.gather(*(writer.write(self.telling(n)) for n in range(self.ROUNDS)), return_exceptions=True)
        writer.close()

    def follow(self, reader: Store, all_written: threading.Event) -> list[int]:
        """What a follower does: ask for what comes after the last one seen, a few at a time."""
        seen: list[int] = []
        while True:
            over = all_written.is_set()
            rows = reader.view("events", after=seen[-1] if seen else 0, task=None, limit=7)
            seen += [int(str(row["seq"])) for row in rows]
            if over and not rows:
                return seen

    def test_a_follower_reads_every_event_once_in_order_while_others_write(self, scene: Scene) -> None:
        """DESIGN, Store: no reader sees n+1 before n. Three stores and a writer write, some of it is rolled back."""
        all_written = threading.Event()
        with ThreadPoolExecutor(5) as pool:
            follower = pool.submit(self.follow, scene.bench.store(), all_written)
            jobs = [pool.submit(self.write_singly, scene.bench.store()) for _ in range(3)]
            jobs.append(pool.submit(within_patience, self.write_in_batches(scene.bench)))
            try:
                for job in jobs:
                    job.result(PATIENCE)
            finally:
                all_written.set()
            seen = follower.result(PATIENCE)
        told = [int(row["seq"]) for row in scene.events()]
        assert seen == told
        assert told == sorted(set(told))
        committed = sum(1 + n % 3 for n in range(self.ROUNDS) if n % 5 != 4)
        assert len(told) == 4 * committed

    def test_a_poller_sees_that_another_connection_committed(self, scene: Scene) -> None:
        """Followers poll `data_version`; it changes with every foreign commit and never by itself."""
        follower = scene.bench.store()
        first = follower.data_version()
        assert follower.data_version() == first
        scene.add()
        second = follower.data_version()
        assert second != first
        assert follower.data_version() == second


class TestOperations:
    """An operation id decides what a cancelled or cut-off caller really did."""

    def test_was_done_says_whether_it_committed(self, scene: Scene) -> None:
        task = scene.spec()
        scene.store.write(lambda tx: tx.tasks.add(task, scene.now), "op-1")

        def add_and_die(tx: Transaction) -> None:
            tx.tasks.add(scene.spec(), scene.now)
            raise _Undone

        with pytest.raises(_Undone):
            scene.store.write(add_and_die, "op-2")
        for store in (scene.store, scene.bench.store()):
            assert (store.was_done("op-1"), store.was_done("op-2"), store.was_done("op-3")) == (True, False, False)
        assert len(scene.tasks()) == 1

    def test_the_same_operation_is_never_done_twice(self, scene: Scene) -> None:
        """Whatever error says so: a caller that asks again after a cut does not write a second time."""
        scene.store.write(lambda tx: tx.tasks.add(scene.spec(), scene.now), "op-1")
        before = scene.everything()
        with pytest.raises(Exception):  # noqa: B017 - its type is the next test's business
            scene.store.write(lambda tx: tx.tasks.add(scene.spec(), scene.now), "op-1")
        assert scene.everything() == before

    def test_a_repeated_operation_is_a_typed_refusal(self, scene: Scene) -> None:
        scene.store.write(lambda tx: None, "op-1")
        with pytest.raises(Conflict):
            scene.store.write(lambda tx: None, "op-1")

    def test_an_interrupted_write_leaves_nothing_and_the_store_usable(self, scene: Scene) -> None:
        """Ctrl-C inside a transaction."""
        before = scene.everything()

        def interrupted(tx: Transaction) -> None:
            tx.tasks.add(scene.spec(), scene.now)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            scene.store.write(interrupted, "op-1")
        assert scene.everything() == before
        assert not scene.store.was_done("op-1")
        scene.add()

    def test_a_cancelled_callers_write_still_commits(self, scene: Scene) -> None:
        """facts/store: a cancelled caller's operation still commits, and its id says so."""
        begun, cancelled = threading.Event(), threading.Event()
        spec = scene.spec()

        def slow_add(tx: Transaction) -> None:
            begun.set()
            assert cancelled.wait(PATIENCE)
            tx.tasks.add(spec, scene.now)

        async def cancel_in_the_middle() -> None:
            writer = scene.bench.writer()

            async def caller() -> None:
                await writer.write(slow_add, "op-1")

            task = asyncio.ensure_future(caller())
            await asyncio.to_thread(begun.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not scene.store.was_done("op-1")
            cancelled.set()
            writer.close()

        within_patience(cancel_in_the_middle())
        assert scene.store.was_done("op-1")
        assert scene.get(spec.id).state is TaskState.QUEUED

    def test_a_caller_cancelled_while_its_write_waits_has_still_written(self, scene: Scene) -> None:
        """Once handed in it is done, whoever still wants to know; anything else could not be told apart afterwards."""
        let_go = threading.Event()

        async def cancel_while_it_waits() -> None:
            writer = scene.bench.writer()
            held = asyncio.ensure_future(writer.write(lambda tx: let_go.wait(PATIENCE)))
            waiting = asyncio.ensure_future(writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now), "op-1"))
            await asyncio.sleep(0)  # one turn of the loop, so that whatever starts with it has started
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            let_go.set()
            assert await held
            writer.close()

        within_patience(cancel_while_it_waits())
        assert scene.store.was_done("op-1")
        assert len(scene.tasks()) == 1


class TestWriter:
    """The supervisor's way to write: many callers, an awaited write is durable."""

    def test_an_awaited_write_is_there_for_everybody(self, scene: Scene) -> None:
        async def write() -> Task:
            writer = scene.bench.writer()
            task = await writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now), "op-1")
            assert scene.get(task.id) == task
            assert scene.store.was_done("op-1")
            writer.close()
            return task

        task = within_patience(write())
        assert scene.bench.store().write(lambda tx: tx.tasks.get(task.id)) == task

    def test_a_refused_operation_takes_nobody_down_with_it(self, scene: Scene) -> None:
        """A stale fence in a batch is refused alone; what it wrote before the refusal is undone."""
        ownership = scene.running()
        stale = replace(ownership, fence=ownership.fence - 1)

        def tell_then_write(tx: Transaction) -> None:
            tx.events.emit(Event(kind="attempt.trouble", message="never"), scene.now)
            tx.tasks.set_base(stale, "dead", None, scene.now)

        async def write() -> list[object]:
            writer = scene.bench.writer()
            answers = await asyncio.gather(
                *(writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now).id, f"add-{n}") for n in range(5)),
                writer.write(tell_then_write, "stale"),
                *(writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now).id, f"add-{n}") for n in range(5, 10)),
                return_exceptions=True,
            )
            writer.close()
            return list(answers)

        answers = within_patience(write())
        assert [type(answer) for answer in answers] == [str] * 5 + [NotOwner] + [str] * 5
        assert [scene.store.was_done(f"add-{n}") for n in range(10)] == [True] * 10
        assert not scene.store.was_done("stale")
        assert "attempt.trouble" not in scene.kinds()
        assert scene.get(ownership.task_id).base_commit is None

    def test_close_finishes_what_was_handed_in_and_takes_no_more(self, scene: Scene) -> None:
        async def write() -> None:
            writer = scene.bench.writer()
            pending = [
                asyncio.ensure_future(writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now))) for _ in range(20)
            ]
            writer.close()
            writer.close()
            with pytest.raises(Unavailable):
                await writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now))
            await asyncio.gather(*pending)

        within_patience(write())
        assert len(scene.tasks()) == 20

    def test_a_writer_and_a_store_write_side_by_side(self, scene: Scene) -> None:
        async def write() -> None:
            writer = scene.bench.writer()
            futures = [writer.write(lambda tx: tx.tasks.add(scene.spec(), scene.now)) for _ in range(50)]
            await asyncio.to_thread(lambda: [scene.add() for _ in range(50)])
            await asyncio.gather(*futures)
            writer.close()

        within_patience(write())
        rows = scene.tasks()
        assert len({row["seq"] for row in rows}) == 100
        assert scene.store.integrity_problems() == []


# -- workspaces --------------------------------------------------------------------------------------------------

_TOLD_OF = {
    WorkspaceState.READY: "workspace.created",
    WorkspaceState.PRESERVED: "workspace.preserved",
    WorkspaceState.TRASHED: "workspace.trashed",
    WorkspaceState.GONE: "workspace.gone",
}


class TestWorkspaces:
    """Promise 2: whatever was made outside has a row, and the row moves only by compare-and-set."""

    def test_a_repo_is_registered_once(self, scene: Scene) -> None:
        again = scene.write(lambda tx: tx.workspaces.register_repo("/src/app", "/elsewhere/.git", scene.now))
        other = scene.write(lambda tx: tx.workspaces.register_repo("/src/lib", "/src/lib/.git", scene.now))
        assert (again.id, again.common_dir) == (scene.repo.id, "/elsewhere/.git")
        assert scene.write(lambda tx: tx.workspaces.repos()) == [again, other]
        assert scene.write(lambda tx: tx.workspaces.repo(other.id)) == other
        with pytest.raises(NotFound):
            scene.write(lambda tx: tx.workspaces.repo("nosuch"))

    def test_the_intent_is_a_row_before_anything_exists(self, scene: Scene) -> None:
        ownership = scene.running()
        workspace = a_workspace(ownership.task_id, scene.repo.id)
        scene.write(lambda tx: tx.workspaces.intend(ownership, workspace, scene.now))
        assert scene.bench.store().write(lambda tx: tx.workspaces.get(workspace.id)) == workspace
        assert scene.current(ownership.task_id) == workspace
        assert scene.write(lambda tx: tx.workspaces.not_gone()) == [workspace]
        with pytest.raises(NotFound):
            scene.write(lambda tx: tx.workspaces.get("nosuch"))

    @pytest.mark.parametrize("target", WorkspaceState)
    @pytest.mark.parametrize("source", WorkspaceState)
    def test_moves_are_those_of_the_table(self, scene: Scene, source: WorkspaceState, target: WorkspaceState) -> None:
        """core/states: a move that is not in the table cannot be made, and one that is tells of itself."""
        workspace = scene.workspace_for(scene.running(), source)
        before, after = scene.everything(), scene.last_seq()
        if target in WORKSPACE_MOVES[source]:
            assert scene.move(workspace, target).state is target
            (told,) = scene.events(workspace.task_id, after)
            assert (told["kind"], told["reason"]) == (_TOLD_OF[target], f"test: {target}")
            assert told["data"]["path"] == workspace.path
        else:
            with pytest.raises(Conflict):
                scene.move(workspace, target)
            assert scene.everything() == before

    def test_a_move_from_a_state_that_is_past_is_refused(self, scene: Scene) -> None:
        seen = scene.workspace_for(scene.running())
        scene.move(seen, WorkspaceState.PRESERVED)
        before = scene.everything()
        for target in (WorkspaceState.TRASHED, WorkspaceState.GONE, WorkspaceState.PRESERVED):
            with pytest.raises(Conflict):
                scene.move(seen, target)
        assert scene.everything() == before

    def test_two_at_once_one_moves_it(self, scene: Scene) -> None:
        seen = scene.workspace_for(scene.running())
        after = scene.last_seq()
        answers = scene.race(lambda tx: tx.workspaces.move(seen, WorkspaceState.TRASHED, "cleaned", scene.now))
        assert [type(refusal) for refusal in refusals(answers)] == [Conflict]
        assert scene.kinds(seen.task_id, after) == ["workspace.trashed"]

    def test_current_is_what_a_task_can_still_use(self, scene: Scene) -> None:
        used = {WorkspaceState.INTENDED, WorkspaceState.READY, WorkspaceState.PRESERVED}
        host = scene.open_host()
        for state in WorkspaceState:
            ownership = scene.running(host)
            workspace = scene.workspace_for(ownership, state)
            assert scene.current(ownership.task_id) == (workspace if state in used else None)
        open_states = {w.state for w in scene.write(lambda tx: tx.workspaces.not_gone())}
        assert open_states == used | {WorkspaceState.TRASHED}

    def test_a_retried_task_goes_on_in_its_preserved_workspace(self, scene: Scene) -> None:
        host = scene.open_host()
        ownership = scene.running(host)
        workspace = scene.workspace_for(ownership)
        scene.settle(ownership, FAIL, disposition=KEEP)
        kept = scene.move(workspace, WorkspaceState.PRESERVED)
        scene.retry(ownership.task_id)
        claimed = scene.claim(host)
        assert claimed is not None
        ready = scene.write(lambda tx: tx.workspaces.ready(grip_of(claimed), kept, "continued", scene.now))
        assert (ready.id, ready.state, ready.path) == (workspace.id, WorkspaceState.READY, workspace.path)
        assert (kept.disposition, ready.disposition) == ("preserve", None), (
            "the last ending's word does not bind the next"
        )

    def test_a_second_workspace_for_a_task_is_a_typed_refusal(self, scene: Scene) -> None:
        """The row is refused all right, but by an error that only the adapter's driver knows."""
        ownership = scene.running()
        scene.workspace_for(ownership)
        with pytest.raises(Conflict):
            scene.workspace_for(ownership)


class TestCleaning:
    """R-CLEAN-06: what must be removed stays in the ledger until it is; failures are counted and retried."""

    def listed(self, scene: Scene) -> list[str]:
        return [w.id for w in scene.write(lambda tx: tx.workspaces.to_clean(scene.now))]

    @pytest.mark.parametrize("state", WorkspaceState)
    @pytest.mark.parametrize("decision", [None, REQUEUE, PAUSE, COMPLETE, FAIL, CANCEL])
    def test_only_decided_endings_are_carried_out(
        self, scene: Scene, state: WorkspaceState, decision: Decision | None
    ) -> None:
        """A workspace whose task runs or will run again is not touched; trash always is (R-CLEAN-08)."""
        ownership = scene.running()
        workspace = scene.workspace_for(ownership, state)
        if decision is not None:
            scene.settle(ownership, decision, disposition=CLEAN)
        over = decision in (COMPLETE, FAIL, CANCEL)
        unfinished = {WorkspaceState.INTENDED, WorkspaceState.READY}  # `preserved` waits for somebody to drop it
        due = state is WorkspaceState.TRASHED or (over and state in unfinished)
        assert self.listed(scene) == ([workspace.id] if due else [])

    def test_a_preserved_workspace_stays_until_it_is_dropped(self, scene: Scene) -> None:
        """R-CLEAN-07."""
        ownership = scene.running()
        workspace = scene.workspace_for(ownership)
        scene.settle(ownership, FAIL, disposition=KEEP)
        assert self.listed(scene) == [workspace.id], "to be preserved: also work for the clean-up service"
        kept = scene.move(scene.write(lambda tx: tx.workspaces.get(workspace.id)), WorkspaceState.PRESERVED)
        assert self.listed(scene) == []
        scene.dispose(kept, "salvage", "dropped by ann")
        assert self.listed(scene) == [workspace.id]

    def test_a_decision_made_too_early_waits_for_the_end(self, scene: Scene) -> None:
        """R-CLEAN-08: an operator who drops a workspace that is in use gets it dropped when it is not."""
        ownership = scene.running()
        workspace = scene.workspace_for(ownership)
        scene.dispose(workspace, "salvage", "dropped by ann")
        assert self.listed(scene) == []
        scene.settle(ownership, FAIL)
        assert self.listed(scene) == [workspace.id]

    def test_without_a_decision_nothing_is_cleaned(self, scene: Scene) -> None:
        ownership = scene.running()
        scene.workspace_for(ownership)
        scene.settle(ownership, FAIL, disposition=None)
        assert self.listed(scene) == []

    def test_a_failure_is_told_counted_and_retried_later(self, scene: Scene) -> None:
        """R-CLEAN-06: a warning on the task, never a change of its outcome, never marked cleaned."""
        ownership = scene.running()
        workspace = scene.workspace_for(ownership)
        scene.settle(ownership, COMPLETE, disposition=CLEAN)
        task, after = scene.row(ownership.task_id), scene.last_seq()
        retry_at = scene.now.wall + 10

        assert scene.record_cleanup_failure(workspace, "EBUSY", retry_at - 5) == 1
        assert scene.record_cleanup_failure(workspace, "", retry_at) == 2
        assert scene.row(ownership.task_id) == task
        told = scene.events(ownership.task_id, after)
        assert [(e["kind"], e["level"], e["component"]) for e in told] == [
            ("workspace.cleanup-failed", "warning", "workspace-cleanup")
        ] * 2
        assert [e["reason"] for e in told] == ["EBUSY", "unknown error"]
        assert told[1]["data"] == {"workspace": workspace.id, "failures": 2, "retry_at": retry_at}
        assert self.listed(scene) == []
        assert scene.write(lambda tx: tx.workspaces.next_retry_time(scene.now)) == retry_at
        scene.tick(9.999)
        assert self.listed(scene) == []
        scene.tick(0.001)
        assert self.listed(scene) == [workspace.id]
        assert scene.write(lambda tx: tx.workspaces.next_retry_time(scene.now)) is None
        (row,) = scene.store.view("workspace", id=ownership.task_id)
        assert row["state"] == "ready"

    def test_the_back_off_holds_in_every_state_and_a_new_decision_ends_it(self, scene: Scene) -> None:
        host = scene.open_host()
        later = scene.now.wall + 60
        kept_grip = scene.running(host)
        kept = scene.workspace_for(kept_grip, WorkspaceState.PRESERVED)
        scene.settle(kept_grip, FAIL)
        scene.dispose(kept, "salvage", "dropped by ann")
        trash = scene.workspace_for(scene.running(host), WorkspaceState.TRASHED)
        assert sorted(self.listed(scene)) == sorted([kept.id, trash.id])
        for workspace, at in ((kept, later), (trash, later + 1)):
            scene.record_cleanup_failure(workspace, "EBUSY", at)
        assert self.listed(scene) == []
        assert scene.write(lambda tx: tx.workspaces.next_retry_time(scene.now)) == later
        scene.dispose(kept, "salvage", "asked again")
        assert self.listed(scene) == [kept.id]
        (row,) = scene.store.view("workspace", id=kept.task_id)
        assert (row["disposition"], row["reason"]) == ("salvage", "asked again")
        assert [w["failures"] for w in scene.store.view("workspaces", all=True) if w["id"] == kept.id] == [0]

    def test_a_fresh_start_does_not_wait_for_the_back_off(self, scene: Scene) -> None:
        """R-TREE-08: a single restart reclaims everything; what is gone stays gone."""
        trash = scene.workspace_for(scene.running(), WorkspaceState.TRASHED)
        gone = scene.workspace_for(scene.running(), WorkspaceState.TRASHED)
        for workspace in (trash, gone):
            scene.record_cleanup_failure(workspace, "EIO", scene.now.wall + 3600)
        scene.move(gone, WorkspaceState.GONE)
        assert self.listed(scene) == []
        scene.write(lambda tx: tx.workspaces.make_cleanups_due())
        assert self.listed(scene) == [trash.id]
        assert scene.write(lambda tx: tx.workspaces.next_retry_time(scene.now)) is None

    def test_what_could_not_be_saved_once_is_no_alert_when_its_workspace_is_gone(self, scene: Scene) -> None:
        """R-CRASH-06: found by a full disk at the first of two salvages; its alert stayed for good."""
        workspace = scene.workspace_for(scene.running(), WorkspaceState.TRASHED)
        keys = (f"unsaved:{workspace.id}", "unsaved:another")
        for key in keys:
            scene.write(lambda tx, key=key: tx.events.raise_alert(key, "It stays.", "Look.", scene.now))  # type: ignore[misc]  # bound now
        scene.move(workspace, WorkspaceState.GONE)
        assert [row["key"] for row in scene.store.view("alerts", all=False)] == [keys[1]]

    def test_what_is_gone_needs_no_more_work(self, scene: Scene) -> None:
        trash = scene.workspace_for(scene.running(), WorkspaceState.TRASHED)
        scene.record_cleanup_failure(trash, "EBUSY", scene.now.wall + 5)
        scene.move(trash, WorkspaceState.GONE)
        assert scene.write(lambda tx: tx.workspaces.next_retry_time(scene.now)) is None
        scene.tick(10)
        assert self.listed(scene) == []
        assert scene.write(lambda tx: tx.workspaces.not_gone()) == []


class TestSalvage:
    """R-TREE-13: what was saved can be found again."""

    def salvaged(self, number: int, ref: str) -> Salvaged:
        return Salvaged(
            id=f"s{number}",
            ref=ref,
            commit=f"c{number}",
            base="b",
            files=number,
            reason="failed",
            partial=number % 2 == 1,
            details={"size": number},
        )

    def last(self, scene: Scene, task_id: str) -> Salvaged | None:
        return scene.bench.store().write(lambda tx: tx.workspaces.last_salvage(task_id))

    def test_what_the_newest_ended_workspace_left(self, scene: Scene) -> None:
        host = scene.open_host()
        ownership = scene.running(host)
        workspace = scene.workspace_for(ownership)
        first, second = self.salvaged(1, "refs/a/1"), self.salvaged(2, "refs/a/2")
        scene.salvage(workspace, first)
        assert self.last(scene, ownership.task_id) is None, "the tree itself is still there"
        scene.salvage(workspace, second)
        scene.settle(ownership, FAIL)
        scene.move(workspace, WorkspaceState.TRASHED)
        assert self.last(scene, ownership.task_id) == second

        scene.retry(ownership.task_id)
        ownership = scene.take(host)
        scene.tick()
        scene.move(scene.workspace_for(ownership), WorkspaceState.GONE)
        assert self.last(scene, ownership.task_id) is None, "an older salvage is behind what was committed since"

    def test_every_salvage_is_told_and_listed(self, scene: Scene) -> None:
        workspace, other = scene.workspace_for(scene.running()), scene.workspace_for(scene.running())
        after = scene.last_seq()
        scene.salvage(workspace, self.salvaged(1, "refs/a/1"))
        scene.salvage(workspace, self.salvaged(2, "refs/a/2"))
        scene.salvage(other, self.salvaged(3, "refs/b/1"))
        told = scene.events(workspace.task_id, after)
        assert [(e["kind"], e["data"]["commit"], e["data"]["files"]) for e in told] == [
            ("workspace.salvaged", "c1", 1),
            ("workspace.salvaged", "c2", 2),
        ]
        assert f"holdfast salvage restore {workspace.task_id}" in told[0]["message"]
        rows = scene.store.view("salvages", task=workspace.task_id)
        assert [(r["id"], r["commit"], r["repo"]) for r in rows] == [("s1", "c1", "/src/app"), ("s2", "c2", "/src/app")]
        assert len(scene.store.view("salvages", task=None)) == 3

    def test_saving_under_the_same_ref_again_is_one_salvage(self, scene: Scene) -> None:
        """A clean-up that was cut off and repeated leaves one row, the latest."""
        workspace = scene.workspace_for(scene.running())
        for number in (1, 2):
            scene.salvage(workspace, self.salvaged(number, "refs/a/1"))
        (row,) = scene.store.view("salvages", task=workspace.task_id)
        assert (row["commit"], row["files"]) == ("c2", 2)


def test_what_was_written_survives_closing_everything(bench: Bench) -> None:
    """Promise 1, the plain case: the last store closes, a new one shows the same."""
    first = Scene(bench)
    ownership = first.running()
    first.workspace_for(ownership)
    first.settle(ownership, FAIL, first.ended_run(ownership), disposition=KEEP)
    first.write(lambda tx: tx.events.raise_alert("k", "m", "r", first.now))
    first.write(lambda tx: tx.requests.ask(RequestKind.DOWN, None, "ann", "", {}, first.now))
    before = first.everything()
    first.reopen()
    assert first.everything() == before
    assert first.store.integrity_problems() == []


class TestAccounts:
    """Accounts that are not used for a while."""

    def claude(self, scene: Scene, **changes: Any) -> Ownership:
        return scene.running(scene.open_host(), **{"agent": "claude"} | changes)

    def run(self, scene: Scene, ownership: Ownership, outcome: Outcome, until: float | None = None) -> None:
        """A run under the account `work` that ended so."""
        run_id, verdict = new_id(), ended_with(outcome, session="s1")
        scene.write(lambda tx: tx.runs.intend(ownership, run_id, scene.now, None, "work"))
        scene.write(lambda tx: tx.runs.record_start(ownership, run_id, 99, scene.now))
        scene.write(lambda tx: tx.runs.ended(ownership, run_id, verdict, scene.now))
        decision = COMPLETE
        if outcome is not Outcome.COMPLETED:
            parking = AccountPause(until=until, outcome=outcome, reason="it said so")
            decision = replace(PAUSE, parking=parking, alert=until is None)
        scene.settle(ownership, decision, run_id, verdict)

    def unavailable(self, scene: Scene) -> list[tuple[str, float | None]]:
        return [(a.full_name, a.until) for a in scene.write(lambda tx: tx.accounts.unavailable())]

    def test_a_settle_shuts_and_binds_and_the_claim_goes_around(self, scene: Scene) -> None:
        ownership = self.claude(scene)
        reset = scene.now.wall + 30
        self.run(scene, ownership, Outcome.USAGE_LIMITED, reset)
        assert self.unavailable(scene) == [("claude/work", reset)]
        assert scene.get(ownership.task_id).account == "work", "its session is there"
        assert scene.write(lambda tx: tx.tasks.next_due_time(scene.now)) == reset, "sooner than the task's own"
        host = scene.open_host()
        named = scene.add(agent="claude", agent_options={"account": "work"}, priority=9)
        anyone = scene.add(agent="claude", priority=8)
        other = scene.add(priority=7)
        around = ClaimTerms(blocked=BlockedTasks(accounts=frozenset({"claude/work"}), agents=frozenset()))
        none_left = ClaimTerms(blocked=BlockedTasks(accounts=frozenset({"claude/work"}), agents=frozenset({"claude"})))
        assert scene.write(lambda tx: tx.tasks.unfinished_count(OperatorBlocks(blocked=none_left.blocked))) == 2, (
            "the paused one, and `other`"
        )
        assert scene.write(lambda tx: tx.tasks.claim(host, scene.now, none_left)).id == other.id  # type: ignore[union-attr]
        assert not scene.write(lambda tx: tx.tasks.has_claimable_task(scene.now, none_left))
        assert scene.write(lambda tx: tx.tasks.claim(host, scene.now, around)).id == anyone.id  # type: ignore[union-attr]
        assert scene.write(lambda tx: tx.tasks.claim(host, scene.now, around)) is None
        assert scene.write(lambda tx: tx.accounts.open_due(scene.now)) == []
        scene.tick(31)
        assert self.unavailable(scene) == [("claude/work", reset)], "nobody has opened it yet"
        assert scene.write(lambda tx: tx.accounts.open_due(scene.now)) == ["claude/work"]
        assert self.unavailable(scene) == []
        assert scene.take(scene.open_host()).task_id == named.id

    def test_a_claim_keeps_its_terms(self, scene: Scene) -> None:
        """Providers that are down, spent labels, a worker's lane, and everything held."""
        host = scene.open_host()
        web = scene.add(labels={"area": "web", "team": "a=b"}, priority=3, provider="acme")
        ops = scene.add(labels={"area": "ops"}, agent="command", priority=2)
        bare = scene.add(agent="claude", agent_options={"account": "work"}, priority=1)

        def next_on(**terms: Any) -> str | None:
            """Which one would be taken: undone, so that each question finds the same queue."""

            def ask(tx: Transaction) -> None:
                found = tx.tasks.claim(host, scene.now, ClaimTerms(**terms))
                taken.append(None if found is None else found.id)
                raise Undone

            taken: list[str | None] = []
            with pytest.raises(Undone):
                scene.write(ask)
            return taken[0]

        assert next_on() == web.id
        assert next_on(providers_down=frozenset({"acme"})) == ops.id
        assert next_on(providers_down=frozenset({"other"})) == web.id
        assert next_on(labels=frozenset({"area=web"})) == ops.id
        assert next_on(labels=frozenset({"team=a=b", "area=ops"})) == bare.id
        assert next_on(labels=frozenset({"area=we"})) == web.id
        assert next_on(held=True) is None
        assert next_on(lane=Lane(name="w")) == web.id
        assert next_on(lane=Lane(name="w", labels={"area": "ops"})) == ops.id
        assert next_on(lane=Lane(name="w", labels={"area": "ops", "team": "x"})) is None
        assert next_on(lane=Lane(name="w", agent="claude", account="work")) == bare.id
        assert next_on(lane=Lane(name="w", agent="claude", account="home")) is None
        assert next_on(lane=Lane(name="w", account="home"), providers_down=frozenset({"acme"})) == ops.id
        assert not scene.write(lambda tx: tx.tasks.has_claimable_task(scene.now, ClaimTerms(held=True)))
        assert not scene.write(
            lambda tx: tx.tasks.has_claimable_task(scene.now, ClaimTerms(lane=Lane(name="w", labels={"no": "one"})))
        )

    def test_what_a_person_has_to_mend_outranks_and_alerts_once(self, scene: Scene) -> None:
        first, second = self.claude(scene), self.claude(scene, priority=2000)
        self.run(scene, second, Outcome.AUTH)
        scene.tick()
        third = scene.running(second.owner, agent="claude")
        self.run(scene, third, Outcome.USAGE_LIMITED, scene.now.wall + 5)
        scene.tick(1000)
        assert self.unavailable(scene) == [("claude/work", None)]
        assert [a["key"] for a in scene.store.view("alerts", all=False)] == ["account:claude/work"]
        assert first.task_id != third.task_id
        freed = scene.write(lambda tx: tx.accounts.resume("claude", "work", "ann", scene.now))
        assert freed == [], "both wait for a limit, by their own decision"
        assert scene.row(third.task_id)["resume_after"] <= scene.now.wall
        assert self.unavailable(scene) == []
        ownership = scene.running(scene.open_host(), agent="claude")
        self.run(scene, ownership, Outcome.COMPLETED)
        assert scene.store.view("alerts", all=False) == []
        with pytest.raises(Conflict):
            scene.write(lambda tx: tx.accounts.resume("claude", "work", "ann", scene.now))

    def test_a_success_from_before_proves_nothing(self, scene: Scene) -> None:
        host = scene.open_host()
        early, late = scene.running(host, agent="claude"), scene.running(host, agent="claude")
        run_id = new_id()
        scene.write(lambda tx: tx.runs.intend(early, run_id, scene.now, None, "work"))
        scene.write(lambda tx: tx.runs.record_start(early, run_id, 99, scene.now))
        scene.tick()
        self.run(scene, late, Outcome.BILLING)
        scene.tick()
        scene.write(lambda tx: tx.runs.ended(early, run_id, COMPLETED, scene.now))
        scene.settle(early, COMPLETE, run_id)
        assert self.unavailable(scene) == [("claude/work", None)]
        assert len(scene.store.view("alerts", all=False)) == 1

    def test_a_session_left_or_begun_afresh_unbinds(self, scene: Scene) -> None:
        ownership = self.claude(scene)
        self.run(scene, ownership, Outcome.USAGE_LIMITED, scene.now.wall + 5)
        scene.resume(ownership.task_id)
        again = scene.take(scene.open_host())
        scene.write(lambda tx: tx.tasks.drop_session(again, "work", scene.now))
        task = scene.get(ownership.task_id)
        assert (task.session_id, task.account) == (None, None)
        named = scene.add(agent="claude", agent_options={"account": "home"}, priority=5000)
        assert scene.get(named.id).account == named.account == "home"
