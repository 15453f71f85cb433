"""docs/benchmarks.md from the newest kept result. Standard library only: `make docs` loads this file alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LATEST = Path(__file__).parent / "results" / "latest.json"
HISTORY = LATEST.with_name("history.jsonl")
MOST_RUNS = 12  # of the trend

PEERS = {
    "holdfast": "Holdfast",
    "supervisord": "supervisord (`stopasgroup`, `killasgroup`)",
    "circus": "circus",
    "circus-children": "circus (`stop_children`)",
}
TITLES = {
    "life.count.add": "git processes of `add`",
    "life.count.directory": "git processes of a task, `--workspace directory`, nothing changed",
    "life.count.worktree": "git processes of a task, `--workspace worktree`, nothing changed",
    "life.count.worktree-file": "git processes of a task, `--workspace worktree`, a new file",
    "life.cpu.directory": "supervisor's CPU time for a task, one after the other, `--workspace directory`",
    "life.cpu.worktree": "supervisor's CPU time for a task, one after the other, `--workspace worktree`",
    "store.plain.fresh": "store cycles against plain sqlite3, empty table",
    "store.plain.history": "store cycles against plain sqlite3, 100,000 finished tasks",
    "store.dbos.fresh": "store cycles against DBOS on SQLite, empty table",
    "store.dbos.history": "store cycles against DBOS on SQLite, 100,000 finished tasks on our side",
    "store.dbos-wal.fresh": "the same with WAL switched on for DBOS by hand, empty table",
    "store.dbos-wal.history": "the same with WAL switched on for DBOS by hand, 100,000 finished tasks on our side",
    "claim_to_exec.p99": "claim → the agent runs, 99th percentile",
    "fleet.directory": "scripted tasks end to end, `--workspace directory`",
    "fleet.worktree": "scripted tasks end to end, `--workspace worktree`",
    "fleet.by_hand": (
        "scripted tasks end to end, `--workspace worktree`, a new file each, against xargs over `git worktree add`, the"
        " command, `git add -A && git commit`, `git worktree remove`"
    ),
    "cold.help": "cold `holdfast --help`, CPU time",
    "cold.ps": "cold `holdfast ps --json`, most tasks finished, CPU time",
    "cold.add": "cold `holdfast add`, worktree, CPU time",
    "cold.show": "cold `holdfast show --json` of a finished task, CPU time",
    "cold.why": "cold `holdfast why --json` of a finished task, CPU time",
    "cold.wait": "cold `holdfast wait --json` for a finished task, CPU time",
    "cold.ps-all": "cold `holdfast ps --all --json`, every task printed, CPU time",
    "start_stop.cpu": "an idle supervisor's start and stop, CPU time, its children counted",
    "many_agents.started": "500 agents: queued → all run",
    "many_agents.adopted": "500 agents: start after kill -9 of the supervisor → all adopted",
    "many_agents.ended": "500 agents: `down --now` → all ended",
    "history.claim": "a claim beside 1,000,000 finished tasks, CPU time",
    "history.ps": "`holdfast ps --json` beside 1,000,000 finished tasks, CPU time",
    "history.start": "start and stop of an idle supervisor beside 1,000,000 finished tasks, CPU time",
    "events.p99": "event → visible in `holdfast events -f --json`, 99th percentile",
    **{
        f"processes.exit.{idle}": f"an agent's death → `run.ended` in the store, {idle:,} idle agents, 99th percentile"
        for idle in (1, 100, 500)
    },
    "processes.exit.asyncio": "that, against asyncio's own child watcher with as many children, medians",
    "processes.exit.polling": "that, against polling every second, medians",
    "processes.stop.plain": "cancel → proven empty, a plain tree, slowest",
    "processes.stop.stubborn": "cancel → proven empty, a tree that ignores TERM (1 s of grace), slowest",
    "processes.stop.hostile": "cancel → proven empty, the hostile tree (1 s of grace), slowest",
    "processes.stop.many": "the same for a large tree (1,000 processes) that ignores TERM, from the KILL on",
    "processes.idle.cpu": "supervisor at rest, CPU time",
    "processes.idle.memory": "supervisor at rest, resident memory",
    "processes.keepers.cpu": "all keepers together at rest, CPU time",
    **{f"processes.keeper.start.{idle}": f"claim → started, {idle:,} idle agents, median" for idle in (1, 100, 500)},
    **{f"processes.keeper.memory.{count}": f"private memory of a keeper, {count:,} agents" for count in (10, 100, 500)},
    **{
        f"workspaces.{verb}.{files}": f"{what}, {files:,} files"
        for files in (10, 100, 10_000)
        for verb, what in (
            ("prepare", "a workspace is made, against `git worktree add`"),
            ("remove", "its path is free again, against `git worktree remove --force`"),
        )
    },
    "workspaces.sweep": "process start → a waiting task is claimed, 1,000 leaked worktrees",
    "workspaces.swept": "process start → all leaked worktrees are saved and gone, 1,000 of them",
    "workspaces.burst": "20 tasks at once, until all have completed, against a shell loop of `git worktree`",
    "workspaces.by_hand": (
        "20 tasks at once, a new file each, until all worktrees are removed, against a shell loop of `git worktree"
        " add`, the command, `git add -A && git commit`, `git worktree remove`"
    ),
    "top.first_paint": "`holdfast top`: start → tasks on screen, 10,000 waiting",
    "top.idle.cpu": "`holdfast top` at rest, CPU time",
    "top.busy.cpu": "`holdfast top` with 1,000 events a second, CPU time",
    "top.seen": "an agent is killed → `holdfast top` has drawn it, slowest",
    **{
        f"peers.{verb}.{manager}": f"the hostile tree under {words}, {what}"
        for manager, words in PEERS.items()
        for verb, what in (
            ("stop", "stopped"),
            ("crash", "manager killed, restarted, then stopped"),
            ("orphan", "manager killed and not restarted"),
        )
    },
}
# Why a goal is missed, by hand, beside the number that says by how much.
_CPU_BOUND = (
    "group commit has removed the waiting for the disk, and what is left is CPU time under one interpreter lock: some"
    " 115 µs a cycle; SQLite itself takes about 50 of them, our Python (events, budgets, leases, JSON, values) 30, and"
    " asyncio and the second thread the rest"
)
_PLAIN = f"{_CPU_BOUND}. On a disk that syncs a page in 0.17 ms plain sqlite3 needs only 0.6 ms for a cycle"
_DBOS = f"{_CPU_BOUND}. DBOS 3.3 does some 240 workflows a second on a free machine; the goal was set by 60 to 90"
_EXIT = "alone on the machine it takes a fifth of the goal; other work on the same cores and disk shows here"
WHY = {
    "store.plain.fresh": _PLAIN,
    "store.plain.history": _PLAIN,
    "store.dbos.fresh": _DBOS,
    "store.dbos.history": _DBOS,
    "claim_to_exec.p99": "alone on the machine it takes a quarter of the goal; other work on the same cores shows here",
    "events.p99": "the follower looks every 50 ms; what is beyond that is other work on the same cores and disk",
    "processes.exit.1": _EXIT,
    "processes.exit.100": _EXIT,
    "processes.exit.500": _EXIT,
    "processes.idle.cpu": (
        "every 10 s each keeper gets a beat (its FIFO is opened each time), and a silent fleet is looked at in /proc"
    ),
    "top.first_paint": (
        "an empty Textual application takes half of it; the rest is our own modules and 10,000 rows, read once. Other"
        " work on the same cores shows here"
    ),
    "top.idle.cpu": (
        "ages and signs of life below a minute are drawn every second, and every 2 s the output of 500 agents is looked"
        " at; other work on the same cores shows here"
    ),
    "processes.keeper.memory.500": (
        "keepers are forked from one warmed-up process (5.3 MiB each as interpreters of their own), but Python 3.11"
        " counts references inside the shared pages, so that they are copied when they are used; from 3.12 on many"
        " objects are immortal"
    ),
}


def verdict(figure: dict[str, Any]) -> str:
    if figure["value"] is None:
        return "skipped"
    return {None: "told", True: "met", False: "MISSED"}[figure["met"]]


def page() -> str:
    if not LATEST.exists():
        return "# Benchmarks\n\nNothing has been measured yet: run `make bench`, then `make docs`."
    result = json.loads(LATEST.read_text(encoding="utf-8"))
    figures = result["figures"]
    told = [figure for figure in figures if not figure["name"].startswith("peers.")]
    peers = _side_by_side({figure["name"]: figure for figure in figures})
    parts = [_head(result), _table(told), *peers, _failures(result), _misses(figures), _trend(), _details(result), HOW]
    return "\n\n".join(parts)


def _head(result: dict[str, Any]) -> str:
    machine = result["machine"]
    loads = " → ".join(f"{machine[when][0]:g}" for when in ("load_before", "load_after"))
    return f"""# Benchmarks

