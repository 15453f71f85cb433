"""Set-up, gates and teardown of a container task, against a real engine: they run in a container, never outside."""

from __future__ import annotations

import json
from pathlib import Path

from tests.acceptance.workspaces.test_setup import configure
from tests.engine import Docks, docks, engine_folder  # noqa: F401 - fixtures
from tests.fleet import wait_until

HARMLESS = {"setup.sh": "echo harmless\n", "clean.sh": "echo harmless\n", "gate.sh": "exit 1\n"}


def hostile(witness: Path) -> str:
    """A script of an agent that leaves a file on the host if it is run there, and one in the tree wherever it runs."""
    return f"id > {witness}; echo inside >> ran.txt"


def test_commands_run_in_a_container_also_in_a_tree_that_an_agent_wrote(docks: Docks) -> None:  # noqa: F811
    """Findings F2 and F3: the agent rewrites what set-up, gate and teardown run. Set-up runs again in the restored tree
    of a retry. All of it happens in a container, with the agent's limits and without its engine's socket."""
    fleet = docks.fleet
    for name, text in HARMLESS.items():
        (fleet.repo / name).write_text(text)
    fleet.git("add", ".")
    fleet.git("commit", "--quiet", "-m", "Scripts")
    witness = {name: fleet.root / f"ran-{name}" for name in ("setup", "clean", "gate")}
    agent = "; ".join(
        [f"printf '%s\\n' '{hostile(witness[name])}' > {name}.sh" for name in witness]
        + ['[ "$HOLDFAST_RUN_NUMBER" != 1 ]']
    )
    configure(
        fleet,
        f"""[workspace]
setup = ["sh ./setup.sh; cat /proc/self/status | grep CapEff; echo in $PWD $HOLDFAST_TASK_ID"]
teardown = ["sh ./clean.sh; cat ran.txt; exit 3"]
[workflow.checked]
[[workflow.checked.stage]]
name = "build"
command = ["sh", "-c", {json.dumps(agent)}]
gate = "sh ./gate.sh; ls"
""",
    )
    fleet.up()
    task = fleet.add("x", "--workflow", "checked", "--no-preserve-on-failure")
    fleet.wait_state(task, "failed")
    fleet.wait_clean()
    fleet.cli("retry", task)
    done = fleet.wait_state(task, "completed", "failed")
    assert done["state"] == "completed", fleet.events(task)
    fleet.wait_clean()
    assert [name for name, path in witness.items() if path.exists()] == []
    logs = {path.name: path.read_text() for path in (fleet.home / "setup-logs").iterdir()}
    setup = next(text for name, text in sorted(logs.items()) if "setup" in name and "harmless" not in text)
    assert "CapEff:\t0000000000000000" in setup
    assert task in setup
    warning = next(event for event in fleet.events(task) if event["kind"] == "workspace.teardown-failed")
    assert "exit code 3" in warning["reason"]
    assert docks.of(task) == []


def test_a_command_in_a_container_ends_with_its_deadline_and_its_supervisor(docks: Docks) -> None:  # noqa: F811
    """A set-up command that hangs: its container is removed at the deadline, by a cancel, and by the next supervisor,
    which runs the set-up again from the start."""
    fleet = docks.fleet
    configure(fleet, '[workspace]\nsetup = ["(sleep 1000 &); sleep 1000"]\nsetup_timeout = "2s"\n')
    first = fleet.up()
    late = docks.add("true")
    failed = fleet.wait_state(late, "failed")
    assert "took longer than" in failed["reason"]
    assert docks.of(late) == []
    configure(fleet, '[workspace]\nsetup = ["[ -e second ] || sleep 1000"]\n')
    hangs = docks.add("true")
    wait_until(lambda: docks.states(hangs) == ["running"], "its set-up runs in a container")
    fleet.kill_supervisor(first)
    old = str(docks.of(hangs)[0]["Id"])
    fleet.up()
    wait_until(lambda: docks.states(hangs) == ["running"] and docks.of(hangs)[0]["Id"] != old, "it runs again")
    assert old not in docks.all()
    fleet.cli("cancel", hangs)
    fleet.wait_state(hangs, "cancelled")
    wait_until(lambda: docks.of(hangs) == [], "the cancel removed the container")
    fleet.wait_clean()
