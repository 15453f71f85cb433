"""`holdfast diff`: committed, uncommitted, deleted and new files, while it runs and ever after."""

from __future__ import annotations

from pathlib import Path

from tests.fleet import Fleet, wait_until

from holdfast.api.queries import Queries
from holdfast.api.work.diff import diff

WORK = (
    "echo one > committed.txt; git add .; git commit -qm one; echo changed > README.md; rm src/app.py; "
    "printf 'a\\0b' > new.bin; echo two > staged.txt; git add staged.txt; echo three > new.txt"
)


def files(patch: str) -> set[str]:
    return {line.split(" b/")[1] for line in patch.splitlines() if line.startswith("diff --git ")}


def test_a_diff_has_all_of_the_work(fleet: Fleet) -> None:
    """Of a living, a preserved, a failed and a completed task; it can be applied; the repository is not written to."""
    everything = {"committed.txt", "README.md", "src/app.py", "new.bin", "staged.txt", "new.txt"}
    fleet.up("--agents", 3)
    go, canary = fleet.root / "go", fleet.root / "canary"
    evil = f"git config filter.evil.clean 'touch {canary}; cat'; echo '* filter=evil' > .gitattributes; "
    living = fleet.queue(f"{WORK}; touch {go}; exec sleep 1000")
    failed = fleet.queue(f"{WORK}; exit 1")
    done = fleet.queue(WORK)
    folder = fleet.queue("echo a > a.txt", workspace="directory", keep_workspace=True)
    wait_until(go.exists, "its agent has worked")
    for task_id, state in ((failed, "failed"), (done, "completed"), (folder, "completed")):
        fleet.wait_state(task_id, state)
    fleet.wait_state(living, "running")
    for task_id in (living, failed, done):
        patch = fleet.root / f"{task_id}.patch"
        fleet.cli("diff", task_id, prefix=["sh", "-c", f'exec "$@" > {patch}', "sh"])
        assert files(patch.read_text(errors="replace")) == everything, task_id
        fleet.git("apply", "--index", str(patch))
        assert (fleet.repo / "new.bin").read_bytes() == b"a\0b"
        assert not (fleet.repo / "src" / "app.py").exists()
        fleet.git("reset", "--quiet", "--hard")
    for task_id in (failed, done):
        wait_until(lambda task_id=task_id: fleet.show(task_id)["workspace"]["state"] == "gone", "it is put away")  # type: ignore[misc]
    before = fleet.git("count-objects")
    assert "new.txt" in fleet.cli("diff", living, "--stat").stdout
    assert fleet.git("count-objects") == before  # nothing was written to the repository
    assert files(diff(Queries(str(fleet.home)), folder, stat=False)) == {"a.txt"}
    path = Path(fleet.show(living)["workspace"]["path"])
    assert "?? new.txt" in fleet.git("status", "--short", cwd=path)  # its index is as it was
    fleet.cli("shell", living, "-c", evil + "echo again >> README.md")
    assert "again" in diff(Queries(str(fleet.home)), living, stat=False)
    assert not canary.exists()  # an agent's filter is a command: it was not run
    fleet.cli("cancel", living)
    fleet.wait_state(living, "cancelled")
