"""Fuzzed command lines, settings and scenarios: no traceback, a documented exit code, one line, nothing lost.

The seed is new for every run and printed with each finding. To see one case again:
`HOLDFAST_FUZZ_SEED=… HOLDFAST_FUZZ_CASE=… pytest tests/fuzz`. HOLDFAST_FUZZ_COUNT sets how many inputs are played.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fleet import Fleet
from tests.sampling import amount

ROOT = Path(__file__).resolve().parents[2]
SEED = os.environ.get("HOLDFAST_FUZZ_SEED") or os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(random.randrange(10**9))
CASE = os.environ.get("HOLDFAST_FUZZ_CASE")
COUNT = int(os.environ.get("HOLDFAST_FUZZ_COUNT", amount(800, in_all=3000)))
SHARDS = 4


def prepare(fleet: Fleet) -> None:
    """A home with tasks in several states, so that ids mean something."""
    limit = fleet.scenario({"print": "x"}, {"limit": {"kind": "rate", "for": "1h"}})
    fleet.add("it will pause", "--scenario", limit)
    fleet.add("completes", command=("sh", "-c", "echo done > done.txt"))
    fleet.add("fails", "--label", "area=docs", command=("sh", "-c", "echo left > left.txt; exit 3"))
    fleet.add("\x1b[31mred\x1b[0m é 日本", command=("false",))
    supervisor = fleet.up()
    for task in fleet.json("ps"):
        fleet.wait_state(task["id"], "paused", "completed", "failed")
    fleet.cli("down")
    supervisor.wait()
    waiting = fleet.add("waits", "--delay", "1h", command=("true",))
    fleet.add("waits for it", "--after", waiting, command=("true",))
    fleet.cli("cancel", fleet.add("cancelled", command=("true",)))
    (fleet.root / "good.toml").write_text('[[step]]\nprint = "x"\n')
    (fleet.root / "odd.json").write_text('{"step": [{"print": 1}]}')


@pytest.mark.parametrize("shard", range(1 if CASE else SHARDS))
def test_no_input_brings_a_traceback(fleet: Fleet, shard: int) -> None:
    """R-RES-03, promises 1 and 5: whatever is typed or configured is answered in one line, and harms nothing."""
    prepare(fleet)
    size = -(-COUNT // SHARDS)
    first, count = (int(CASE), 1) if CASE else (shard * size, size)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.worker", str(fleet.root), SEED, str(first), str(count)],
        cwd=ROOT,
        env={**fleet.env, "PYTHONHASHSEED": "0"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    replies = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    broken = [reply for reply in replies if "broken" in reply]
    for reply in broken[:20]:
        again = f"HOLDFAST_FUZZ_SEED={SEED} HOLDFAST_FUZZ_CASE={reply['case']} .venv/bin/pytest tests/fuzz"
        print(f"{again}\n{reply['broken']}\n")
    assert not broken, f"{len(broken)} of {count} inputs broke a rule (seed {SEED}); the commands above bring them back"
    assert replies, f"the worker died (seed {SEED}, from case {first} on): {done.stderr[-3000:]}"
    summary = replies[-1]
    print(f"seed {SEED}: {summary}")
    assert (summary["played"], summary["integrity"], summary["lost"]) == (count, "ok", [])
    fleet.cli("ps", "--all")
