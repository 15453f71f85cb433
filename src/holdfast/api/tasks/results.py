"""Results of a task's stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.base.stored_json import load_stored_json, stored_data_errors

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import JsonObject, MemberCounts, ResultsRow, StageDecisionRow, StageResultRow


@stored_data_errors
def read_results(queries: Queries, task_id: str) -> ResultsRow:
    """Return the results of the current generation in order. A task without a workflow has one stage, "work"."""
    task = queries.state(task_id)
    stages = [_stage(row) for row in queries.view("results", id=task_id)]
    return {
        "task": task_id,
        "state": task["state"],
        "workflow": load_stored_json(task["settings"]).get("workflow") or None,
        "stages": stages,
        "members": _count_members(stages),
        "decisions": _decisions(queries, task_id, stages),
    }


def _decisions(queries: Queries, task_id: str, stages: list[StageResultRow]) -> list[StageDecisionRow]:
    """Return what people decided about these stages. A fresh retry drops earlier decisions."""
    found: list[StageDecisionRow] = []
    for row in queries.view("decisions", id=task_id) if stages else ():
        by, changes = (load_stored_json(row["data"])[key] for key in ("by", "changes"))
        if row["at"] >= (stages[0]["ended_at"] or 0.0):
            found.append({"at": row["at"], "by": by, "stage": row["stage"] or "", "changes": changes, "to": row["to"]})
    return found


@stored_data_errors
def _stage(row: JsonObject) -> StageResultRow:
    gate = load_stored_json(row["gate"]) if row["gate"] else None
    made = {
        **row,
        "ruling": row["ruling"] or None,
        "member": row["member"] or None,
        "passed": bool(row["passed"]),
        "files": load_stored_json(row["files"]),
        "gate": None if gate is None else {key: gate[key] for key in ("command", "passed", "how", "output")},
    }
    return cast("StageResultRow", made)


def _count_members(stages: list[StageResultRow]) -> list[MemberCounts]:
    """Count how the members of a parallel stage ended, for each visit of the stage."""
    found: dict[tuple[str, int], MemberCounts] = {}
    for stage in stages:
        if stage["member"] is None:
            continue
        key = (stage["name"], stage["visit"])
        row = found.setdefault(key, {"name": stage["name"], "visit": stage["visit"], "total": 0, "outcomes": {}})
        row["total"] += 1
        row["outcomes"][stage["outcome"]] = row["outcomes"].get(stage["outcome"], 0) + 1
    return list(found.values())


def describe_members(counted: MemberCounts) -> str:
    """Return how the members ended: "3 of 5 completed: 1 crashed, 1 timeout"."""
    others = [f"{number} {outcome}" for outcome, number in counted["outcomes"].items() if outcome != "completed"]
    done = f"{counted['outcomes'].get('completed', 0)} of {counted['total']} completed"
    return f"{done}: {', '.join(others)}" if others else done


def stage_headings(stages: list[StageResultRow]) -> list[str]:
    """Return a heading for each result: "review (member codex), again (2), try 2"."""
    visits: dict[str, list[int]] = {}  # stage name → the task's visits of that stage
    found = []
    for stage in stages:
        seen = visits.setdefault(stage["name"], [])
        if stage["visit"] not in seen:
            seen.append(stage["visit"])
        member = f" (member {stage['member']})" if stage["member"] else ""
        again = f", again ({len(seen)})" if len(seen) > 1 else ""
        tries = f", try {stage['attempt']}" if stage["attempt"] > 1 else ""
        found.append(f"{stage['name']}{member}{again}{tries}")
    return found


def describe_end(stage: StageResultRow) -> str:
    """Return how a stage ended: "completed", "approved", "crashed", or why a completed stage did not pass."""
    if stage["passed"]:
        return "approved" if stage["ruling"] == "approve" else stage["outcome"]
    return why_not_passed(stage) if stage["outcome"] == "completed" else stage["outcome"]


def why_not_passed(stage: StageResultRow) -> str:
    """Return why a stage did not pass."""
    if stage["gate"] is not None and not stage["gate"]["passed"]:
        return "its gate failed"
    if stage["ruling"] == "changes":
        return "it asked for changes"
    return "it gave no verdict" if stage["outcome"] == "completed" else str(stage["reason"])


def pair_decisions(found: ResultsRow) -> list[list[StageDecisionRow]]:
    """Return for each stage result what people decided after it, and before the next one."""
    ends = [stage["ended_at"] for stage in found["stages"]][1:]
    left = list(found["decisions"])
    paired: list[list[StageDecisionRow]] = []
    for end in [*ends, None] if found["stages"] else []:
        took = [one for one in left if end is None or one["at"] < end]
        left = left[len(took) :]
        paired.append(took)
    return paired


def describe_decision(one: StageDecisionRow) -> str:
    """Return "ann approved stage review" or "ann asked for changes to stage review, made by stage build"."""
    if one["changes"] is None:
        return f"{one['by']} approved stage {one['stage']}"
    made = f", made by stage {one['to']}" if one["to"] and one["to"] != one["stage"] else ""
    return f"{one['by']} asked for changes to stage {one['stage']}{made}"
