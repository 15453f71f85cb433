"""The result of a run, collected once its end is proven: the agent's last answer, the files, the commit.

No decision depends on the result, and it must not delay a settlement: parts that cannot be read are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from holdfast.agents.common.cli_agent import CliAgent
from holdfast.agents.port import AgentAdapter, Stream
from holdfast.base.concurrency import run_in_thread
from holdfast.base.files import data_lines, last_lines
from holdfast.core.agents.final_answer import make_storable, read_final_answer
from holdfast.core.model import Task, Workspace
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.states import WorkspaceState
from holdfast.core.workflows.result import MOST_TEXT, NO_CHANGED_FILES, ChangedFiles, GateResult, StageResult
from holdfast.core.workflows.workflow import name_of
from holdfast.supervisor.context import Context
from holdfast.supervisor.workspaces.save import litter_patterns

MOST_TAIL = 1 << 20  # bytes from the end of an agent's output, which nearly always hold its answer
_STATES_WITH_FILES = (WorkspaceState.READY, WorkspaceState.PRESERVED)


async def collect_result(
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
) -> StageResult:
    """Return the result of a run whose end is proven. The output is read from the run's directory, so the result is the
    same after any crash.

    `agent` and `member`: set for a member of a parallel stage. `workspace`: None if there is none, or if it need not be
    read. `passed`: whether the work passed. None: it passed if the run completed. `is_committed`: nothing in the
    workspace is uncommitted. The times at which the run began and ended are filled in when the result is recorded.
    """
    name = agent or task.spec.agent
    text = (
        "" if run_id is None else await run_in_thread(read_answer, context.home, run_id, context.ports.agents.get(name))
    )
    touched = await _find_changed_files(context, task, workspace, is_committed=is_committed)
    progress = task.progress
    return StageResult(
        stage=progress.stage,
        name=name_of(task.spec.stages, progress),
        visit=progress.visit,
        attempt=progress.tries + 1,
        member=member,
        run_id=run_id,
        agent=name,
        outcome=str(verdict.outcome),
        reason=make_storable(verdict.reason),
        ruling=ruling,
        passed=verdict.outcome is Outcome.COMPLETED if passed is None else passed,
        text=text,
        files=touched.files,
        changed=touched.count,
        commit=touched.commit,
        gate=gate,
    )


async def collect_final_result(
    context: Context, task: Task, run_id: str | None, verdict: Verdict, *, is_committed: bool, base: str | None = None
) -> StageResult:
    """Return the result of a task without a workflow, after its work is saved and before its workspace is removed.

    `is_committed`: the save found nothing in the workspace that is not committed, so git is not asked again. `base`:
    the branch was rebased onto that commit.
    """
    workspace = await context.writer.write(lambda tx: tx.workspaces.current(task.id))
    if workspace is not None and base is not None:
        workspace = replace(workspace, base_commit=base)
    return await collect_result(context, task, run_id, verdict, workspace=workspace, is_committed=is_committed)


def read_answer(home: str, run_id: str, adapter: AgentAdapter | None) -> str:
    """Return the agent's last answer. The call blocks and never raises. It reads the end of the output, which nearly
    always has the answer, and otherwise all of the output."""
    path = os.path.join(home, "runs", run_id, "out.log")
    try:
        if adapter is None or not adapter.reads_events:
            return read_final_answer(last_lines(path, 4 * MOST_TEXT), None)
        found = _find_answer(adapter, last_lines(path, MOST_TAIL))
        if found or os.path.getsize(path) <= MOST_TAIL:
            return found
        return _find_answer(adapter, data_lines(path))
    except Exception:  # noqa: BLE001 - our own defect while reading an agent's files: the answer is left out
        return ""


def _find_answer(adapter: AgentAdapter, lines: Iterable[str]) -> str:
    if isinstance(adapter, CliAgent):
        return read_final_answer(
            adapter.join_lines(lines), lambda line: adapter.parse(line, Stream.OUT), adapter.is_banner
        )
    return read_final_answer(lines, lambda line: adapter.parse(line, Stream.OUT))


async def _find_changed_files(
    context: Context, task: Task, workspace: Workspace | None, *, is_committed: bool
) -> ChangedFiles:
    if workspace is None or workspace.state not in _STATES_WITH_FILES:
        return NO_CHANGED_FILES
    leave = (*task.spec.workspace.copy, *litter_patterns(context, task.spec))
    return await context.ports.changed_files(workspace, leave, is_committed=is_committed)
