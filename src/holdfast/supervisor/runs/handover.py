"""Putting a hand-over together: from the store, the earlier runs' output and the workspace as it is now."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.agents.port import AgentAdapter, Stream
from holdfast.base.concurrency import in_thread
from holdfast.base.files import last_lines
from holdfast.core.model import Event, Run, Task, Workspace
from holdfast.core.workflows.handover import MOST_RUNS, EarlierRun, Recollection, hand_over
from holdfast.secrets.redact import redacted
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import litter_of

MOST_OUTPUT = 2 << 20  # bytes of a run's output, from its end: what was before is history
MOST_EARLIER = 20  # runs whose ends are told


async def handed_over(context: Context, task: Task, run: Run, workspace: Workspace) -> str | None:
    """What the agent of this run is told; None: nothing but its task, for nobody worked on it before, or it goes on in
    its own conversation, or is a command, which takes a prompt for what it is."""
    adapter = context.ports.agents[task.spec.agent]
    if task.session_id is not None or run.number == 1 or not adapter.reads_events:
        return None
    rows = context.store.view(
        "earlier_runs", id=task.id, before=run.number, after=task.progress.since, limit=MOST_EARLIER
    )
    if not rows:
        return None
    said = await in_thread(_recollections, context.home, adapter, [str(row["id"]) for row in rows[-MOST_RUNS:]])
    earlier = [_earlier(row, said.get(str(row["id"]))) for row in rows]
    leave = (*task.spec.workspace.copy, *litter_of(context, task.spec))
    changes = await context.ports.so_far(workspace, leave)
    text = _without_secrets(hand_over(task.spec.prompt, earlier, changes, f"holdfast {run.id}"), task.spec.prompt)
    why = earlier[-1].reason
    await context.writer.write(
        lambda tx: tx.events.emit(
            Event(
                kind="run.handed-over",
                task_id=task.id,
                run_id=run.id,
                message=f"Run {run.number} of task {task.id} begins a new conversation with a hand-over of "
                f"{len(earlier)} earlier run(s): `holdfast show {task.id} --prompt`.",
                reason=why,
                data={"runs": [one.number for one in earlier], "bytes": len(text.encode(errors="replace"))},
            ),
            context.clock(),
        )
    )
    return text


def _without_secrets(text: str, prompt: str) -> str:
    """What earlier agents said is kept with the run, like every other word of theirs. The user's own words stay."""
    clean, cleaned = redacted(text), redacted(prompt)
    return clean if cleaned == prompt else clean.replace(cleaned, prompt)


def _earlier(row: Mapping[str, object], said: Recollection | None) -> EarlierRun:
    report = row["claimed"] or row["progress"]
    return EarlierRun(
        number=int(str(row["number"])),
        outcome=str(row["outcome"] or "unknown"),
        reason=str(row["reason"] or "nobody knows why"),
        report=str(report or ""),
        said=said,
    )


def _recollections(home: str, adapter: AgentAdapter, runs: list[str]) -> dict[str, Recollection]:
    found = {}
    for run_id in runs:
        recollection = Recollection()
        for line in last_lines(os.path.join(home, "runs", run_id, "out.log"), MOST_OUTPUT):
            for event in adapter.parse(line, Stream.OUT):
                recollection.add(event)
        found[run_id] = recollection
    return found
