"""`make bench`: every benchmark in one run, a table, and the result as JSON (docs/benchmarks.md is made from it)."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import (
    claim_to_exec,
    cold_start,
    event_latency,
    fleet,
    kept,
    life,
    long_history,
    machine,
    many_agents,
    peers,
    processes,
    start_stop,
    store_cycles,
    top,
    workspaces,
)
from bench.figures import QUICK, WHOLE, Figure, Scale
from bench.render import TITLES, verdict

from holdfast.store.sqlite.engine.connection import filesystem_type

BENCHMARKS = {
    "life": life.run,
    "store": store_cycles.run,
    "claim_to_exec": claim_to_exec.run,
    "fleet": fleet.run,
    "cold": cold_start.run,
    "start_stop": start_stop.run,
    "events": event_latency.run,
    "processes": processes.run,
    "many_agents": many_agents.run,
    "history": long_history.run,
    "peers": peers.run,
    "workspaces": workspaces.run,
    "top": top.run,
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Measure Holdfast against its goals.")
    parser.add_argument("--quick", action="store_true", help="less of everything, in two minutes or so; not kept")
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="only this one; not kept without --keep")
    parser.add_argument("--keep", action="store_true", help="with --only: put its figures into the last result")
    parser.add_argument("--check", action="store_true", help="compare CPU time and counts with the last kept run")
    parser.add_argument("--folder", default=None, help="where to work (a directory on a real disk)")
    arguments = parser.parse_args(argv)
    scale = QUICK if arguments.quick else WHOLE
    chosen = ["life"] if arguments.check else arguments.only or list(BENCHMARKS)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=arguments.folder or _real_disk()) as name:
        folder = Path(name)
        result: dict[str, Any] = {
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "scale": scale.name,
            "machine": machine.describe(name),
        }
        print(_machine_line(result["machine"]), flush=True)
        began = time.monotonic()
        figures, result["failed"] = _measure(chosen, scale, folder)
        result["seconds"] = round(time.monotonic() - began)
        result["machine"]["fdatasync_us_after"] = machine.sync_microseconds(name)
        result["machine"]["load_after"] = [round(load, 2) for load in os.getloadavg()]
    result["figures"] = [_as_json(figure) for figure in figures]
    print(_summary(result))
    for name, why in result["failed"].items():
        print(f"FAILED   {name}: {why}")
    if arguments.check:
        return _check(result)
    if arguments.only and arguments.keep:
        kept.keep(_put_into_last(result, arguments.only), result)
    elif not (arguments.quick or arguments.only):
        kept.keep(result, result)
    return 1 if result["failed"] else 0


def _measure(chosen: Sequence[str], scale: Scale, folder: Path) -> tuple[list[Figure], dict[str, str]]:
    """Run each benchmark. One that fails is reported, and the rest goes on."""
    figures: list[Figure] = []
    failed: dict[str, str] = {}
    for name in chosen:
        try:
            measured = BENCHMARKS[name](scale, folder)
        except Exception as error:  # noqa: BLE001 - whatever failed, the other benchmarks tell something
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            print(f"FAILED   {name}: {failed[name]}", flush=True)
            traceback.print_exc()
            continue
        figures += measured
        for figure in measured:
            print(_line(_as_json(figure)), flush=True)
    return figures, failed


def _check(result: Mapping[str, Any]) -> int:
    """Return 1 if anything costs more than in the last kept run."""
    found = list(kept.compare(kept.line_of(result), kept.history()))
    for is_worse, sentence in found:
        print(f"{'WORSE' if is_worse else 'ok':<8} {sentence}")
    return 1 if result["failed"] or any(is_worse for is_worse, _ in found) else 0


def _put_into_last(result: dict[str, Any], parts: list[str]) -> dict[str, Any]:
    """The last whole result with these parts measured again, and a note that they were not of one run with the rest."""
    whole: dict[str, Any] = json.loads(kept.LATEST.read_text(encoding="utf-8"))
    fresh = {figure["name"] for figure in result["figures"]}
    whole["figures"] = [figure for figure in whole["figures"] if figure["name"] not in fresh] + result["figures"]
    whole["failed"] = {
        **{name: why for name, why in whole.get("failed", {}).items() if name not in parts},
        **result["failed"],
    }
    noted = {"parts": parts, "date": result["date"], "load": result["machine"]["load_before"][0]}
    whole["apart"] = [*(one for one in whole.get("apart", []) if set(one["parts"]) - set(parts)), noted]
    return whole


def _real_disk() -> str:
    """The temporary directory, unless it is in memory: there an fsync costs nothing and nothing would be measured."""
    temporary = tempfile.gettempdir()
    return str(kept.RESULTS) if filesystem_type(temporary) in ("tmpfs", "ramfs") else temporary


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
    noted += f", {len(result['failed'])} benchmarks FAILED" if result["failed"] else ""
    return (
        f"{met} of {len(with_goal)} goals met{noted}; {result['seconds']} s, load {result['machine']['load_after'][0]}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
