"""What a run left behind, gathered once its end is proven: the agent's last answer, the files, the commit.

Nothing of this decides anything, and nothing of it may hold up a settlement: what cannot be read is not told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.port import AgentAdapter, Stream
from holdfast.base.concurrency import in_thread
from holdfast.base.files import data_lines, last_lines
from holdfast.core.agents.final_answer import answer_of, storable
from holdfast.core.model import Task, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.states import WorkspaceState
from holdfast.core.workflows.result import MOST_TEXT, NOTHING_TOUCHED, GateResult, Result, Touched
from holdfast.core.workflows.workflow import name_of
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import litter_of

MOST_TAIL = 1 << 20  # bytes from the end of an agent's output in which its answer nearly always stands
_THERE = (WorkspaceState.READY, WorkspaceState.PRESERVED)


async def result_of(
    context: Context,
    task: Task,
    run_id: str | None,
    verdict: Verdict,
    *,
    workspace: Workspace | None = None,
    agent: str | None = None,
    member: str = "",
    gate: GateResult | None = None,
    ruling: str = "",
    passed: bool | None = None,
    is_committed: bool = False,
) -> Result:
    """Of a run whose end is proven. Its output is read from its directory, so this is the same after any crash.

    `agent` and `member`: of a member of a parallel stage. `workspace`: None where there is none, or no look is wanted.
    `passed`: by default, whether it completed. `is_committed`: nothing is uncommitted in there. When it began and
    ended is filled in from its run when it is recorded.
    """
    name = agent or task.spec.agent
    text = "" if run_id is None else await in_thread(answer, context.home, run_id, context.ports.agents.get(name))
    touched = await _touched(context, task, workspace, is_committed=is_committed)
    progress = task.progress
    return Result(
        stage=progress.stage,
        name=name_of(task.spec.stages, progress),
        visit=progress.visit,
        attempt=progress.tries + 1,
        member=member,
        run_id=run_id,
        agent=name,
        outcome=str(verdict.outcome),
        reason=storable(verdict.reason),
        ruling=ruling,
        passed=verdict.outcome is Outcome.COMPLETED if passed is None else passed,
        text=text,
        files=touched.files,
        commit=touched.commit,
        gate=gate,
    )


async def result_at_end(context: Context, task: Task, run_id: str | None, verdict: Verdict) -> Result:
    """Of a task without a workflow, when its work is saved and its workspace not yet put away."""
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    is_committed = verdict.outcome is Outcome.COMPLETED and task.spec.commit_leftovers == "all"
    return await result_of(context, task, run_id, verdict, workspace=workspace, is_committed=is_committed)


def answer(home: str, run_id: str, adapter: AgentAdapter | None) -> str:
    """Blocking, and never raises. Nearly always the end of the output has it; else all of it is read."""
    path = os.path.join(home, "runs", run_id, "out.log")
    try:
        if adapter is None or not adapter.reads_events:
            return answer_of(last_lines(path, 4 * MOST_TEXT), None)
        found = _said(adapter, last_lines(path, MOST_TAIL))
        if found or os.path.getsize(path) <= MOST_TAIL:
            return found
        return _said(adapter, data_lines(path))
    except Exception:  # noqa: BLE001 - an agent's files met a fault of ours: its answer is not told, that is all
        return ""


def _said(adapter: AgentAdapter, lines: Iterable[str]) -> str:
    if isinstance(adapter, CliAgent):
        return answer_of(adapter.rejoin(lines), lambda line: adapter.parse(line, Stream.OUT), adapter.is_banner)
    return answer_of(lines, lambda line: adapter.parse(line, Stream.OUT))


async def _touched(context: Context, task: Task, workspace: Workspace | None, *, is_committed: bool) -> Touched:
    if workspace is None or workspace.state not in _THERE:
        return NOTHING_TOUCHED
    leave = (*task.spec.workspace.copy, *litter_of(context, task.spec))
    return await context.ports.touched(workspace, leave, is_committed=is_committed)
