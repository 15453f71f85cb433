"""Kept results: the newest whole one (latest.json), and one line per run and commit (history.jsonl).

`make bench-check` compares a fresh look with the last line: exact counts always, CPU time if the machine is the same.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
LATEST, HISTORY = RESULTS / "latest.json", RESULTS / "history.jsonl"
COUNT, CPU = "life.count.", "life.cpu."
TOLERANCE = 1.4  # times the CPU time of the kept run: what the load of a machine does to it


def keep(result: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """Write the newest result, and a line of the run. The result of a run of parts has older figures too."""
    RESULTS.mkdir(exist_ok=True)
    LATEST.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print("kept as bench/results/latest.json; `make docs` renders it")
    with HISTORY.open("a", encoding="utf-8") as history:
        history.write(json.dumps(line_of(run), ensure_ascii=False) + "\n")


def line_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the line of a run: small, because it stays for good."""
    machine = result["machine"]
    figures = {figure["name"]: figure for figure in result["figures"] if figure["value"] is not None}
    counts = {name: dict(figure["detail"]) for name, figure in figures.items() if name.startswith(COUNT)}
    return {
        "date": result["date"],
        "commit": _commit(),
        "machine": f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}",
        "load": machine["load_before"][0],
        "failed": sorted(result.get("failed", {})),
        "figures": {name: round(figure["value"], 3) for name, figure in figures.items() if name not in counts},
        "counts": counts,
    }


def history() -> list[dict[str, Any]]:
    if not HISTORY.exists():
        return []
    return [json.loads(line) for line in HISTORY.read_text(encoding="utf-8").splitlines()]


def compare(fresh: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[tuple[bool, str]]:
    """Yield (is worse, a sentence) for each number that both have."""
    last = next((line for line in reversed(lines) if line["counts"]), None)
    if last is None:
        yield True, "no kept run has counts: `make bench BENCH_ARGS='--only life --keep'`"
        return
    yield False, f"compared with {last['commit']} of {last['date']}"
    for name, kept in last["counts"].items():
        found = fresh["counts"].get(name)
        if found is None:
            yield True, f"{name}: was not measured"
            continue
        for key in sorted({*kept, *found}):
            before, now = kept.get(key), found.get(key)
            if None in (before, now):  # strace was there once only
                yield False, f"{name} {key}: not compared, {before} → {now}"
            elif before != now:
                yield now > before, f"{name} {key}: {before} → {now}"
    is_same = last["machine"] == fresh["machine"]
    for name, value in fresh["figures"].items():
        before = last["figures"].get(name)
        if not name.startswith(CPU) or not before:
            continue
        if not is_same:
            yield False, f"{name}: not compared, the kept run is of another machine ({last['machine']})"
        else:
            yield (
                value > before * TOLERANCE,
                f"{name}: {before:.1f} → {value:.1f} ms (at most {before * TOLERANCE:.1f})",
            )


def _commit() -> str:
    """Return the commit that is measured, with a + if sources differ from it."""
    return _git("rev-parse", "--short=10", "HEAD") + ("+" if _git("status", "--porcelain", "--", "../src") else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=RESULTS.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()
