"""The SQLite store against a plain Python model of tasks, runs and fences: any walk, any crash, any stale holder.

Hypothesis walks at random through everything that operators, supervisors and dead supervisors can do. After each step
the store must say what the model says. A failure prints the walk as a program, and the line that replays it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.sampling import amount

from holdfast.base.errors import Conflict, HoldfastError, NotOwner
from holdfast.base.ids import new_id
from holdfast.base.instant import Instant
from holdfast.core.model import PauseReason, StopWhy, Strategy, TaskSpec
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.retry_budgets import Budget
from holdfast.store.port.transaction import Host, Ownership, Transaction
from holdfast.store.sqlite.engine.store import SqliteStore

TTL = 30.0
NOBODY = "no-such-run"
TERMINAL = {"completed", "failed", "cancelled"}
WAITING = {"queued", "paused"}
OPERATIONS = ["cancel", "retry", "resume", "resume when due"]
STATE_AFTER = {
    PolicyAction.COMPLETE: "completed",
    PolicyAction.FAIL: "failed",
    PolicyAction.REQUEUE: "queued",
    PolicyAction.PAUSE: "paused",
    PolicyAction.CANCEL: "cancelled",
}

STEPS = ["base", "intend", "started", "stopping", "ended"]

depths = st.sampled_from([0, 1, 2, 3, 5, 6, 6, 6])  # how far a run comes; 6 is settled
numbers = st.integers(0, 1_000)  # which of the candidates there are at that moment
decisions = st.builds(
    Decision,
    action=st.sampled_from(list(STATE_AFTER)),
    reason=st.just("as the model says"),
    pause=st.just(PauseReason.RATE_LIMIT),
    delay=st.sampled_from([0.0, 0.0, 5.0]),
    spends=st.sampled_from([(), (Budget.RUNS,), (Budget.CRASH, Budget.RUNS), (Budget.LOST,)]),
)


@dataclass(frozen=True)
class Wish:
    """What to add; `needs` are numbers that pick among the tasks there are."""

    priority: int
    needs: list[int]
    exclusive: bool
    max_resumes: int
    delay: float | None


wishes = st.builds(
    Wish,
    priority=st.integers(-1, 1),
    needs=st.lists(numbers, max_size=2),
    exclusive=st.booleans(),
    max_resumes=st.integers(0, 2),
    delay=st.sampled_from([None, None, 5.0]),
)


@dataclass
class ModelRun:
    id: str
    state: str = "intended"


@dataclass
class ModelTask:
    """What one task must look like."""

    id: str
    seq: int
    priority: int
    needs: frozenset[str]
    exclusive: bool
    max_resumes: int
    not_before: float | None
    state: str = "queued"
    fence: int = 0
    owner: str | None = None
    resumes: int = 0
    generation: int = 0
    base: str | None = None
    runs: list[ModelRun] = field(default_factory=list)
    spends: list[tuple[int, str]] = field(default_factory=list)  # generation, budget
    endings: list[str] = field(default_factory=list)  # every entry into a terminal state
    fences: list[int] = field(default_factory=list)  # every fence that a holder was given

    @property
    def open_run(self) -> ModelRun | None:
        return self.runs[-1] if self.runs and self.runs[-1].state != "settled" else None

    def end(self, state: str) -> None:
        self.state = state
        if state in TERMINAL:
            self.endings.append(f"task.{state}")

    def cancel(self) -> None:
        self.not_before = None
        self.end("cancelled")


@dataclass(frozen=True)
class Held:
    """A ownership that somebody was given at some time, and the store through which that somebody writes."""

    ownership: Ownership
    store: SqliteStore


class StoreMachine(RuleBasedStateMachine):
    """One home, one live supervisor at a time, and the ghosts of earlier ones."""

    def __init__(self) -> None:
        super().__init__()
        # In memory where that is possible: the model looks for wrong answers, not for lost syncs.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.home = tempfile.mkdtemp(prefix="holdfast-model-", dir=memory)
        self.now = Instant(wall=1_000_000.0, boottime=100.0, boot_id="boot")
        self.tasks: dict[str, ModelTask] = {}
        self.held: list[Held] = []
        self.stores: list[SqliteStore] = []
        self.hosts: list[str] = []
        self.lease_until = 0.0

    @initialize(
        first=st.lists(wishes, min_size=1, max_size=4),
        tried=st.lists(st.tuples(depths, decisions), min_size=1, max_size=4),
    )
    def first_start(self, first: list[Wish], tried: list[tuple[int, Decision]]) -> None:
        """Some tasks are there and some attempts under way before the walk begins."""
        self.store = self.open_store()
        self.repo = self.store.write(lambda tx: tx.workspaces.register_repo("/src", "/src/.git", self.now))
        self.open_host(expect_lost=[])
        for wish in first:
            self.add(wish)
        for depth, decision in tried:
            self.attempt(depth, decision)

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.home)

    # -- pieces --------------------------------------------------------------------------------------------------

    def open_store(self) -> SqliteStore:
        store = SqliteStore(self.home)
        self.stores.append(store)
        return store

    def open_host(self, expect_lost: list[str]) -> None:
        host = Host(id=new_id(), boot_id="boot", pid=1, start_ticks=1, version="0", agents=1)
        assert self.store.write(lambda tx: tx.hosts.open(host, TTL, self.now)) == expect_lost
        self.hosts.append(host.id)
        self.lease_until = self.now.boottime + TTL

    @property
    def host(self) -> str:
        return self.hosts[-1]

    def pick(self, number: int) -> ModelTask:
        tasks = list(self.tasks.values())
        return tasks[number % len(tasks)]

    def is_current(self, ownership: Ownership) -> bool:
        task = self.tasks[ownership.task_id]
        return (task.state, task.fence, task.owner) == ("running", ownership.fence, ownership.owner)

    def current(self) -> list[Held]:
        return [held for held in self.held if self.is_current(held.ownership)]

    def stale(self) -> list[Held]:
        return [held for held in self.held if not self.is_current(held.ownership)]

    def expect(
        self, refusal: type[HoldfastError] | None, operation: Callable[[Transaction], object], store: SqliteStore
    ) -> None:
        """Do it; it is refused exactly when and as the model says."""
        answer: HoldfastError | None = None
        try:
            store.write(operation)
        except HoldfastError as error:
            answer = error
        assert (type(answer) if answer else None) is refusal, f"the store says {answer!r}, the model {refusal}"

    def grant(self, task: ModelTask, owner: str) -> None:
        task.state, task.owner = "running", owner
        task.fence += 1
        task.fences.append(task.fence)
        self.held.append(Held(Ownership(task_id=task.id, fence=task.fence, owner=owner), self.store))

    def cancel_dependents(self, task_id: str) -> None:
        for dependent in self.tasks.values():
            if task_id in dependent.needs and dependent.state in WAITING:
                event("dependent cancelled")
                dependent.cancel()
                self.cancel_dependents(dependent.id)

    # -- operators -----------------------------------------------------------------------------------------------

    @rule(wish=wishes)
    def add(self, wish: Wish) -> None:
        needs = frozenset(self.pick(number).id for number in wish.needs) if self.tasks else frozenset()
        spec = TaskSpec(
            id=new_id(),
            repo_id=self.repo.id,
            prompt="walk",
            agent="scripted",
            strategy=Strategy.NONE if wish.exclusive else Strategy.WORKTREE,
            priority=wish.priority,
            needs=tuple(sorted(needs)),
            max_resumes=wish.max_resumes,
            not_before=None if wish.delay is None else self.now.wall + wish.delay,
        )
        hopeless = any(self.tasks[need].state in {"failed", "cancelled"} for need in needs)
        self.expect(Conflict if hopeless else None, lambda tx: tx.tasks.add(spec, self.now), self.store)
        if not hopeless:
            seq = len(self.tasks) + 1
            self.tasks[spec.id] = ModelTask(
                spec.id, seq, wish.priority, needs, wish.exclusive, wish.max_resumes, spec.not_before
            )

    @rule(number=numbers, what=st.sampled_from(OPERATIONS), sensible=st.booleans())
    def operate(self, number: int, what: str, sensible: bool) -> None:
        """An operator's command, on a task that it suits if there is one, or on any."""
        paused = {"paused"}
        suits = {"cancel": WAITING, "retry": {"failed", "cancelled"}, "resume": paused, "resume when due": paused}[what]
        chosen = [task for task in self.tasks.values() if task.state in suits] if sensible else []
        task = chosen[number % len(chosen)] if chosen else self.pick(number)
        due = partial(self.resume, operator=False)
        commands: dict[str, Callable[[ModelTask], None]] = {
            "cancel": self.cancel,
            "retry": self.retry,
            "resume": self.resume,
            "resume when due": due,
        }
        commands[what](task)

    def cancel(self, task: ModelTask) -> None:
        refusal = None if task.state in WAITING else Conflict
        self.expect(refusal, lambda tx: tx.tasks.cancel_waiting(task.id, "ann", "", self.now), self.store)
        if refusal is None:
            task.cancel()
            self.cancel_dependents(task.id)

    def retry(self, task: ModelTask) -> None:
        hopeless = any(self.tasks[need].state in {"failed", "cancelled"} for need in task.needs)
        refusal = None if task.state in {"failed", "cancelled"} and not hopeless else Conflict
        self.expect(refusal, lambda tx: tx.tasks.retry(task.id, "ann", False, self.now), self.store)
        if refusal is None:
            event("retried")
            task.state, task.not_before, task.resumes = "queued", None, 0
            task.generation += 1

    def resume(self, task: ModelTask, *, operator: bool = True) -> None:
        refusal = None if task.state == "paused" else Conflict
        self.expect(refusal, lambda tx: tx.tasks.resume(task.id, "ann", self.now, operator=operator), self.store)
        if refusal is not None or (operator and task.resumes >= task.max_resumes):
            return
        task.resumes += 1
        if task.resumes > task.max_resumes:
            event("resume limit")
            task.end("failed")
            self.cancel_dependents(task.id)
        else:
            event("resumed")
            task.state = "queued"
            task.spends.append((task.generation, "resume"))

    # -- the supervisor ------------------------------------------------------------------------------------------

    def claimable(self) -> ModelTask | None:
        running_exclusive = any(task.state == "running" and task.exclusive for task in self.tasks.values())
        ready = [
            task
            for task in self.tasks.values()
            if task.state == "queued"
            and (task.not_before is None or task.not_before <= self.now.wall)
            and all(self.tasks[need].state == "completed" for need in task.needs)
            and not (task.exclusive and running_exclusive)
        ]
        return min(ready, key=lambda task: (-task.priority, task.seq), default=None)

    @rule(depth=depths, decision=decisions)
    def attempt(self, depth: int, decision: Decision) -> None:
        """Claim what is next and take its run `depth` steps far, up to its settling."""
        if self.claim_next():
            held = self.held[-1]
            for step in STEPS[:depth]:
                self.take(held, step)
            if depth > len(STEPS):
                self.settle_held(held, decision)

    def claim_next(self) -> bool:
        expected = self.claimable() if self.lease_until > self.now.boottime else None
        claimed = self.store.write(lambda tx: tx.tasks.claim(self.host, self.now))
        assert (claimed.id if claimed else None) == (expected.id if expected else None)
        if expected is not None:
            expected.not_before = None
            self.grant(expected, self.host)
        return expected is not None

    def adopt(self, task: ModelTask) -> None:
        refusal = NotOwner if task.owner == self.host else None
        seen = self.store.write(lambda tx: tx.tasks.get(task.id))
        self.expect(refusal, lambda tx: tx.tasks.adopt(seen, self.host, self.now), self.store)
        if refusal is None:
            event("adopted")
            self.grant(task, self.host)
            # What was seen before the adoption is worth nothing after it.
            self.expect(NotOwner, lambda tx: tx.tasks.adopt(seen, self.host, self.now), self.store)

    @rule(number=numbers)
    def adopt_one(self, number: int) -> None:
        running = [task for task in self.tasks.values() if task.state == "running"]
        if running:
            self.adopt(running[number % len(running)])

    @precondition(lambda self: self.current())
    @rule(number=numbers, step=st.sampled_from([*STEPS, "settle"]), decision=decisions)
    def go_on(self, number: int, step: str, decision: Decision) -> None:
        """A step by a present owner, whether it is that step's turn or not."""
        held = self.current()[number % len(self.current())]
        if step == "settle":
            self.settle_held(held, decision)
        else:
            self.take(held, step)

    def take(self, held: Held, step: str) -> None:
        task = self.tasks[held.ownership.task_id]
        self.expect(self.refusal_of(task, step), self.operation(held.ownership, step, task.open_run), held.store)
        if self.refusal_of(task, step) is None:
            event(step)
            self.apply(task, step)

    def settle_held(self, held: Held, decision: Decision) -> None:
        task = self.tasks[held.ownership.task_id]
        run = task.open_run
        refusal = Conflict if run is not None and run.state != "ended" else None
        self.expect(refusal, self.settling(held.ownership, run, decision), held.store)
        if refusal is not None:
            return
        event(f"settled {decision.action}")
        if run is not None:
            run.state = "settled"
        task.spends += [(task.generation, str(budget)) for budget in decision.spends]
        task.owner = None
        task.not_before = self.now.wall + decision.delay if decision.delay else None
        task.end(STATE_AFTER[decision.action])
        if task.state == "completed":
            task.resumes = 0
        elif task.state in TERMINAL:
            self.cancel_dependents(task.id)

    @precondition(lambda self: self.held)
    @rule(
        number=numbers, step=st.sampled_from([*STEPS, "settle", "claim"]), decision=decisions, forge=st.integers(-1, 1)
    )
    def trespass(self, number: int, step: str, decision: Decision, forge: int) -> None:
        """A holder of the past continues as if nothing had happened, through its own old connection.

        Where nobody is stale, somebody forges: the right owner under another fence, another owner under the right one.
        """
        stale = self.stale()
        held = (stale or self.held)[number % len(stale or self.held)]
        ownership = held.ownership
        if self.is_current(ownership):
            ownership = replace(
                ownership, fence=ownership.fence + forge, owner=ownership.owner if forge else "somebody"
            )
        run = self.tasks[ownership.task_id].open_run
        event(f"{'stale' if stale else 'forged'} {step}")
        if step == "claim":
            if ownership.owner != self.host:
                assert held.store.write(lambda tx: tx.tasks.claim(ownership.owner, self.now)) is None
        elif step == "settle":
            self.expect(NotOwner, self.settling(ownership, run, decision), held.store)
        else:
            self.expect(NotOwner, self.operation(ownership, step, run), held.store)

    def operation(self, ownership: Ownership, step: str, run: ModelRun | None) -> Callable[[Transaction], object]:
        run_id = run.id if run is not None else NOBODY
        self.next_run = new_id()
        verdict = Verdict(outcome=Outcome.FAILED, reason="exit 1")
        steps: dict[str, Callable[[Transaction], object]] = {
            "base": lambda tx: tx.tasks.set_base(ownership, f"base-{ownership.fence}", None, self.now),
            "intend": lambda tx: tx.runs.intend(ownership, self.next_run, self.now),
            "started": lambda tx: tx.runs.record_start(ownership, run_id, 7, self.now),
            "stopping": lambda tx: tx.runs.record_stop_request(ownership, run_id, StopWhy.DOWN, self.now),
            "ended": lambda tx: tx.runs.ended(ownership, run_id, verdict, self.now),
        }
        return steps[step]

    def settling(
        self, ownership: Ownership, run: ModelRun | None, decision: Decision
    ) -> Callable[[Transaction], object]:
        verdict = Verdict(outcome=Outcome.FAILED, reason="exit 1")
        return lambda tx: tx.tasks.settle(ownership, run.id if run else None, verdict, decision, None, self.now)

    def refusal_of(self, task: ModelTask, step: str) -> type[HoldfastError] | None:
        state = task.open_run.state if task.open_run is not None else None
        allowed = {
            "base": True,
            "intend": state is None,
            "started": state == "intended",
            "stopping": True,  # too late is no error
            "ended": state in {"intended", "started", "stopping"},
        }
        return None if allowed[step] else Conflict

    def apply(self, task: ModelTask, step: str) -> None:
        run = task.open_run
        if step == "base":
            task.base = f"base-{task.fence}"
        elif step == "intend":
            task.runs.append(ModelRun(self.next_run))
        elif run is not None and (step != "stopping" or run.state == "started"):
            run.state = step

    # -- time and death ------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 1.0, 5.0, 5.0, 40.0]), beat=st.booleans())
    def time_passes(self, seconds: float, beat: bool) -> None:
        self.now = self.now._replace(wall=self.now.wall + seconds, boottime=self.now.boottime + seconds)
        if beat:
            self.store.write(lambda tx: tx.hosts.beat(self.host, TTL, self.now))
            self.lease_until = self.now.boottime + TTL

    @rule(farewell=st.booleans(), ghost=st.booleans(), adopted=st.integers(0, 3))
    def crash_and_reopen(self, farewell: bool, ghost: bool, adopted: int) -> None:
        """The supervisor is gone, with or without a farewell. A ghost keeps its connection and may continue writing."""
        event("crashed")
        before = self.host
        if farewell:
            self.store.write(lambda tx: tx.hosts.close(before, self.now))
        old = self.store
        self.store = self.open_store()
        if not ghost:
            self.held = [replace(held, store=self.store) if held.store is old else held for held in self.held]
            self.stores.remove(old)
            old.close()
        self.open_host(expect_lost=[] if farewell else [before])
        elsewhere = [task.id for task in self.store.write(lambda tx: tx.tasks.running_elsewhere(self.host))]
        assert elsewhere == [task.id for task in self.tasks.values() if task.state == "running"]
        for task_id in elsewhere[:adopted]:
            self.adopt(self.tasks[task_id])

    @rule()
    def machine_restarts(self) -> None:
        """Every connection goes, the ghosts' too: only the files are left, and they are sound."""
        for store in self.stores:
            store.close()
        self.stores.clear()
        self.store = self.open_store()
        self.held = [replace(held, store=self.store) for held in self.held]
        assert self.store.integrity_problems() == []

    # -- what must hold after every step ---------------------------------------------------------------------------

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        rows = {str(row["id"]): self.store.view("task", id=row["id"])[0] for row in self.all_rows()}
        for task in self.tasks.values():
            row = rows.pop(task.id)
            seen = {name: row[name] for name in ("state", "fence", "owner", "generation", "seq", "not_before")}
            assert seen == {
                "state": task.state,
                "fence": task.fence,
                "owner": task.owner,
                "generation": task.generation,
                "seq": task.seq,
                "not_before": task.not_before,
            }
            assert (row["resume_attempts"], row["base_commit"]) == (task.resumes, task.base)
            assert (row["owner"] is not None) == (row["state"] == "running")
        assert rows == {}, "tasks that nobody added"

    @invariant()
    def at_most_one_open_run_each(self) -> None:
        for task in self.tasks.values():
            runs = self.store.view("runs", id=task.id)
            assert [(run["id"], run["state"]) for run in runs] == [(run.id, run.state) for run in task.runs]
            assert sum(run["state"] != "settled" for run in runs) <= 1

    @invariant()
    def nothing_spent_is_ever_given_back(self) -> None:
        for task in self.tasks.values():
            spent = [
                (generation, row["budget"])
                for generation in range(task.generation + 1)
                for row in self.store.view("spends", id=task.id, generation=generation)
            ]
            assert spent == task.spends

    @invariant()
    def one_terminal_event_per_ending_and_fences_only_rise(self) -> None:
        told = self.all_events()
        for task in self.tasks.values():
            mine = [row for row in told if row["task"] == task.id]
            endings = [row["kind"] for row in mine if row["kind"] in {f"task.{state}" for state in TERMINAL}]
            assert endings == task.endings
            given = [
                json.loads(row["data"])["fence"] for row in mine if row["kind"] in {"task.claimed", "task.adopted"}
            ]
            assert given == task.fences == sorted(set(given))

    def all_rows(self) -> list[dict[str, Any]]:
        return self.store.view("tasks") if self.stores else []

    def all_events(self) -> list[dict[str, Any]]:
        return self.store.view("events", after=0, task=None, limit=100_000) if self.stores else []


TestStoreModel = StoreMachine.TestCase
TestStoreModel.settings = settings(
    max_examples=amount(60, in_all=120),
    stateful_step_count=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
