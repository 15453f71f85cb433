"""Tasks with a parallel stage whose members are scripts for sh: queued without the cost of a command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fleet import Fleet, wait_until

from holdfast.core.workflows.draft import AgentChoice, MemberDraft, StageDraft, WorkflowDraft


def draft(scripts: Mapping[str, str], *, name: str = "swarm", timeout: float = 60.0, **options: Any) -> WorkflowDraft:
    members = tuple(
        MemberDraft(name=member, chosen=AgentChoice(command=("sh", "-c", script))) for member, script in scripts.items()
    )
    stage = StageDraft(name="review", prompt="Look, {{ member }}.", members=members, timeout=timeout, **options)
    return WorkflowDraft(name=name, stages=(stage,))


def queue_swarm(fleet: Fleet, workflow: WorkflowDraft, **options: Any) -> str:
    from holdfast.api.commands import Commands, NewTask

    with fleet.as_its_user():
        new = NewTask(prompt="review", directory=str(fleet.repo), workflow=workflow, **options)
        commands = Commands(str(fleet.home))
        try:
            return commands.add(new).id
        finally:
            commands._store.close()


def results(fleet: Fleet, task_id: str) -> dict[str, Any]:
    """Member → its result; the stage's own is at ''."""
    from holdfast.store.sqlite.engine.store import SqliteStore

    store = SqliteStore(str(fleet.home))
    try:
        return {result.member: result for result in store.write(lambda tx: tx.results.of_task(task_id))}
    finally:
        store.close()


def wait_members(fleet: Fleet, task_id: str, count: int) -> dict[str, Any]:
    """Until so many of its members run."""
    wait_until(
        lambda: sum(run["state"] == "started" for run in fleet.show(task_id)["runs"]) == count,
        f"{count} members of {task_id} run",
    )
    return fleet.show(task_id)
