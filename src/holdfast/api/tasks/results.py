"""Results of a task's stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.base.stored_json import load_stored_json, stored_data_errors

if TYPE_CHECKING:
    from holdfast.api.queries import Queries
    from holdfast.api.tasks.models import JsonObject, MemberCounts, ResultsRow, StageResultRow


@stored_data_errors
def read_results(queries: Queries, task_id: str) -> ResultsRow:
    """Return the results of the present generation in order. A task without a workflow has one stage, "work"."""
    task = queries.state(task_id)
    stages = [_stage(row) for row in queries.view("results", id=task_id)]
    return {
        "task": task_id,
        "state": task["state"],
        "workflow": load_stored_json(task["settings"]).get("workflow") or None,
        "stages": stages,
        "members": _count_members(stages),
    }


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
    """Return "3 of 5 completed: 1 crashed, 1 timeout" """
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


def why_not_passed(stage: StageResultRow) -> str:
    """Return why a stage did not pass."""
    if stage["gate"] is not None and not stage["gate"]["passed"]:
        return "its gate failed"
    return "it asked for changes" if stage["ruling"] == "changes" else str(stage["reason"])
