"""What the stages of a task left behind, as plain dicts with stable names (docs/reference/json.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.base.stored_json import recorded, understood

if TYPE_CHECKING:
    from holdfast.api.queries import Queries

Row = dict[str, Any]


@understood
def results(queries: Queries, task_id: str) -> Row:
    """Of its present generation, in order. A task without a workflow has one stage, "work"."""
    task = queries.state(task_id)
    stages = [_stage(row) for row in queries.view("results", id=task_id)]
    return {
        "task": task_id,
        "state": task["state"],
        "workflow": recorded(task["settings"]).get("workflow") or None,
        "stages": stages,
        "members": _counted(stages),
    }


@understood
def _stage(row: Row) -> Row:
    gate = recorded(row["gate"]) if row["gate"] else None
    return {
        **row,
        "ruling": row["ruling"] or None,
        "member": row["member"] or None,
        "passed": bool(row["passed"]),
        "files": recorded(row["files"]),
        "gate": None if gate is None else {key: gate[key] for key in ("command", "passed", "how", "output")},
    }


def _counted(stages: list[Row]) -> list[Row]:
    """Of each time that a parallel stage was run: how many of its members ended how."""
    found: dict[tuple[str, int], Row] = {}
    for stage in stages:
        if stage["member"] is None:
            continue
        key = (stage["name"], stage["visit"])
        row = found.setdefault(key, {"name": stage["name"], "visit": stage["visit"], "total": 0, "outcomes": {}})
        row["total"] += 1
        row["outcomes"][stage["outcome"]] = row["outcomes"].get(stage["outcome"], 0) + 1
    return list(found.values())


def in_words(counted: Row) -> str:
    """ "3 of 5 completed: 1 crashed, 1 timeout" """
    others = [f"{number} {outcome}" for outcome, number in counted["outcomes"].items() if outcome != "completed"]
    done = f"{counted['outcomes'].get('completed', 0)} of {counted['total']} completed"
    return f"{done}: {', '.join(others)}" if others else done


def headings(stages: list[Row]) -> list[str]:
    """Which result each of them is: "review (member codex), again (2), try 2"."""
    visits: dict[str, list[int]] = {}  # of each stage, by its name: the task's visits of it
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


def why_not(stage: Row) -> str:
    """Of one that did not pass."""
    if stage["gate"] is not None and not stage["gate"]["passed"]:
        return "its gate failed"
    return "it asked for changes" if stage["ruling"] == "changes" else str(stage["reason"])
