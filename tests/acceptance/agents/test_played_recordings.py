"""Recordings of real CLIs, played through the whole product: from the bytes on a pipe to what `show` says."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from tests.acceptance.config.test_config import user_file
from tests.agents.recordings import GOLDEN
from tests.fleet import Fleet

PLAYER = """#!/bin/sh
# A CLI that does what it did when it was recorded. The prompt names the scenario.
IFS= read -r scenario
case $1 in --version) echo 1.0.0; exit;; esac
cd "$GOLDEN/$scenario" || exit 99
cat stdout.jsonl
exit "$(sed 's/.*"exit_code": //; s/,.*//' exit.json)"
"""


def player(fleet: Fleet, name: str, golden: Path) -> None:
    folder = fleet.root / "bin"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(PLAYER.replace("$GOLDEN", str(golden)))
    (folder / name).chmod(0o755)
    fleet.env["PATH"] = f"{folder}:{fleet.env['PATH'].removeprefix(f'{folder}:')}"


def spoken(ok: Path, scenario: Path, words: str) -> None:
    """A success in whose words a model and a tool quote a limit; the tool at length."""
    scenario.mkdir(parents=True)
    first, *rest, last = (ok / "stdout.jsonl").read_text().splitlines()
    result = {"type": "tool_result", "tool_use_id": "t", "content": words * (3_000_000 // len(words))}
    tool = {"type": "user", "message": {"content": [result]}}
    texts = [line.replace("Hello, the task is done.", words) for line in (*rest, last)]
    assert texts != [*rest, last]
    (scenario / "stdout.jsonl").write_text("\n".join([first, json.dumps(tool), *texts]) + "\n")
    (scenario / "exit.json").write_text((ok / "exit.json").read_text())


def test_recordings_through_the_whole_product(fleet: Fleet) -> None:
    """R-RES-01: a limit pauses until the time that the agent named, in its own zone; a model's words pause nothing."""
    spoken(GOLDEN / "claude" / "ok", fleet.root / "golden" / "limittext", "Claude AI usage limit reached|1794714959 ")
    player(fleet, "codex", GOLDEN / "codex")
    player(fleet, "claude", fleet.root / "golden")
    zone = next(z for z in ("Asia/Tokyo", "Asia/Kolkata") if datetime.now(ZoneInfo(z)).hour not in (4, 5))
    user_file(
        fleet, f'[env.set]\nTZ = "{zone}"\n'
    )  # not the supervisor's; one where 4:55 is neither just over nor just about to be
    before = datetime.now(ZoneInfo(zone))
    limited = fleet.add("eusage", "--agent", "codex", "--permission", "full")
    refused = fleet.add("e401", "--agent", "codex", "--permission", "full")
    quoted = fleet.add("limittext", "--agent", "claude")
    supervisor = fleet.up()
    shown = {task: fleet.wait_state(task, "paused", "completed", "failed") for task in (limited, refused, quoted)}
    fleet.cli("down")
    supervisor.wait()
    assert (shown[limited]["state"], shown[limited]["pause_reason"]) == ("paused", "usage_limit")
    until = datetime.fromtimestamp(shown[limited]["resume_after"], ZoneInfo(zone))
    assert (until.hour, until.minute) == (4, 55)
    assert before < until < before + timedelta(days=1, minutes=10)
    assert (shown[refused]["state"], shown[refused]["pause_reason"]) == ("paused", "auth")
    assert shown[quoted]["state"] == "completed"
