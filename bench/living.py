"""Agents that live on a stage: started, found by their events and records, and seen from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.proc import Patience
from bench.stage import Stage

from holdfast.api.home.models import EventRow
from holdfast.api.queries import Queries
from holdfast.base.ids import new_id
from holdfast.core.model import Strategy, TaskSpec
from holdfast.core.task_settings import HealthRules

LIFETIME = 600  # seconds after which an idle agent ends by itself, whatever became of the benchmark
PATIENCE = 60.0
LOOK_EVERY = 0.0005
# Watched like any other run, but never given up while a slow machine still measures.
QUIET = HealthRules(stuck_after=1800.0, tool_silence=2700.0, startup_timeout=1800.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    task: str
    run: str
    pid: int
    claimed_at: float  # wall time, as all events
    started_at: float


class Living:
    """Follows the store's events from outside, as any other reader would."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._queries = Queries(str(stage.home))
        self._seq = 0
        self._version = -1
        self._claimed: dict[str, float] = {}
        self.agents: dict[str, Agent] = {}  # by task; the ended are taken out
        self.ended: dict[str, EventRow] = {}  # by task: its run.ended event

    def start(self, argvs: Sequence[Sequence[str]], **more: Any) -> list[Agent]:
        """Queue one task per command, and wait until all of them run."""
        tasks = [
            TaskSpec(
                id=new_id(),
                repo_id=self.stage.repo_id,
                prompt="live",
                agent="command",
                agent_options={"argv": list(argv)},
                strategy=Strategy.DIRECTORY,
                health=QUIET,
                **more,
            )
            for argv in argvs
        ]
        self.stage.queue(tasks)
        ids = [task.id for task in tasks]
        self.stage.wait(lambda: all(name in self.look().agents for name in ids), "all agents run")
        return [self.agents[name] for name in ids]

    def idle(self, count: int) -> list[Agent]:
        return self.start([["sleep", str(LIFETIME)]] * count)

    def wait_ended(self, task: str) -> float:
        """CLOCK_MONOTONIC at which the end of its run was to be seen in the store."""
        return self.until(lambda: task in self.look().ended, "the end of its run is in the store")

    def until(self, fact: Callable[[], object], what: str) -> float:
        patience = Patience(PATIENCE)
        while not fact():
            if patience.is_over():
                raise RuntimeError(f"this never became true: {what}")
            time.sleep(LOOK_EVERY)
        return time.monotonic()

    def directory(self, agent: Agent) -> Path:
        return self.stage.home / "runs" / agent.run

    def record(self, agent: Agent, name: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.directory(agent) / name).read_text())
        return record

    def keepers(self) -> list[int]:
        """The keepers of all living agents, by their own records."""
        return [int(self.record(agent, "pid.json")["keeper"]["pid"]) for agent in self.agents.values()]

    def look(self) -> Living:
        """Take over what is new in the store."""
        version = self._queries.data_version()
        if version == self._version:
            return self
        while events := self._queries.events(after=self._seq):
            for event in events:
                self._note(event)
            self._seq = int(events[-1]["seq"])
        self._version = version
        return self

    def _note(self, event: EventRow) -> None:
        task = str(event["task"])
        if event["kind"] == "task.claimed":
            self._claimed[task] = float(event["at"])
        elif event["kind"] == "run.started":
            self.agents[task] = Agent(
                task=task,
                run=str(event["run"]),
                pid=int(event["data"]["pid"]),
                claimed_at=self._claimed[task],
                started_at=float(event["at"]),
            )
        elif event["kind"] == "run.ended":
            self.ended[task] = event
            self.agents.pop(task, None)
