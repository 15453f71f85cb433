"""Agents that continue although they cannot succeed: ended soon, with the outcome that their own errors tell.

The CLI is a script in Codex's stead, which says what the real one says (tests/golden/agents/codex) and never ends.
"""

from __future__ import annotations

import time

from tests.fleet import Fleet, wait_until

from holdfast.api.queries import Queries
from holdfast.api.tasks.models import RunRow
from holdfast.supervisor.settings import Thresholds

CLI = r"""#!/bin/sh
say() { printf '%s\n' "$1"; }
trouble() { say '{"type":"error","message":"'"$1"'"}'; }
read -r scenario
say '{"type":"thread.started","thread_id":"thread-'"$scenario"'"}'
case $scenario in
login) trouble 'Reconnecting... 1/5 (unexpected status 401 Unauthorized: Incorrect API key provided)' ;;
network) while :; do trouble 'Reconnecting... waiting for network (Connection failed)'; sleep 0.3; done ;;
sleeps) sleep 1; trouble 'Reconnecting... 1/5 (exceeded retry limit, last status: 429 Too Many Requests)' ;;
limit) say '{"type":"turn.failed","error":{"message":"You’ve hit your usage limit. Try again in 2 hours."}}' ;;
hiccup)
    for attempt in 1 2 3 4 5 6 7 8 9 10 11 12; do
        trouble "Reconnecting... $attempt/5 (stream disconnected before completion)"
        sleep 0.4
        say '{"type":"item.completed","item":{"id":"item_'$attempt'","type":"agent_message","text":"part '$attempt'"}}'
    done
    say '{"type":"turn.completed","usage":{"input_tokens":10,"output_tokens":2}}'
    exit 0 ;;
esac
exec sleep 1000
"""
PATIENCE = 4  # seconds of nothing but retries
EXPECTED = {
    "login": ("auth", "which cannot help: unexpected status 401"),
    "network": ("network", "only tries again"),
    "sleeps": ("rate_limited", "only tries again"),
    "limit": ("usage_limited", "a fatal error"),
}


def runs(queries: Queries, task_id: str) -> list[RunRow]:
    """Those that are settled: what a run leaves to its task is recorded then, a moment after its own end."""
    return [run for run in queries.task(task_id)["runs"] if run["state"] == "settled"]


def test_a_run_that_cannot_succeed_is_ended_with_its_own_words(fleet: Fleet) -> None:
    """R-TERM-04: no doomed run outlasts its grace; the outcome is the trouble that the agent reported, its session and
    its reset time are kept; one that only stumbles is left alone; `notify` ends nothing."""
    cli = fleet.root / "codex"
    cli.write_text(CLI)
    cli.chmod(0o755)
    fleet.env |= {
        "HOLDFAST_CODEX_BINARY": str(cli),
        "HOLDFAST_HEALTH_DOOMED_AFTER": "1s",
        "HOLDFAST_HEALTH_RETRY_PATIENCE": f"{PATIENCE}s",
        "HOLDFAST_AGENTS": "8",
    }
    tasks = {name: fleet.add(name, "--agent", "codex") for name in (*EXPECTED, "hiccup")}
    told = fleet.add("network", "--agent", "codex", env={"HOLDFAST_HEALTH_ON_STUCK": "notify"})
    fleet.up()
    fleet.wait_state(tasks["hiccup"], "completed")
    queries = Queries(str(fleet.home))
    for name, (outcome, why) in EXPECTED.items():
        task_id = tasks[name]
        wait_until(lambda task_id=task_id: runs(queries, task_id), f"{name} is ended")  # type: ignore[misc]
        run = runs(queries, task_id)[0]
        events = fleet.events(task_id)
        verdict = next(event for event in events if event["kind"] == "agent.stuck")
        assert run["outcome"] == outcome, run
        assert "it did not end by itself" in (run["reason"] or ""), run
        assert why in verdict["message"], verdict
        assert (verdict["reason"], queries.task(task_id)["session_id"]) == ("doomed", f"thread-{name}")
        assert any(word.startswith(("retrying", "fatal", "hopeless")) for word in verdict["data"]["evidence"])
        said_at = (fleet.home / "runs" / run["id"] / "out.log").stat().st_mtime
        late = float(verdict["at"]) - said_at
        assert late < Thresholds().look_every - 5, "it was looked at when it was due, not at the next tick"
        assert "Health of run 1: doomed;" in fleet.cli("why", task_id).stdout
    assert "agent.stuck" not in fleet.kinds(tasks["hiccup"])
    held = fleet.wait_state(tasks["limit"], "paused")
    assert abs(float(held["resume_after"]) - time.time() - 7200) < 600, held
    wait_until(lambda: "agent.stuck" in fleet.kinds(told), "the endless retries are told of")
    assert fleet.kinds(told).count("agent.stuck") == 1
    assert "run.stopping" not in fleet.kinds(told)
