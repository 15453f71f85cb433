"""The stage of a task in its workflow, as a row and as text, and the approval of a stage.

The module imports little, because `ps` imports it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.api.format import duration
from holdfast.base.stored_json import load_stored_json, stored_data_errors
from holdfast.base.text import one_line

if TYPE_CHECKING:
    from holdfast.api.tasks.models import JsonObject, RunningGateRow, StageRow, TaskDetails


@stored_data_errors
def read_stage(settings: JsonObject, progress: str | None) -> StageRow | None:
    """Return the stage of a task, from its settings and progress. None: the task has no workflow.

    A task with a gate and without a workflow has one stage, but the result for it is None too.
    """
    stages = settings.get("stages")
    if not stages or not settings.get("workflow"):
        return None
    kept = load_stored_json(progress) if progress else {}
    index = min(kept.get("stage", 0), len(stages) - 1)
    name = stages[index]["name"]
    turns = kept.get("turns", {})
    turn = sum(turns.get(stage["name"], 0) for stage in stages if name in (stage["name"], stage.get("back_to")))
    return {
        "workflow": settings["workflow"],
        "name": name,
        "number": index + 1,
        "of": len(stages),
        "try": kept.get("tries", 0) + 1,
        "turn": turn,
        "awaits_approval": kept.get("awaits", False),
        "feedback": kept.get("feedback", ""),
        "names": [stage["name"] for stage in stages],
        "members": [member["name"] for member in stages[index].get("members", ())],
    }


@stored_data_errors
def read_running_gate(state: str, stages: Sequence[JsonObject] | None, progress: str | None) -> RunningGateRow | None:
    """Return the gate that checks a running task now. None: its gate does not run, or the task has none."""
    if state != "running" or not stages or not progress:
        return None
    kept = load_stored_json(progress)
    if not kept.get("asked_at"):
        return None
    from holdfast.secrets.redact import redact_text

    stage = stages[min(kept.get("stage", 0), len(stages) - 1)]
    return {"command": one_line(redact_text(str(stage.get("gate", ""))), 200), "since": float(kept["asked_at"])}


def describe_running_gate(gate: RunningGateRow, now: float) -> tuple[str, str]:
    """Return "gate `make test`" and its age, "12s"."""
    return f"gate `{gate['command']}`", duration(max(1.0, now - gate["since"]))


def words(stage: StageRow) -> str:
    """Return "stage 2 of 3 (build), try 2, turn 1"."""
    told = f"stage {stage['number']} of {stage['of']} ({stage['name']})"
    told += f", {len(stage['members'])} members" if stage["members"] else ""
    told += f", try {stage['try']}" if stage["try"] > 1 else ""
    return told + (f", turn {stage['turn']}" if stage["turn"] else "")


def stage_lines(task: TaskDetails, home: str) -> list[str]:
    """Return sentences about the stage and the gate of a task, for `why`."""
    stage, gate = task["stage"], task["gate"]
    if task["state"] in ("completed", "cancelled") or (stage is None and gate is None):
        return []
    told = []
    if stage is not None:
        told = [f"It is in {words(stage)} of its workflow '{stage['workflow']}'.", *_members(task, stage)]
    if stage is not None and stage["feedback"] and not stage["awaits_approval"]:
        told.append(f"Its agent gets the feedback in its prompt: `holdfast show {task['id']} --prompt`.")
    elif stage is None and gate is not None and not gate["passed"] and task["state"] != "failed":
        told.append(
            f"Its gate `{gate['command']}` {gate['how']}. Its agent gets the gate's output: "
            f"`holdfast show {task['id']} --prompt`."
        )
    log = _newest_gate_log(home, task["id"])
    return told if log is None else [*told, f"The output of its last gate: {log}"]


def _newest_gate_log(home: str, task_id: str) -> str | None:
    """Return the path of the newest gate log of a task. workspaces/names.setup_log defines the names."""
    import glob  # only `why` asks

    logs = glob.glob(os.path.join(glob.escape(home), "setup-logs", f"{task_id}.*.gate-*.log"))
    found = [(os.lstat(log).st_mtime, log) for log in logs if os.path.exists(log)]
    return max(found)[1] if found else None


def _members(task: TaskDetails, stage: StageRow) -> list[str]:
    """Return a sentence about the last run of each member of a parallel stage."""
    latest = {run["member"]: run for run in task["runs"] if run["member"] and run["stage"] == stage["name"]}
    told = []
    for name in stage["members"]:
        run = latest.get(name)
        how = "waits for a slot" if run is None else run["outcome"] or f"is {run['state']}"
        told.append(f"Member {name}: {how}." if run is None or run["outcome"] is None else f"Member {name}: {how}, "
                    f"{run['reason']}.")  # fmt: skip
    return [*told, f"See the output of one member: `holdfast logs {task['id']} --member NAME`."] if told else []


def how_to_approve(task_id: str) -> str:
    return (
        f"Look at its work with `holdfast diff {task_id}`. Then `holdfast approve {task_id}` continues the task, "
        f"`holdfast approve {task_id} --changes TEXT` sends the work back with your text, and `holdfast cancel "
        f"{task_id}` ends the task."
    )


def approve(home: str, task_id: str, changes: str | None = None, *, stage: str | None = None) -> str:
    """Approve the last stage, or ask for `changes`, made by the stage named `stage`. Return a sentence about what
    follows."""
    from holdfast.api.commands import change_store, check_prompt, operator_name
    from holdfast.base import clock
    from holdfast.base.errors import UsageError

    if changes is not None:
        check_prompt(changes)
    elif stage is not None:
        raise UsageError(
            f"--stage names the stage that makes changes: `holdfast approve {task_id} --stage {stage} --changes TEXT`. "
            "Nothing was changed."
        )
    by = operator_name()
    return change_store(home, lambda tx: tx.stages.approve(task_id, by, clock.now(), changes, stage=stage))
