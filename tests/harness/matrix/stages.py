"""A task in stages: a gate that fails once, a reviewer that sends back once, a person who approves. And a task without
stages whose gate fails once."""

from __future__ import annotations

import json

from tests.harness.matrix.branches import git_output
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


CHECKED = "pass the check"
EXPECTED_OF_CHECKED = {CHECKED: ("completed",)}


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


def checked(world: World) -> None:
    """Its first try lacks what the gate asks for. Its second does what the gate printed."""

    def work() -> None:
        script = RAN + "test -e first || touch first; git add first; git commit -qm first || true\n" + OBEY
        new = NewTask(prompt=CHECKED, directory=str(world.repo), command=("sh", "-c", script), gate=GATE, tries=2)
        world.acknowledge(Commands(str(world.home)).add(new).id)

    insist(world, "add", work, lambda: state(world, CHECKED) != "missing")
    up_to_the_end(world, "up")


def problems_of_checked(world: World) -> list[str]:
    """Each try has one result and one completed run. The work of both tries is on the branch."""
    task = task_id(world, CHECKED)
    if not task:
        return []
    found, row = _compare_results(world, task, [("work", False), ("work", True)]), Queries(str(world.home)).task(task)
    names = git_output(world, "ls-tree", "--name-only", row["branch"] or "HEAD").split()
    return found + [f"lost: {name} is not on the branch" for name in ("first", "fixed") if name not in names]


def _shell(script: str) -> AgentChoice:
    return AgentChoice(command=("sh", "-c", RAN + script))


def problems(world: World) -> list[str]:
    """R-RES-09: what was done is not done again, whatever died in between; and each try has one result."""
    task = task_id(world, PROMPT)
    return _compare_results(world, task, PASSED) if task else []


def _compare_results(world: World, task: str, wanted: list[tuple[str, bool]]) -> list[str]:
    queries = Queries(str(world.home))
    store = open_store(str(world.home), create=False)
    results = [(result.name, result.passed) for result in store.write(lambda tx: tx.results.of_task(task))]
    store.close()
    found = []
    if results != wanted:
        found.append(f"silent: the results of {task} are {json.dumps(results)}")
    done = [run["stage"] for run in queries.task(task)["runs"] if run["outcome"] == "completed"]
    if done != [name for name, _passed in wanted]:
        found.append(f"twice: the runs of {task} that completed are {done}")
    return found
