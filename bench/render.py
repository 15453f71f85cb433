"""docs/benchmarks.md from the newest kept result. Standard library only: `make docs` loads this file alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LATEST = Path(__file__).parent / "results" / "latest.json"

TITLES = {
    "store.plain.fresh": "store cycles against plain sqlite3, empty table",
    "store.plain.history": "store cycles against plain sqlite3, 100,000 finished tasks",
    "store.dbos.fresh": "store cycles against DBOS on SQLite, empty table",
    "store.dbos.history": "store cycles against DBOS on SQLite, 100,000 finished tasks on our side",
    "store.dbos-wal.fresh": "the same with WAL switched on for DBOS by hand, empty table",
    "store.dbos-wal.history": "the same with WAL switched on for DBOS by hand, 100,000 finished tasks on our side",
    "claim_to_exec.p99": "claim → the agent runs, 99th percentile",
    "fleet.directory": "scripted tasks end to end, `--workspace directory`",
    "fleet.worktree": "scripted tasks end to end, `--workspace worktree`",
    "cold.help": "cold `holdfast --help`, CPU time",
    "cold.ps": "cold `holdfast ps --json`, most tasks finished, CPU time",
    "cold.ps-all": "cold `holdfast ps --all --json`, every task printed, CPU time",
    "events.p99": "event → visible in `holdfast events -f --json`, 99th percentile",
}
# Why a goal is missed, by hand, beside the number that says by how much.
_CPU_BOUND = (
    "group commit has removed the waiting for the disk, and what is left is CPU time under one interpreter lock: some"
    " 115 µs a cycle; SQLite itself takes about 50 of them, our Python (events, budgets, leases, JSON, values) 30, and"
    " asyncio and the second thread the rest"
)
_PLAIN = f"{_CPU_BOUND}. On a disk that syncs a page in 0.17 ms plain sqlite3 needs only 0.6 ms for a cycle"
_DBOS = f"{_CPU_BOUND}. DBOS 3.3 does some 240 workflows a second on a free machine; the goal was set by 60 to 90"
WHY = {
    "store.plain.fresh": _PLAIN,
    "store.plain.history": _PLAIN,
    "store.dbos.fresh": _DBOS,
    "store.dbos.history": _DBOS,
    "claim_to_exec.p99": "alone on the machine it takes a quarter of the goal; other work on the same cores shows here",
    "events.p99": "the follower looks every 50 ms; what is beyond that is other work on the same cores and disk",
}


def verdict(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return "skipped"
    return {None: "told", True: "met", False: "MISSED"}[figure["met"]]


def page() -> str:
    if not LATEST.exists():
        return "# Benchmarks\n\nNothing has been measured yet: run `make bench`, then `make docs`."
    result = json.loads(LATEST.read_text(encoding="utf-8"))
    return "\n\n".join([_head(result), _table(result["figures"]), _misses(result["figures"]), _details(result), HOW])


def _head(result: dict[str, Any]) -> str:
    machine = result["machine"]
    loads = " → ".join(f"{machine[when][0]:g}" for when in ("load_before", "load_after"))
    return f"""# Benchmarks

`make bench` measures all of this in one run; `make bench QUICK=1` takes a quick look and keeps nothing. Ratios travel
between machines, absolute numbers do not.

Measured on {result["date"]} in {result["seconds"]} s: {machine["cpu"]}, {machine["cores"]} cores,
{machine["memory_gib"]:g} GiB, {machine["kernel"]}, Python {machine["python"]}, SQLite {machine["sqlite_ours"]} (plain
sqlite3: {machine["sqlite_of_python"]}), {machine["filesystem"]} where a synced page costs {machine["fdatasync_us"]} µs
before and {machine["fdatasync_us_after"]} µs after the run; load average {loads}."""


def _table(figures: list[dict[str, Any]]) -> str:
    lines = ["| what | measured | goal | |", "| --- | --- | --- | --- |"]
    for figure in figures:
        measured = "–" if figure["value"] is None else f"{_number(figure['value'])} {figure['unit']}"
        goal = "–" if figure["goal"] is None else f"{'≥' if figure['at_least'] else '≤'} {figure['goal']:g}"
        lines.append(f"| {TITLES[figure['name']]} | {measured} | {goal} | {verdict(figure)} |")
    return "\n".join(lines)


def _misses(figures: list[dict[str, Any]]) -> str:
    """Misses with the same reason share its text."""
    skipped = [f"- {TITLES[each['name']]}: skipped, {each['skipped']}." for each in figures if each["value"] is None]
    by_reason: dict[str, list[str]] = {}
    for figure in figures:
        if figure["met"] is False:
            share = abs(figure["value"] / figure["goal"] - 1) * 100
            side = "below" if figure["at_least"] else "above"
            missed = by_reason.setdefault(WHY.get(figure["name"], "not explained yet"), [])
            missed.append(f"- {TITLES[figure['name']]}: {share:.0f} % {side} its goal")
    told = [line for why, missed in by_reason.items() for line in (*missed, f"  Why: {why}.")]
    return "\n".join(
        ["## What is missed, and why", "", *(skipped + told or ["Nothing: every goal was met in this run."])]
    )


def _details(result: dict[str, Any]) -> str:
    lines = ["## Details"]
    for figure in result["figures"]:
        if figure["detail"]:
            numbers = ", ".join(f"{key} {_shown(value)}" for key, value in figure["detail"].items())
            lines.append(f"- **{TITLES[figure['name']]}**: {numbers}")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,g}" if abs(value) < 1e6 else f"{value:,.0f}"


HOW = """## How it is measured

- **Store cycles**: 1,000 concurrent callers, each of whom adds a task, claims one and completes it under its fence;
  every step is on disk (`synchronous=FULL`) before the caller goes on. Ours is the supervisor's own `GroupWriter` with
  events, leases and dependencies. Plain sqlite3 has the same schema and indexes, writes the same rows and events, and
  commits each step; its callers share one connection in one thread, its fastest form. DBOS runs a trivial workflow from
  a queue on SQLite with DBOS's own settings, its polling made 20 times faster. Rounds are interleaved; a ratio to plain
  sqlite3 is taken within each round, and the median of rounds is shown.
  Plain sqlite3 and DBOS wait for the disk, ours for the CPU: a slow or busy disk makes the ratios larger. With both
  cores free and 0.17 ms for a synced page we have seen about 6× and 43×, with a busy disk 20× and more.
- **Claim → the agent runs**: a real supervisor and keeper, `--workspace none`; from the time in the `task.claimed`
  event to the time that the agent (`date +%s%N`) prints.
- **End to end**: a real supervisor, the scripted agent; the very same player command lines run under `xargs -P`.
- **Cold start**: median CPU time of interleaved processes, compiled files, relative to `python -c pass`.
- **Events**: from the moment before the event's transaction begins to its line being read from the follower's pipe.
- Every benchmark works in a temporary directory on a real disk, never in memory."""
