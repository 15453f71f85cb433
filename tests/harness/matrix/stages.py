"""A task in stages: a gate that fails once, a reviewer that sends back once, a person who approves."""

from __future__ import annotations

import json

from tests.harness.matrix.steps import RAN, insist, state, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.queries import Queries
from holdfast.api.tasks.stages import approve
from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft
from holdfast.store.open import open_store

PROMPT = "go through stages"
EXPECTED = {PROMPT: ("completed",)}
PASSED = [("plan", True), ("build", False), ("build", True), ("review", False), ("build", True), ("review", True)]


def stages(world: World) -> None:
    add_staged(world)
    up_to_the_end(world, "up")
    if state(world, PROMPT) == "paused":
        waiting = task_id(world, PROMPT)
        insist(world, "approve", lambda: approve(str(world.home), waiting), lambda: state(world, PROMPT) != "paused")
    up_to_the_end(world, "up2")


OBEY = """told=$(cat)
for name in fixed twice; do case "$told" in *"touch $name"*) touch $name ;; esac; done
"""
GATE = "test -e fixed || { echo 'touch fixed'; exit 1; }"
RULE = "if [ -e twice ]; then echo VERDICT: approve; else echo 'touch twice'; echo VERDICT: changes; fi\n"


def add_staged(world: World) -> None:
    """Its agents do what they are told, and remember nothing: what they do again comes out the same."""
    draft = WorkflowDraft(
        name="staged",
        stages=(
            StageDraft(name="plan", chosen=_shell(write("plan.txt", "plan"))),
            StageDraft(
                name="build",
                chosen=_shell(write("built.txt", "built") + OBEY),
                gate=GATE,
                retry=1,
            ),
            StageDraft(
                name="review",
                chosen=_shell(RULE),
                reviews=True,
                back_to="build",
                approval=True,
            ),
        ),
    )

    def work() -> None:
        added = Commands(str(world.home)).add(NewTask(prompt=PROMPT, directory=str(world.repo), workflow=draft))
        world.acknowledge(added.id)

    insist(world, "add", work, lambda: state(world, PROMPT) != "missing")


def _shell(script: str) -> AgentChoice:
    return AgentChoice(command=("sh", "-c", RAN + script))


def problems(world: World) -> list[str]:
    """R-RES-09: what was done is not done again, whatever died in between; and each try has one result."""
    task = task_id(world, PROMPT)
    if not task:
        return []
    queries = Queries(str(world.home))
    store = open_store(str(world.home), create=False)
    results = [(result.name, result.passed) for result in store.write(lambda tx: tx.results.of_task(task))]
    store.close()
    found = []
    if results != PASSED:
        found.append(f"silent: the results of {task} are {json.dumps(results)}")
    done = [run["stage"] for run in queries.task(task)["runs"] if run["outcome"] == "completed"]
    if done != [name for name, _passed in PASSED]:
        found.append(f"twice: the runs of {task} that completed are {done}")
    return found
