"""Recordings of real CLIs, played through the whole product: from the bytes on a pipe to what `show` says."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from tests.acceptance.config.test_config import user_file
from tests.agents.recordings import GOLDEN
from tests.fleet import Fleet, wait_until

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
    assert (until.hour, until.minute) == (4, 56), "the end of the minute that it names"
    assert before < until < before + timedelta(days=1, minutes=10)
    assert (shown[refused]["state"], shown[refused]["pause_reason"]) == ("paused", "auth")
    assert shown[quoted]["state"] == "completed"


def test_a_prompt_that_is_a_command_of_the_cli_is_no_success(fleet: Fleet) -> None:
    """D5: `/compact …` asks no model. The CLI reports success and exits with 0 all the same."""
    player(fleet, "claude", GOLDEN / "claude")
    program = fleet.root / "bin" / "claude"
    program.write_text(
        program.read_text().replace("IFS= read -r scenario", "cat > /dev/null; scenario=command-compact")
    )
    task = fleet.add("/compact and then say hello", "--agent", "claude")
    fleet.up()
    shown = fleet.wait_state(task, "failed", "completed")
    assert shown["state"] == "failed"
    assert [run["outcome"] for run in shown["runs"]] == ["failed"]
    assert shown["runs"][0]["reason"] == "no model was asked: the prompt `/compact …` is a command of claude"


EDITS_ITS_CONFIG = """#!/bin/sh
# opencode adds a `$schema` to a configuration that has none, whatever it may do.
case $1 in --version) echo 1.18.33; exit;; esac
IFS= read -r words
[ "$words" = "and more" ] && echo '// by the model' >> opencode.json
sed -i '1s#^{#{\\n  "$schema": "https://opencode.ai/config.json",#' opencode.json
cat "$GOLDEN/opencode/ok/stdout.jsonl"
"""


def test_what_a_cli_adds_to_its_own_configuration_is_not_committed(fleet: Fleet) -> None:
    """D8: opencode rewrites the repository's `opencode.json` in every mode. In `read` nothing is committed at all."""
    player(fleet, "opencode", GOLDEN)
    (fleet.root / "bin" / "opencode").write_text(EDITS_ITS_CONFIG.replace("$GOLDEN", str(GOLDEN)))
    config = '{ "share": "manual",\n  "theme": "x"\n}\n'
    (fleet.repo / "opencode.json").write_text(config)
    fleet.git("add", "-A")
    fleet.git("commit", "-qm", "its configuration")
    fleet.up()
    tasks = {
        (prompt, mode): fleet.add(prompt, "--agent", "opencode", "--permission", mode)
        for prompt in ("answer", "and more")
        for mode in ("edit", "read")
    }
    shown = {key: fleet.wait_state(task, "completed", "failed") for key, task in tasks.items()}
    assert {one["state"] for one in shown.values()} == {"completed"}
    commits = {
        key: fleet.git("log", "--format=%s", f"main..{one['branch']}", check=False) for key, one in shown.items()
    }
    assert commits.pop(("and more", "edit")).strip() == "and more"
    assert set(commits.values()) == {""}
    assert "by the model" in fleet.file_on_branch(str(shown["and more", "edit"]["branch"]), "opencode.json")
    salvages = fleet.json("salvage", "list")
    assert [one["task"] for one in salvages] == [tasks["and more", "read"]], "what `read` changed is kept, and told"


KILLED_ONCE = """#!/bin/sh
# codex that is killed in its first turn: it reports the tokens of a turn only at the turn's end.
case $1 in --version) echo 0.166.0; exit;; esac
cat > /dev/null
head -1 "$GOLDEN/codex/ok/stdout.jsonl"
mkdir "$MARK" 2> /dev/null && kill -9 $$
cat "$GOLDEN/codex/ok/stdout.jsonl"
"""