`make bench` measures all of this in one run; `make bench QUICK=1` takes a quick look and keeps nothing. `make
bench-check` compares what a task costs with the last kept run, and fails if it costs more. Ratios travel between
machines, absolute numbers do not.

Measured on {result["date"]} in {result["seconds"]} s: {machine["cpu"]}, {machine["cores"]} cores,
{machine["memory_gib"]:g} GiB, {machine["kernel"]}, Python {machine["python"]}, SQLite {machine["sqlite_ours"]} (plain
sqlite3: {machine["sqlite_of_python"]}), {machine["filesystem"]} where a synced page costs {machine["fdatasync_us"]} µs
before and {machine["fdatasync_us_after"]} µs after the run; load average {loads}.{_apart(result)}"""


def _apart(result: dict[str, Any]) -> str:
    """Parts that were measured again since (`--only PART --keep`)."""
    told = [f"{' and '.join(one['parts'])} on {one['date']}, load {one['load']:g}" for one in result.get("apart", [])]
    return f"\n\nNot of the same run: {'; '.join(told)}." if told else ""


def _table(figures: list[dict[str, Any]]) -> str:
    lines = ["| what | measured | goal | |", "| --- | --- | --- | --- |"]
    for figure in figures:
        measured = "–" if figure["value"] is None else f"{_number(figure['value'])} {figure['unit']}"
        goal = "–" if figure["goal"] is None else f"{'≥' if figure['at_least'] else '≤'} {figure['goal']:g}"
        lines.append(f"| {TITLES[figure['name']]} | {measured} | {goal} | {verdict(figure)} |")
    return "\n".join(lines)


def _side_by_side(figures: dict[str, dict[str, Any]]) -> list[str]:
    """The same hostile tree under each manager; nothing in results that are older than the comparison."""
    if "peers.stop.holdfast" not in figures:
        return []
    lines = [
        "## The same hostile tree under other managers",
        "",
        "| manager | survivors of a stop | it says stopped after | survivors of its own kill -9 | copies after kill -9"
        " and restart | survivors when it is stopped then |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for manager, words in PEERS.items():
        stop, crash, orphan = (figures[f"peers.{verb}.{manager}"] for verb in ("stop", "crash", "orphan"))
        if None in (stop["value"], crash["value"], orphan["value"]):
            lines.append(f"| {words} | skipped | – | – | – | – |")
            continue
        size, copies = stop["detail"]["processes of the tree"], crash["detail"]["copies of the tree after the restart"]
        lines.append(
            f"| {words} {stop['detail']['version']} | {stop['value']:g} of {size} |"
            f" {stop['detail']['ms until it says stopped']:,} ms | {orphan['value']:g} of {size} | {copies} |"
            f" {crash['value']:g} of {size * copies} |"
        )
    return ["\n".join(lines)]


def _failures(result: dict[str, Any]) -> str:
    failed = result.get("failed") or {}
    lines = [f"- `{name}`: {why}" for name, why in failed.items()]
    return "\n".join(["## What failed", "", *(lines or ["Nothing: every benchmark ran to its end."])])


# Columns of the trend: a figure, or a number of the counts.
_TREND = {
    "git, unchanged": ("life.count.worktree", "git"),
    "git, a file": ("life.count.worktree-file", "git"),
    "SQL": ("life.count.worktree", "statements"),
    "syncs": ("life.count.worktree", "syncs"),
    "CPU ms, directory": ("life.cpu.directory", ""),
    "CPU ms, worktree": ("life.cpu.worktree", ""),
    "store / sqlite3": ("store.plain.fresh", ""),
    "`ps` / python": ("cold.ps", ""),
}


def _trend() -> str:
    """The last kept runs, the newest first. Times of different machines and loads say little beside each other."""
    lines = [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()] if HISTORY.exists() else []
    rows = ["## Trend", "", "The life of a task in a worktree, and some ratios, at the commits that were measured.", ""]
    rows += ["| date | commit | load | " + " | ".join(_TREND) + " |", "| --- " * (3 + len(_TREND)) + "|"]
    for line in reversed(lines[-MOST_RUNS:]):
        cells = [
            line["counts"].get(name, {}).get(key) if key else line["figures"].get(name) for name, key in _TREND.values()
        ]
        shown = ["–" if cell is None else _shown(round(cell, 1)) for cell in cells]
        rows.append(f"| {line['date']} | `{line['commit']}` | {line['load']:g} | " + " | ".join(shown) + " |")
    return "\n".join(rows)


def _misses(figures: list[dict[str, Any]]) -> str:
    """Misses with the same reason share its text."""
    skipped = [f"- {TITLES[each['name']]}: skipped, {each['skipped']}." for each in figures if each["value"] is None]
    by_reason: dict[str, list[str]] = {}
    for figure in figures:
        if figure["met"] is False:
            missed = by_reason.setdefault(WHY.get(figure["name"], "not explained yet"), [])
            missed.append(f"- {TITLES[figure['name']]}: {_distance(figure)} its goal")
    told = [line for why, missed in by_reason.items() for line in (*missed, f"  Why: {why}.")]
    return "\n".join(
        ["## What is missed, and why", "", *(skipped + told or ["Nothing: every goal was met in this run."])]
    )


def _distance(figure: dict[str, Any]) -> str:
    side = "below" if figure["at_least"] else "above"
    if figure["goal"] == 0:
        return f"{figure['value']:g} {side}"
    return f"{abs(figure['value'] / figure['goal'] - 1) * 100:.0f} % {side}"


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
  every step is on disk (`synchronous=FULL`) before the caller continues. Ours is the supervisor's own `GroupWriter`
  with
  events, leases and dependencies. Plain sqlite3 has the same schema and indexes, writes the same rows and events, and
  commits each step; its callers share one connection in one thread, its fastest form. DBOS runs a trivial workflow from
  a queue on SQLite with DBOS's own settings, its polling made 20 times faster. Rounds are interleaved; a ratio to plain
  sqlite3 is taken within each round, and the median of rounds is shown.
  Plain sqlite3 and DBOS wait for the disk, ours for the CPU: a slow or busy disk makes the ratios larger. With both
  cores free and 0.17 ms for a synced page we have seen about 6× and 43×, with a busy disk 20× and more.
- **The life of a task**: git processes, SQL statements and syncs are counted from outside
  (tests/harness/exact_counts.py), and `make test` holds them. CPU time: 40 tasks one after the other, all threads of
  the supervisor, its children not. `make bench-check` compares both with the last kept run.
- **Waiting**: a benchmark waits for a fact by the CPU time that the machine had left, not by the clock. One that fails
  is named above, the others go on, and `make bench` ends with an error.
- **Claim → the agent runs**: a real supervisor and keeper, `--workspace none`; from the time in the `task.claimed`
  event to the time that the agent (`date +%s%N`) prints.
- **End to end**: a real supervisor, the scripted agent; the very same player command lines run under `xargs -P`. In
  worktrees the agent writes a file, xargs runs `git worktree add`, the command, `git add -A && git commit`, `git
  worktree remove`, and the time of both sides ends when the last worktree is removed. The burst has the same line in a
  loop.
- **Cold start**: median CPU time of interleaved processes, compiled files, relative to `python -c pass`.
- **Start and stop**: `holdfast up --idle-exit 0s` in a home without a task. CPU time of the process and of all that it
  has waited for.
- **500 agents**: `sleep`, `--workspace directory`. Started: from the transaction that queues them until the last
  `run.started`. Adopted: from the start of the next supervisor until the last `task.adopted`. Ended: until `down --now`
  returns.
- **A long history**: 1,000,000 finished tasks, each with a run, a removed workspace and two events, put in by SQL.
  Both homes are measured in turn, and the medians of CPU time are compared.
- **An agent's death**: the benchmark stamps the time and kills the agent (`sleep`) with signal 9, beside others that
  idle under the same supervisor; until its `run.ended` can be read from the store by another process. That is after the
  keeper's fsynced exit record, its proof that nothing is left, its own end, and the supervisor's commit. asyncio and
  polling only call back in memory: no record, no proof, and no answer after the parent's death.
- **Cancel → proven empty**: from the cancel to the run's `empty.json`. A witness of its own counts, by /proc/*/fd, who
  still holds a file open that the whole tree inherited.
- **At rest**: CPU time of all threads from /proc (schedstat) over 30 s without a start or an end; private memory from
  smaps_rollup: pages that no other process shares.
- **Workspaces**: the strategy as the supervisor calls it, in turn with plain git in the same repository (1.3 KB a
  file), medians. Ours writes an owner record, takes the repository's lock, neutralises hooks and filters, and checks
  out with `checkout.workers`; to remove is to rename (the path is free), drop our entry and the branch without commits;
  deleting is a background job and stands in the details. The sweep has 1,000 leaked trees, a tenth of them with unsaved
  work and a fifth unknown to the store.
- **The hostile tree**: a leader, a plain child, one in its own group, a `setsid` daemon, a double fork, a TERM-ignorer
  and one with a scrubbed environment; every member ends by itself after 60 s. One second of grace for all managers,
  survivors are counted by the witness 2 s after the manager said that it stopped. With its own kill -9: 5 s after it,
  not restarted, `health.orphan_grace` of 2 s instead of 2 m; or restarted with the same configuration. circus with
  `stop_children` looks for the children again after it has signalled the leader; a leader that ends at once has none
  any more, so how many of them it ends is a matter of luck.
- **Events**: from the moment before the event's transaction begins to its line being read from the follower's pipe.
- **`holdfast top`**: on a pty of 120×40 that is drained by the benchmark. First paint: from the start of the process
  until a task is drawn; all tasks wait, and so all are listed. At rest and in the storm: CPU time of the whole process
  with idle agents, all listed; in the storm a writer changes the reason of ten tasks a transaction, with their events.
  An empty Textual application, `holdfast ps` and `holdfast events -f` are measured beside it.
- Every benchmark works in a temporary directory on a real disk, never in memory."""
