"""What `doctor` says of schedules: files that are not taken, fires that are refused, and nobody there to fire."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.api.fleet.schedules import has_supervisor, schedules
from holdfast.api.home.doctor_agents import Finding


def schedule_findings(home: str) -> Iterator[Finding]:
    rows, problems = schedules(home)
    for problem in problems.values():
        level = "note" if "`holdfast trust " in problem else "problem"  # a decision that nobody has made yet
        yield Finding(level, "schedules", problem)
    for row in rows:
        if row["trouble"] is not None:
            yield Finding("problem", "schedules", f"{row['name']} of {row['repo']} cannot fire: {row['trouble']}")
    live = [row for row in rows if row["enabled"]]
    if live and not has_supervisor(home):
        names = ", ".join(row["name"] for row in live[:5]) + (", …" if len(live) > 5 else "")
        yield Finding("note", "schedules", f"{names}: nothing fires while no supervisor is running; `holdfast up`")
    elif rows:
        yield Finding("ok", "schedules", f"{len(live)} of {len(rows)} enabled; `holdfast schedule list`")
