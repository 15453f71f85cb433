"""The hand-over for a new conversation: made from the store, the output of earlier runs and the current workspace."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.agents.port import AgentAdapter, Stream
from holdfast.base.concurrency import run_in_thread
from holdfast.base.files import last_lines
from holdfast.core.model import Event, Run, Task, Workspace
from holdfast.core.workflows.handover import MOST_RUNS, EarlierRun, RunMemory, write_handover
from holdfast.secrets.redact import redact_text
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import litter_patterns

MOST_OUTPUT = 2 << 20  # bytes of a run's output, from its end: older output is history
MOST_EARLIER = 20  # earlier runs whose ends are listed


async def build_handover(context: Context, task: Task, run: Run, workspace: Workspace) -> str | None:
    """Return the hand-over text for the agent of this run. None: the agent gets only its task.

    None is returned in three cases. No earlier run worked on the task. The agent resumes its own conversation. The
    agent is a plain command, which executes its prompt as it is.
    """
    adapter = context.ports.agents[task.spec.agent]
    if task.session_id is not None or run.number == 1 or not adapter.reads_events:
        return None
    rows = context.store.view(
        "earlier_runs", id=task.id, before=run.number, after=task.progress.since, limit=MOST_EARLIER
    )
    if not rows:
        return None
    agents = {str(row["id"]): context.ports.agents[str(row["agent"] or task.spec.agent)] for row in rows[-MOST_RUNS:]}
    said = await run_in_thread(_read_earlier_output, context.home, agents)
    earlier = [_earlier_run(row, said.get(str(row["id"]))) for row in rows]
    leave = (*task.spec.workspace.copy, *litter_patterns(context, task.spec))
    changes = await context.ports.changes_so_far(workspace, leave)
    text = _redact_handover(write_handover(task.spec.prompt, earlier, changes, f"holdfast {run.id}"), task.spec.prompt)
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


def _redact_handover(text: str, prompt: str) -> str:
    """Return the text with secrets redacted, because earlier agents' output is kept with the run. The user's own prompt
    stays as it was."""
    clean, cleaned = redact_text(text), redact_text(prompt)
    return clean if cleaned == prompt else clean.replace(cleaned, prompt)


def _earlier_run(row: Mapping[str, object], said: RunMemory | None) -> EarlierRun:
    report = row["claimed"] or row["progress"]
    return EarlierRun(
        number=int(str(row["number"])),
        outcome=str(row["outcome"] or "unknown"),
        reason=str(row["reason"] or "the reason is not known"),
        report=str(report or ""),
        said=said,
    )


def _read_earlier_output(home: str, runs: Mapping[str, AgentAdapter]) -> dict[str, RunMemory]:
    """Return what each run did, as the adapter of its agent reads the output. The runs of a task may have different
    agents."""
    found = {}
    for run_id, adapter in runs.items():
        recollection = RunMemory()
        for line in last_lines(os.path.join(home, "runs", run_id, "out.log"), MOST_OUTPUT):
            for event in adapter.parse(line, Stream.OUT):
                recollection.add(event)
        found[run_id] = recollection
    return found
