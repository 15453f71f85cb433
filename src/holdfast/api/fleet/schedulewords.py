"""Where a schedule stands, in words: for `holdfast schedule` and the screen of schedules."""

from __future__ import annotations

import time
from typing import Any

from holdfast.api.times import in_words
from holdfast.base.text import clean, one_line
from holdfast.base.units import show_duration

Row = dict[str, Any]


def state(row: Row) -> str:
    if not row["enabled"]:
        return "disabled"
    return "enabled" if row["seen"] else "new"


def last(row: Row) -> str:
    if row["last_fired_at"] is None:
        return "-"
    ago = show_duration(max(0.0, time.time() - row["last_fired_at"]))
    return f"{ago} ago: {row['last_task']} {row['last_task_state'] or 'gone'}"


def following(row: Row) -> str:
    """Its next fire."""
    if not row["enabled"]:
        return f"disabled by {row['enabled_by']}" if row["enabled_by"] else "disabled"
    if row["waiting"] and row["trouble"]:
        return f"due, tried again {in_words(row['next_try'], row['timezone'])}" if row["next_try"] else "due"
    if row["waiting"]:
        return "due, after its last task"
    if row["next_fire"] is None:
        return "never"
    words = in_words(row["next_fire"], row["timezone"])
    return f"due, {words}" if row["next_fire"] < time.time() else words


def fired(one: Row, zone: str) -> str:
    """What became of one occurrence."""
    when = in_words(one["fire_time"], zone)
    if one["task"] is not None:
        how = f" {clean(one['why'])}" if one["by_hand"] else ""
        return f"{when}{how}: task {one['task']} {one['task_state'] or '(forgotten)'}"
    return f"{when}: left out, {clean(one['why'])}"


def facts(row: Row) -> dict[str, str]:
    """What its file says, and what is wrong with it; empty ones are left out."""
    task = row["task"]
    found = {
        "repo": row["repo"],
        "cron": f"{row['cron']}  ({row['place'] or row['file']})",
        "enabled": f"{'yes' if row['enabled'] else 'no'}" + (f", by {row['enabled_by']}" if row["enabled_by"] else ""),
        "policy": f"overlap {row['overlap']}, misfire {row['misfire']}"
        + (f" (up to {row['max_catch_up']})" if row["misfire"] == "all" else "")
        + (f", jitter {row['jitter']:g} s" if row["jitter"] else ""),
        "range": f"{task.get('base', '')}..{task['ref']}" if "ref" in task else "",
        **{key: str(task[key]) for key in ("workflow", "agent", "model", "priority", "timeout") if key in task},
        "prompt": one_line(str(task.get("prompt", "")), 90),
        "trouble": row["trouble"] or "",
        "file": row["problem"] or "",
    }
    return {name: value for name, value in found.items() if value}
