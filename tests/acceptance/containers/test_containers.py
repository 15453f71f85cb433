"""Tasks in containers, against a real engine: what is inside, how it ends, who ends it when others are dead."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

from tests.engine import Docks, docks, engine_folder  # noqa: F401 - fixtures
from tests.fleet import Fleet, lives, wait_until
from tests.harness.engines.image import IMAGE

from holdfast.containers.container_run import Enclosure
from holdfast.containers.engine import Engines
from holdfast.core.model import Strategy, TaskSpec, Workspace
from holdfast.core.runs.outcome import Cause, ProcessEnd
from holdfast.core.states import WorkspaceState
from holdfast.core.task_settings import ContainerRules
from holdfast.processes.cgroups import base_name

LOOK = """
cat > prompt.txt
id -u > uid.txt; grep -E 'CapEff|NoNewPrivs' /proc/self/status > rights.txt
ls /var/run/docker.sock /run/docker.sock 2>/dev/null > sockets.txt
echo "$PWD $HOME ${HOLDFAST_RUN_DIR:-none}" > where.txt
printf '{"token":"%s","report":"progress","message":"half way"}\\n' "$HOLDFAST_RUN_TOKEN" >> "$HOLDFAST_CHANNEL/reports"
touch "$HOLDFAST_CHANNEL/heartbeat"
echo to-out; echo to-err >&2
"""


def test_a_task_works_in_a_container_and_leaves_a_branch(docks: Docks) -> None:  # noqa: F811
    """R-CLEAN-05, R-TERM-12: the prompt goes in, output and reports come out; no capability, no way to more, no
    engine's socket; files are ours, the branch is the result, and no container stays. An image that is not there
    fails its task, with the remedy."""
    fleet = docks.fleet
    fleet.up()
    task = docks.add(LOOK)
    missing = fleet.add("x", command=("true",), env={"HOLDFAST_CONTAINER_IMAGE": "not-there:1"})
    done = fleet.wait_state(task, "completed", "failed")
    assert done["state"] == "completed", fleet.events(task)
    branch = f"holdfast/{task}"
    assert fleet.file_on_branch(branch, "prompt.txt") == "the prompt"
    assert fleet.file_on_branch(branch, "uid.txt") == str(os.getuid())
    assert fleet.file_on_branch(branch, "rights.txt").split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1"]
    assert fleet.file_on_branch(branch, "sockets.txt") == ""
    assert fleet.file_on_branch(branch, "where.txt") == f"{done['workspace']['path']} /tmp none"
    assert "to-out" in fleet.cli("logs", task).stdout
    run = fleet.home / "runs" / done["runs"][0]["id"]
    assert (run / "out.log").read_text() == "to-out\n"
    assert (run / "err.log").read_text() == "to-err\n"
    events = fleet.events(task)
    assert any("half way" in str(event["message"]) for event in events)
    failed = fleet.wait_state(missing, "failed")
    assert failed["outcome"] == "launch_error"
    assert "docker pull not-there:1" in failed["reason"]
    fleet.wait_clean()
    assert docks.of(task) == docks.of(missing) == []
    assert fleet.git("status", "--porcelain") == ""


def test_endings_of_a_container(docks: Docks) -> None:  # noqa: F811
    """R-TERM-06, R-TERM-14, R-CLEAN-04, R-CLEAN-05: an exit code, a kill for memory and a cancel are told apart; a tree
    that ignores TERM and left its session is gone all the same. The container of a failed task is removed. A preserved
    one survives, stopped, and can be entered; dropping its workspace removes it."""
    fleet = docks.fleet
    fleet.up()
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    hard = docks.add(f'(setsid sh -c "{stubborn}" &); echo at work; {stubborn}')
    kept = docks.add("echo kept > kept.txt; echo layer > /tmp/layer; exit 3", "--preserve-on-failure")
    broken = docks.add("exit 4")
    hungry = docks.add("tail /dev/zero", "--memory", "24M", "--timeout", "60s")
    fleet.wait_started(hard)
    wait_until(lambda: docks.states(hard) == ["running"], "the container runs")
    log = fleet.home / "runs" / fleet.show(hard)["runs"][0]["id"] / "out.log"
    wait_until(lambda: log.read_text() == "at work\n", "its agent works")
    fleet.cli("cancel", hard)
    fleet.wait_state(hard, "cancelled")
    failed = fleet.wait_state(kept, "failed")
    assert "code 3" in failed["reason"]
    assert "code 4" in fleet.wait_state(broken, "failed")["reason"]
    [starved, *_] = wait_until(
        lambda: [run for run in fleet.show(hungry)["runs"] if run["state"] == "settled"], "its first run is over"
    )
    assert starved["outcome"] == "out_of_memory"
    assert "in its container" in starved["reason"]  # the engine's word, not a guess from the machine's counters
    fleet.wait_clean()
    assert docks.of(hard) == docks.of(broken) == []
    assert docks.states(kept) == ["exited"]
    container = str(docks.of(kept)[0]["Id"])
    assert fleet.cli("shell", kept, "-c", "cat kept.txt /tmp/layer; exit 7", code=7).stdout == "kept\nlayer\n"
    assert docks.states(kept) == ["exited"]
    assert len(fleet.show(kept)["runs"]) == 1  # its agent did not run again
    preserved = next(event for event in fleet.events(kept) if event["kind"] == "workspace.preserved")
    assert preserved["data"]["container"] == container
    fleet.cli("workspaces", "clean", kept)
    wait_until(lambda: docks.of(kept) == [], "the preserved container is removed")


def test_no_end_is_believed_while_the_container_runs(docks: Docks) -> None:  # noqa: F811
    """R-TERM-06: a keeper that died proves nothing; the engine's word does, and it is asked for until it gives it.
    A whole purge takes the containers of its home along, and no others."""
    labels = {"dev.holdfast.workspace": "ws1", "dev.holdfast.home": base_name(str(docks.fleet.home))}
    made = [
        docks.api.create_container(IMAGE, command=["sleep", "1000"], labels=chosen)["Id"]
        for chosen in (labels, {"dev.holdfast.home": "other"})
    ]
    docks.api.start(made[0])
    engines = Engines(str(docks.fleet.home))
    docks.fleet.cli("add", "x", "--delay", "1h", "--", "true")
    engines.note(str(docks.socket))
    spec = TaskSpec(id="t", repo_id="r", prompt="", agent="command", container=ContainerRules(engine=str(docks.socket)))
    workspace = Workspace(
        id="ws1",
        task_id="t",
        repo_id="r",
        strategy=Strategy.CONTAINER,
        path="/nowhere",
        branch=None,
        base_commit=None,
        state=WorkspaceState.READY,
        disposition=None,
    )
    enclosure = Enclosure(str(docks.fleet.home), engines)
    root = asyncio.run(enclosure.root(spec, replace(workspace, container=made[0])))
    assert root is not None  # whose CPU and children say whether a silent agent is at work (R-TERM-04)
    assert b"sleep" in Path(f"/proc/{root.pid}/cmdline").read_bytes()
    end = asyncio.run(enclosure.prove(spec, workspace, ProcessEnd(cause=Cause.UNPROVEN)))
    assert end.cause is Cause.KEEPER_DIED
    assert docks.api.inspect_container(made[0])["State"]["Running"] is False
    docks.fleet.cli("purge", "--yes", "--discard-work")
    assert made[0] not in docks.all()
    assert made[1] in docks.all()
    docks.api.remove_container(made[1])


def keeper_of(fleet: Fleet, task: str) -> int:
    run = next(run for run in fleet.show(task)["runs"] if run["state"] == "started")
    agent = int(run["pid"])
    return int((fleet.root / f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])


def test_containers_are_found_again_when_everybody_died(docks: Docks) -> None:  # noqa: F811
    """R-TERM-05, R-TERM-10, R-TREE-06: adopted with its keeper alive, which ends the container at its deadline also
    while it is alone; with keeper and supervisor dead, the next start ends the container through the engine, and the
    task runs again."""
    fleet = docks.fleet
    fleet.env.update(HOLDFAST_HEALTH_GRACE="200ms")
    first = fleet.up()
    wait = "until [ -e go ]; do sleep 0.1; done; echo done > done.txt"
    adopted = docks.add(wait)
    lost = docks.add('if [ "$HOLDFAST_RUN_NUMBER" = 1 ]; then sleep 1000; fi; echo second > second.txt')
    late = docks.add(
        '[ "$HOLDFAST_RUN_NUMBER" = 2 ] || { trap "" TERM; while :; do sleep 1; done; }', "--timeout", "15s"
    )
    for task in (adopted, lost, late):
        fleet.wait_started(task)
        wait_until(lambda task=task: docks.states(task) == ["running"], "the container runs")  # type: ignore[misc]
    old = str(docks.of(lost)[0]["Id"])
    keeper = keeper_of(fleet, lost)
    fleet.kill_supervisor(first)
    os.kill(keeper, signal.SIGKILL)
    wait_until(lambda: not lives(keeper), "the keeper is dead")
    assert docks.states(lost) == ["running"]  # nobody is left to end it
    wait_until(lambda: docks.states(late) == ["exited"], "its keeper alone ends a container that is too late")
    labels = {"dev.holdfast.home": docks.of(lost)[0]["Labels"]["dev.holdfast.home"], "dev.holdfast.run": "gone"}  # type: ignore[index]
    leaked = docks.api.create_container(IMAGE, command=["true"], labels=labels)["Id"]
    stranger = docks.api.create_container(IMAGE, command=["true"], labels={"dev.holdfast.home": "other"})["Id"]
    fleet.up()
    path = fleet.show(adopted)["workspace"]["path"]
    open(os.path.join(path, "go"), "w").close()
    assert fleet.wait_state(adopted, "completed", "failed")["outcome"] == "completed"
    assert len(fleet.show(adopted)["runs"]) == 1
    done = fleet.wait_state(lost, "completed", "failed")
    assert [run["outcome"] for run in done["runs"]] == ["lost", "completed"]
    assert [run["outcome"] for run in fleet.wait_state(late, "completed", "failed")["runs"]] == ["timeout", "completed"]
    fleet.wait_clean()
    assert docks.of(lost) == []
    wait_until(lambda: leaked not in docks.all(), "what no run needs is swept")
    assert old not in docks.all()
    assert stranger in docks.all()
    docks.api.remove_container(stranger)


def test_no_engine_and_no_image(fleet: Fleet) -> None:
    """An engine that is away: the task waits and says why, and can be cancelled. No image: refused at once."""
    fleet.env.update(HOLDFAST_CONTAINER_ENGINE=str(fleet.root / "none.sock"), HOLDFAST_WORKSPACE_STRATEGY="container")
    refused = fleet.cli("add", "x", "--", "true", code=2)
    assert "container.image" in refused.stderr
    fleet.env.update(HOLDFAST_CONTAINER_IMAGE="busybox:latest")
    fleet.up()
    task = fleet.add("x", command=("true",))
    words = wait_until(
        lambda: [event["message"] for event in fleet.events(task) if event["kind"] == "attempt.trouble"], "it says why"
    )
    assert "does not answer" in words[0]
    assert "none.sock" in words[0]
    fleet.cli("cancel", task)
    fleet.wait_state(task, "cancelled")
    fleet.wait_clean()


CLAUDE = """#!/bin/sh
echo "$* key=$ANTHROPIC_API_KEY place=${CLAUDE_CONFIG_DIR-none}" >> calls.txt
cat > prompt.txt
say() { printf '{"type":"result","subtype":"success","is_error":%s,"api_error_status":%s,"result":"%s"' "$@"
        printf ',"terminal_reason":"x","session_id":"s"}\\n'; exit; }
