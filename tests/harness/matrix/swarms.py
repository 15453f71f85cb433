"""A parallel stage: members that complete, fail and leave work in trees of their own, all killed and adopted."""

from __future__ import annotations

import json

from tests.harness.matrix.steps import RAN, insist, state, task_id, up_to_the_end
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.queries import Queries
from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft
from holdfast.store.open import open_store

PROMPT = "be a swarm"
EXPECTED = {PROMPT: ("completed",)}
OUTCOMES = {"good": "completed", "bad": "failed", "": "completed"}


def swarm(world: World) -> None:
    draft = WorkflowDraft(
        name="swarm",
        stages=(
            StageDraft(
                name="review",
                members=(
                    MemberDraft(name="good", chosen=_shell("echo fine\n")),
                    MemberDraft(name="bad", chosen=_shell("echo broken; exit 3\n")),
                ),
                apart=True,
            ),
        ),
    )

    def work() -> None:
        added = Commands(str(world.home)).add(NewTask(prompt=PROMPT, directory=str(world.repo), workflow=draft))
        world.acknowledge(added.id)

    insist(world, "add", work, lambda: state(world, PROMPT) != "missing")
    up_to_the_end(world, "up")


def _shell(script: str) -> AgentChoice:
    return AgentChoice(command=("sh", "-c", RAN + script))


def problems(world: World) -> list[str]:
    """R-CRON-05: each member has one result, whatever died in between, and all were collected once."""
    task = task_id(world, PROMPT)
    if not task:
        return []
    store = open_store(str(world.home), create=False)
    results = [(result.member, result.outcome) for result in store.write(lambda tx: tx.results.of_task(task))]
    store.close()
    found = []
    if sorted(results) != sorted(OUTCOMES.items()):
        found.append(f"silent: the results of {task} are {json.dumps(results)}")
    events = [event["kind"] for event in Queries(str(world.home)).events(task_id=task)]
    if events.count("stage.collected") != 1:
        found.append(f"twice: the members of {task} were collected {events.count('stage.collected')} times")
    return found
