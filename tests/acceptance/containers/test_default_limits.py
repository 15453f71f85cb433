"""The limits of containers when the user has set none, as the engine itself reports them."""

from __future__ import annotations

from tests.engine import Docks, docks, engine_folder  # noqa: F401 - fixtures
from tests.fleet import wait_until

WAIT = "until [ -e go ]; do sleep 0.1; done"


def test_a_container_has_limits_without_any_setting(docks: Docks) -> None:  # noqa: F811
    """Finding F14: processes and memory are limited by default, the user's own limits replace the defaults, and the
    root file system can be made read-only: then only the workspace and /tmp can be written."""
    fleet = docks.fleet
    fleet.up()
    plain = docks.add(WAIT)
    own = docks.add(WAIT, "--memory", "64M", "--processes", "50")
    fleet.env.update(HOLDFAST_CONTAINER_READ_ONLY="true", HOLDFAST_CONTAINER_MEMORY_SHARE="100")
    closed = docks.add(
        f"echo x > /etc/x || echo refused > closed.txt; echo x > /tmp/x && echo tmp >> closed.txt; {WAIT}"
    )
    found = {}
    for task in (plain, own, closed):
        wait_until(lambda task=task: docks.states(task) == ["running"], "the container runs")  # type: ignore[misc]
        found[task] = docks.api.inspect_container(str(docks.of(task)[0]["Id"]))["HostConfig"]
    everything = docks.api.info()["MemTotal"]
    assert (found[plain]["PidsLimit"], found[plain]["Memory"]) == (8192, everything * 80 // 100)
    assert found[plain]["ReadonlyRootfs"] is False
    assert (found[own]["PidsLimit"], found[own]["Memory"]) == (50, 64 * 1024 * 1024)
    assert (found[closed]["PidsLimit"], found[closed]["Memory"]) == (8192, 0)
    assert found[closed]["ReadonlyRootfs"] is True
    for task in found:
        with open(f"{fleet.show(task)['workspace']['path']}/go", "w", encoding="ascii"):
            pass
        assert fleet.wait_state(task, "completed", "failed")["state"] == "completed"
    assert fleet.file_on_branch(f"holdfast/{closed}", "closed.txt").split() == ["refused", "tmp"]