echo '{"type":"system","subtype":"init","session_id":"s"}'
answer='{"type":"assistant","message":{"id":"m","model":"opus","content":[{"type":"text","text":"I begin."}]}}'
case $(grep -c . calls.txt) in
1) echo "$answer"; say true 429 'API Error: Rate limited' ;;
2) say true 401 'Invalid API key' ;;
*) say false null done ;;
esac
"""


AIDER = """#!/bin/sh
while [ "$1" != --message-file ]; do shift; done
cat "$2" > prompt.txt
echo 'Tokens: 100 sent, 42 received.'
"""


def test_a_login_and_a_session_in_a_container(docks: Docks) -> None:  # noqa: F811
    """Each run has a container of its own, so no session outlives it: the next run is handed the work over. The user's
    own login goes in as far as it is in variables; one that fails there is not the end of it for everybody outside.
    What an adapter writes for its CLI can be read in there."""
    fleet = docks.fleet
    for name, text in {"claude": CLAUDE, "aider": AIDER}.items():
        program = fleet.repo / f"{name}.sh"
        program.write_text(text)
        program.chmod(0o755)
        fleet.git("add", program.name)
        fleet.env[f"HOLDFAST_{name.upper()}_BINARY"] = f"./{name}.sh"
    fleet.git("commit", "-m", "programs that play agents")
    fleet.env["HOLDFAST_RESUME_DEFAULT_HOLD"] = "1s"
    fleet.up(env={"ANTHROPIC_API_KEY": "the-key", "CLAUDE_CONFIG_DIR": str(fleet.root)})
    paused = fleet.wait_state(task := fleet.add("the prompt", "--agent", "claude"), "paused")
    if paused["pause_reason"] == "rate_limit":
        wait_until(lambda: fleet.show(task)["pause_reason"] == "auth", "its second run ended so")
    assert [row["account"] for row in fleet.json("accounts") if row["state"] != "open"] == []
    assert [alert["key"] for alert in fleet.json("alerts")] == [f"task:{task}:auth"]
    fleet.cli("resume", task)
    done = fleet.wait_state(task, "completed", "failed")
    assert done["state"] == "completed", fleet.events(task)
    calls = fleet.file_on_branch(f"holdfast/{task}", "calls.txt").splitlines()
    assert [" --resume " in call for call in calls] == [False, False, False]
    assert {call.partition(" key=")[2] for call in calls} == {"the-key place=none"}
    assert fleet.file_on_branch(f"holdfast/{task}", "prompt.txt").startswith("An earlier agent already worked")
    with_file = fleet.wait_state(fleet.add("the prompt", "--agent", "aider"), "completed", "failed")
    assert with_file["state"] == "completed", with_file["reason"]
    assert fleet.file_on_branch(f"holdfast/{with_file['id']}", "prompt.txt") == "the prompt"


def test_an_engine_that_goes_away_under_its_agents_is_told(docks: Docks, tmp_path: Path) -> None:  # noqa: F811
    """R-TERM-10: while it does not answer, agents may live, and nobody says that one is over; a person is told, once,
    and that ends when it answers. Found by hand, with the family `engine`: a dockerd that was killed was silence."""
    fleet, way = docks.fleet, tmp_path / "way.sock"
    way.symlink_to(docks.socket)
    fleet.env["HOLDFAST_CONTAINER_ENGINE"] = str(way)
    fleet.up()
    task = docks.add("until [ -e go ]; do sleep 0.1; done")
    fleet.wait_started(task)
    wait_until(lambda: docks.states(task) == ["running"], "the container runs")
    way.unlink()

    def told() -> list[str]:
        return [alert["message"] for alert in fleet.json("alerts") if alert["key"] == f"engine:{way}"]

    words = wait_until(told, "somebody says so")
    assert task in words[0]
    way.symlink_to(docks.socket)
    (Path(fleet.show(task)["workspace"]["path"]) / "go").touch()
    assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    wait_until(lambda: not told(), "it is over")
