"""A repository that the user has not trusted: what its file asks for beyond the user's own settings has no effect."""

from __future__ import annotations

import pytest
from tests.acceptance.config.test_config import refused, repo_file, user_file
from tests.fleet import Fleet

CONTAINER = '[workspace]\nstrategy = "container"\n[container]\nimage = "none/such:1"\nnetwork = "none"\n'


@pytest.mark.parametrize("own", ["worktree", "clone"])
def test_a_repository_cannot_choose_the_workspace(fleet: Fleet, own: str) -> None:
    """Security F1: the agent never works in the user's own checkout, unless the user chose that."""
    user_file(fleet, f'[workspace]\nstrategy = "{own}"\n')
    repo_file(fleet, '[workspace]\nstrategy = "none"\n')
    added = fleet.cli("add", "x", "--", "sh", "-c", "echo ran > ran.txt")
    [told] = [line for line in added.stderr.splitlines() if "not applied" in line]
    assert f'{fleet.repo}/holdfast.toml:2: workspace.strategy = "none" is not applied' in told
    assert f'your "{own}" stays' in told
    assert f"`holdfast trust {fleet.repo}`" in told
    task = added.stdout.split()[0]
    fleet.up()
    fleet.wait_state(task, "completed")
    assert fleet.show(task)["strategy"] == own
    assert not (fleet.repo / "ran.txt").exists()
    for command in (("config", "show"), ("config", "check"), ("doctor",)):
        done = fleet.cli(*command, code=None)
        assert 'workspace.strategy = "none" is not applied' in done.stdout + done.stderr, command


def test_a_repository_cannot_switch_the_container_off(fleet: Fleet) -> None:
    """Security F1, as reproduced: the user's tasks run in containers, the repository says `none` or `worktree`."""
    user_file(fleet, CONTAINER)
    for word in ("none", "worktree", "directory"):
        repo_file(fleet, f'[workspace]\nstrategy = "{word}"\n[container]\nnetwork = ""\nuser = ""\n')
        assert fleet.show(fleet.add("x", command=("true",)))["strategy"] == "container"
    assert 'workspace.strategy = "directory"  (yours: "container")' in refused_question(fleet)
    fleet.cli("trust", "--yes")
    assert fleet.show(fleet.add("x", command=("true",)))["strategy"] == "directory"
    fleet.cli("trust", "--revoke")
    assert fleet.show(fleet.add("x", command=("true",)))["strategy"] == "container"


def refused_question(fleet: Fleet) -> str:
    """Return what `trust` shows before it asks."""
    return fleet.cli("trust", code=1).stdout


def test_a_users_workflow_cannot_be_replaced(fleet: Fleet) -> None:
    """Security F7: the user's workflow with a gate and an approval keeps both, even in a trusted repository."""
    gate = fleet.root / "gate-ran"
    user_file(fleet, f'[[workflow.safe.stage]]\nname = "one"\ngate = "touch {gate}"\napproval = true\n')
    repo_file(fleet, '[[workflow.safe.stage]]\nname = "other"\n[workspace]\nstrategy = "clone"\n')
    tasks = []
    for _trusted in (False, True):
        added = fleet.cli("add", "x", "--workflow", "safe", "--", "true")
        assert "the workflow 'safe' of the repository is not used" in added.stderr
        tasks.append(added.stdout.split()[0])
        fleet.cli("trust", "--yes")
    fleet.up("--agents", 2)
    for task in tasks:
        assert fleet.wait_state(task, "paused", "completed")["pause_reason"] == "approval"
    assert gate.exists()


def test_what_an_untrusted_file_asks_for_is_named_in_refusals(fleet: Fleet) -> None:
    """A task that needs the withheld value is refused with the reason, not with a riddle."""
    repo_file(fleet, 'agent = "claude"\n[[workflow.own.stage]]\nname = "a"\nagent = "claude"\n')
    assert 'agent = "claude" is not applied' in refused(fleet, "add", "x", code=2)
    line = refused(fleet, "add", "x", "--workflow", "own", "--", "true", code=2)
    assert "the workflow 'own' is not used" in line
    assert "holdfast trust" in line


def test_limits_only_go_down(fleet: Fleet) -> None:
    """Security F7, as reproduced."""
    user_file(
        fleet,
        'limits.memory = "1GiB"\nlimits.processes = 50\nhealth.max_runtime = "1h"\nhealth.stuck_after = "5m"\n'
        'health.on_stuck = "kill"\nsubtasks.max = 5\n',
    )
    repo_file(
        fleet,
        'limits.memory = "0"\nlimits.processes = 10\nhealth.max_runtime = "1000h"\nhealth.stuck_after = "forever"\n'
        'health.on_stuck = "notify"\nsubtasks.max = 2000000000\n',
    )
    task = fleet.show(fleet.add("x", command=("true",)))
    assert (task["limits"]["memory"], task["limits"]["processes"], task["timeout"]) == (2**30, 10, 3600)
    assert (task["health"]["stuck_after"], task["health"]["on_stuck"]) == (300, "kill")
