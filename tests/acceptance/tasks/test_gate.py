"""A task that counts as done only if a check passes: `--gate COMMAND [--tries N]` on any task."""

from __future__ import annotations

import json
import re

from tests.fleet import Fleet, wait_until

# Each try appends a line. The check passes when there are two.
AGENT = "cat > {told}-$HOLDFAST_RUN_NUMBER; echo line >> made.txt"


def test_a_gate_decides_whether_a_task_is_done(fleet: Fleet) -> None:
    """F10: what the check printed goes to the next try, in the same session; the work is on the branch; the end says
    whether the gate passed. A gate that never passes fails the task, and keeps its work."""
    told = fleet.root / "told"
    fleet.up()
    script = AGENT.format(told=told)
    check = "wc -l < made.txt; test $(wc -l < made.txt) -ge 2"
    ended = fleet.cli("run", "two lines", "--gate", check, "--tries", "3", "--", "sh", "-c", script)
    assert "its gate `wc -l" in ended.stdout
    assert "passed" in ended.stdout
    [task] = fleet.json("ps", "--json", "--all")
    assert (task["state"], task["gate"]) == ("completed", {"command": check, "passed": True, "how": "exited with 0"})
    shown = fleet.show(task["id"])
    assert [run["outcome"] for run in shown["runs"]] == ["completed", "completed"]
    assert fleet.file_on_branch(shown["branch"], "made.txt") == "line\nline"
    second = (fleet.root / "told-2").read_text()
    assert second.startswith("two lines")
    assert "exited with 1. The end of what it printed:\n\n1" in second

    failed = fleet.cli("run", "never", "--gate", "echo no; exit 7", "--tries", "2", "--json", "--", "sh", "-c", script,
                       code=1)  # fmt: skip
    found = json.loads(failed.stdout)
    assert (found["state"], found["failure_reason"], len(found["runs"])) == ("failed", "gate_failed", 2)
    assert found["gate"] == {"command": "echo no; exit 7", "passed": False, "how": "exited with 7"}
    assert "its gate `echo no; exit 7` exited with 7" in found["reason"]

    broken = fleet.cli("run", "breaks", "--gate", "true", "--tries", "3", "--json", "--", "sh", "-c", "exit 3", code=1)
    assert len(json.loads(broken.stdout)["runs"]) == 1, "an agent that fails by itself is not tried again for its gate"


def test_a_default_gate_checks_every_task_that_may_change_files(fleet: Fleet) -> None:
    """`gate.command` and `gate.tries` of the user's settings; --no-gate leaves one task out; --tries needs a gate."""
    config = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[gate]\ncommand = "test -e made.txt"\ntries = 2\n')
    checked = fleet.add("idle", command=("true",))
    free = fleet.add("idle", "--no-gate", command=("true",))
    fleet.up()
    assert len(fleet.wait_state(checked, "failed")["runs"]) == 2
    assert fleet.wait_state(free, "completed")["gate"] is None
    why = fleet.cli("why", checked).stdout
    assert "its gate `test -e made.txt` exited with 1" in why
    refused = fleet.cli("add", "x", "--no-gate", "--tries", "2", "--", "true", code=2)
    assert "--gate" in refused.stderr


def test_a_gate_at_work_is_shown(fleet: Fleet) -> None:
    """A gate may take longer than its agent: every view names it and its age, and `run` has a line for it."""
    go, check = fleet.root / "go", "sh check.sh"  # short: `top --once` cuts what is long
    supervisor = fleet.up()
    script = f"echo 'until [ -e {go} ]; do sleep 0.1; done' > check.sh"
    task = fleet.add("x", "--gate", check, command=("sh", "-c", script))
    wait_until(lambda: "gate.started" in fleet.kinds(task), "its gate runs")
    shown = f"gate `{check}`"
    (row,) = fleet.json("ps")
    assert (row["running_gate"]["command"], row["gate"]) == (check, None)
    for words in (("ps", "--wide"), ("top", "--once")):
        said = fleet.cli(*words).stdout
        assert re.search(rf"{re.escape(shown)}, \d+s", said), said
    assert f"Its {shown} has been running for " in fleet.cli("why", task).stdout
    fleet.kill_supervisor(supervisor)
    fleet.up()  # the next one asks the gate again
    wait_until(lambda: fleet.kinds(task).count("gate.started") == 2, "its gate runs again")
    go.touch()
    fleet.wait_state(task, "completed")
    (row,) = fleet.json("ps", "--all")
    assert (row["running_gate"], row["gate"]["passed"]) == (None, True)
    told = fleet.cli("run", "y", "--gate", "true", "--", "true").stderr
    assert "is checked by its gate `true`" in told