def test_tokens_of_a_run_that_was_killed_are_marked_as_missing(fleet: Fleet) -> None:
    """D10: the sum of a task is a part of the truth if a run ended before it reported its tokens, and it says so."""
    player(fleet, "codex", GOLDEN)
    script = KILLED_ONCE.replace("$GOLDEN", str(GOLDEN)).replace("$MARK", str(fleet.root / "mark"))
    (fleet.root / "bin" / "codex").write_text(script)
    fleet.up(env={"HOLDFAST_RETRY_BASE": "100ms"})
    task = fleet.add("say hello", "--agent", "codex", "--permission", "full", "--budget-tokens", "100000")
    shown = fleet.wait_state(task, "completed", "failed")
    assert [run["outcome"] for run in shown["runs"]] == ["external_kill", "completed"]
    assert fleet.json("show", task)[0]["spent_in_all"]["uncounted_runs"] == 1
    assert "1 run(s) ended before they reported tokens" in fleet.cli("why", task).stdout


ENDLESS = """#!/bin/sh
# opencode behind a proxy that ends every stream before its first word: it asks again, at once and for ever.
case $1 in --version) echo 1.18.33; exit;; esac
start=$(sed -n '/"step_start"/{p;q}' "$GOLDEN/opencode/empty/stdout.jsonl")
finish=$(sed -n '/"step_finish"/{p;q}' "$GOLDEN/opencode/empty/stdout.jsonl")
for request in $(seq 2000); do
    echo "$request" >> "$REQUESTS"
    printf '%s\\n%s\\n' "$start" "$finish"
    sleep 0.3
done
"""


def test_empty_answers_hold_the_provider_after_a_few_requests(fleet: Fleet) -> None:
    """A proxy that swallows every answer: each run ends within seconds as `network`, the provider is held, and no task
    fails."""
    player(fleet, "opencode", GOLDEN)
    requests = fleet.root / "requests"
    program = fleet.root / "bin" / "opencode"
    program.write_text(ENDLESS.replace("$GOLDEN", str(GOLDEN)).replace("$REQUESTS", str(requests)))
    tasks = [fleet.add(f"say hello {number}", "--agent", "opencode") for number in range(3)]
    supervisor = fleet.up("--agents", 1, env={"HOLDFAST_BREAKER_FAILURES": "2", "HOLDFAST_RETRY_BASE": "100ms"})

    def held() -> list[dict[str, Any]]:
        return [row for row in fleet.json("dispatch") if row["hold"].startswith("provider:") and row["failures"] >= 2]

    wait_until(held, "its provider is held")
    fleet.cli("down")
    supervisor.wait()
    ended = [run for task in tasks for run in fleet.show(task)["runs"]]
    assert {run["outcome"] for run in ended if run["outcome"] != "stopped"} == {"network"}
    assert "answers in a row without a word" in ended[0]["reason"]
    assert not [task for task in tasks if fleet.show(task)["state"] == "failed"]
    # Five show it. The rest is the time until the run is stopped: 7 s here. Once it was 52 requests a run.
    assert len(requests.read_text().splitlines()) <= 30 * len(ended)


def test_what_was_registered_before_an_agent_started_is_shown(fleet: Fleet) -> None:
    """R-TERM-02: command, cwd, host, stage, model and prompt file of a run are on disk before its agent, and shown."""
    player(fleet, "claude", GOLDEN / "claude")
    task_id = fleet.add("ok", "--agent", "claude", "--model", "opus")
    fleet.cli("up", "--idle-exit", "0s")
    [run] = json.loads(fleet.cli("show", task_id, "--json").stdout)["runs"]
    launch = run["launch"]
    assert os.path.basename(launch["command"][0]) == "claude"
    assert launch["command"][launch["command"].index("--model") + 1] == "opus"
    assert launch["cwd"] == fleet.show(task_id)["workspace"]["path"]
    assert (launch["model"], launch["stage"], launch["role"]) == ("opus", "work", None)
    assert launch["host"]
    assert launch["prompt_file"] is None  # deleted when the run had ended
    registered = json.loads((fleet.home / "runs" / run["id"] / "intent.json").read_text())["metadata"]
    assert (registered["task"], registered["agent"], registered["model"]) == (task_id, "claude", "opus")
    assert registered["prompt_file"] == "stdin"
