"""`make bench`: every benchmark in one run, a table, and the result as JSON (docs/benchmarks.md is made from it)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import (
    claim_to_exec,
    cold_start,
    event_latency,
    fleet,
    machine,
    peers,
    processes,
    store_cycles,
    top,
    workspaces,
)
from bench.figures import QUICK, WHOLE, Figure
from bench.render import TITLES, verdict

from holdfast.store.sqlite.engine.connection import filesystem_type

RESULTS = Path(__file__).parent / "results"
BENCHMARKS = {
    "store": store_cycles.run,
    "claim_to_exec": claim_to_exec.run,
    "fleet": fleet.run,
    "cold": cold_start.run,
    "events": event_latency.run,
    "processes": processes.run,
    "peers": peers.run,
    "workspaces": workspaces.run,
    "top": top.run,
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Holdfast against its goals.")
    parser.add_argument("--quick", action="store_true", help="less of everything, in two minutes or so; not kept")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="only this one; not kept without --keep")
    parser.add_argument("--keep", action="store_true", help="with --only: put its figures into the last result")
    parser.add_argument("--folder", default=None, help="where to work (a directory on a real disk)")
    arguments = parser.parse_args(argv)
    scale = QUICK if arguments.quick else WHOLE
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=arguments.folder or _real_disk()) as name:
        folder = Path(name)
        result: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "scale": scale.name,
            "machine": machine.describe(name),
        }
        print(_machine_line(result["machine"]), flush=True)
        began = time.monotonic()
        figures: list[Figure] = []
        for benchmark in arguments.only or BENCHMARKS:
            measured = BENCHMARKS[benchmark](scale, folder)
            figures += measured
            for figure in measured:
                print(_line(_as_json(figure)), flush=True)
        result["seconds"] = round(time.monotonic() - began)
        result["machine"]["fdatasync_us_after"] = machine.sync_microseconds(name)
        result["machine"]["load_after"] = [round(load, 2) for load in os.getloadavg()]
    result["figures"] = [_as_json(figure) for figure in figures]
    print(_summary(result))
    if arguments.only and arguments.keep:
        _keep(_put_into_last(result, arguments.only))
    elif not (arguments.quick or arguments.only):
        _keep(result)
    return 0


def _put_into_last(result: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    """The last whole result with these parts measured again, and a note that they were not of one run with the rest."""
    whole: dict[str, Any] = json.loads((RESULTS / "latest.json").read_text(encoding="utf-8"))
    fresh = {figure["name"] for figure in result["figures"]}
    whole["figures"] = [figure for figure in whole["figures"] if figure["name"] not in fresh] + result["figures"]
    noted = {"parts": parts, "date": result["date"], "load": result["machine"]["load_before"][0]}
    whole["apart"] = [*(one for one in whole.get("apart", []) if set(one["parts"]) - set(parts)), noted]
    return whole


def _real_disk() -> str:
    """The temporary directory, unless it is in memory: there an fsync costs nothing and nothing would be measured."""
    temporary = tempfile.gettempdir()
    return str(RESULTS) if filesystem_type(temporary) in ("tmpfs", "ramfs") else temporary


def _as_json(figure: Figure) -> dict[str, Any]:
    return {**asdict(figure), "met": figure.met}


def _line(figure: dict[str, Any]) -> str:
    title = TITLES[figure["name"]]
    if figure["value"] is None:
        return f"{'SKIPPED':<8} {title}: {figure['skipped']}"
    numbers = ", ".join(f"{key} {value}" for key, value in figure["detail"].items())
    return f"{verdict(figure):<8} {title}: {figure['value']:.3g} {figure['unit']}{_goal(figure)}\n         {numbers}"


def _goal(figure: dict[str, Any]) -> str:
    if figure["goal"] is None:
        return ""
    return f" (goal {'≥' if figure['at_least'] else '≤'} {figure['goal']:g})"


def _machine_line(found: dict[str, Any]) -> str:
    return (
        f"{found['cpu']}, {found['cores']} cores, {found['kernel']}, Python {found['python']}, SQLite "
        f"{found['sqlite_ours']} (plain sqlite3: {found['sqlite_of_python']}), {found['filesystem']}, "
        f"a synced page {found['fdatasync_us']} µs, load {found['load_before'][0]}"
    )


def _summary(result: dict[str, Any]) -> str:
    with_goal = [figure for figure in result["figures"] if figure["goal"] is not None]
    met = sum(figure["met"] is True for figure in with_goal)
    skipped = sum(figure["value"] is None for figure in with_goal)
    noted = f", {skipped} skipped" if skipped else ""
    return (
        f"{met} of {len(with_goal)} goals met{noted}; {result['seconds']} s, load {result['machine']['load_after'][0]}"
    )


def _keep(result: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1, ensure_ascii=False) + "\n"
    named = RESULTS / f"{result['date']}-{result['machine']['cores']}-cores.json"
    for path in (named, RESULTS / "latest.json"):
        path.write_text(text, encoding="utf-8")
    print(f"kept as bench/results/{named.name}; `make docs` renders it")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
