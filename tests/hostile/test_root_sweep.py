"""The privileged sweep against trees that mean harm: nothing outside is touched, nothing of the user's is executed.

`HOLDFAST_ROOT_RACES=10000` is the whole campaign of races (default: few).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fleet import Fleet, wait_until
from tests.hostile.rootstage import INSTALLED, PROGRAMS, STRANGER, RootStage, grow_deep, root_stage
from tests.other_user import OTHER_USER, give

from holdfast.workspaces import names
from holdfast.workspaces.removal import delete_tree, trash
from holdfast.workspaces.removal.root_cleanup import RootCleanup

SWAPPER = Path(__file__).with_name("swapper.py")
RACES = int(os.environ.get("HOLDFAST_ROOT_RACES", "120"))
NAMES = [names.WORKSPACES, names.TRASH, names.TRASHED_SUFFIX, names.STRANDED_PREFIX]


@pytest.fixture
def stage() -> Iterator[RootStage]:
    with root_stage() as made:
        yield made
        made.assert_untouched()


def test_a_hostile_tree_goes_and_nothing_else_does(stage: RootStage) -> None:
    """R-TREE-10: links, hard links, devices, pipes, sockets, odd names, 4,096 levels, a repository full of traps; and
    the environment and directory in which the entry is started mean harm as well."""
    tree = stage.entry()
    stage.grow_everything(tree)
    traps = tree / "repo"
    evil = stage.root / "profile"
    evil.write_text(f"touch {stage.executed}\n")
    env = {
        "PATH": f"{traps}:{os.environ['PATH']}",
        "PYTHONPATH": str(traps),
        "PYTHONHOME": str(traps),
        "PYTHONSTARTUP": str(traps / "os.py"),
        "ENV": str(evil),
        "BASH_ENV": str(evil),
        "GIT_DIR": str(traps / ".git"),
        "HOLDFAST_CLEANUP_PYTHON": str(traps / "python3"),
    }
    shutil.copytree(traps, stage.root / "traps", symlinks=True)
    give(traps)
    assert stage.sweep(env=env, cwd=traps) == (1, 0, 0), stage.done.stderr
    assert stage.left() == []
    assert stage.sweep(env={**env, "PYTHONPATH": str(stage.root / "traps")}) == (0, 0, 0)  # again: nothing to do
    assert (stage.outside / "file").stat().st_nlink == 1


def test_what_is_not_ours_is_left_alone(stage: RootStage) -> None:
    """R-TREE-10: no marker, a forged one, an odd name, somebody else's directory: skipped, told, and still there."""
    stage.entry("goesgoes")
    stage.entry("goesgoes-half-made")
    for name, marker in (("nomarker", None), ("othersid", "goesgoes"), ("odd name", "odd name")):
        stage.entry(name, marker=marker)
    for name in ("linkedma", "fifomark", "hugemark", "garbagex", "foreignm", "deepmark"):
        stage.entry(name, marker=None)
    marker_of: Callable[[str], Path] = lambda name: stage.trash / f"{name}.trashed.json"  # noqa: E731
    marker_of("linkedma").symlink_to(stage.mark("linkedma", "linkedma").rename(stage.root / "marker"))
    os.mkfifo(marker_of("fifomark"))
    marker_of("hugemark").write_text(json.dumps({"workspace": "hugemark", "x": "x" * 5000}))
    marker_of("garbagex").write_bytes(b"\xff\x00")
    os.chown(stage.mark("foreignm", "foreignm"), STRANGER, STRANGER)
    marker_of("deepmark").write_text("[" * 4000)
    kept = set(stage.left()) - {"goesgoes", "goesgoes-half-made", "goesgoes.trashed.json"}
    assert stage.sweep() == (2, 0, 9), stage.done.stderr
    assert set(stage.left()) == kept - {"goesgoes-half-made.trashed.json"}
    assert all((stage.trash / name / "file").exists() for name in kept if "." not in name)
    assert "nomarker: no marker of ours" in stage.done.stderr

    # A directory of a third person, moved into the tree of somebody who may move it: not emptied, unless it is named.
    theirs = stage.entry("carriers") / "theirs"
    (theirs / "private").mkdir(parents=True)
    (theirs / "private" / "diary").touch()
    os.chown(theirs, STRANGER, STRANGER)
    os.chown(theirs / "private", STRANGER, STRANGER)
    assert stage.sweep()[:2] == (0, 1)
    assert f"carriers/theirs: a directory of uid {STRANGER}" in stage.done.stderr
    assert (theirs / "private" / "diary").exists()
    assert not (stage.trash / "carriers" / "file").exists()
    assert stage.sweep(env={"HOLDFAST_CLEANUP_UIDS": f"{OTHER_USER} {STRANGER}-{STRANGER + 9} nonsense"})[:2] == (1, 0)


def test_a_home_that_others_can_change_is_left_alone(stage: RootStage) -> None:
    """R-TREE-10: paths by environment only; absent ones are fine; links, open modes and other owners are not."""
    stage.entry()
    stage.outside.joinpath("..", "linked").symlink_to(stage.home)
    linked = stage.root / "linked"
    assert stage.sweep(env={"HOLDFAST_CLEANUP_HOMES": f"{linked}:/no/such:relative:{stage.home}/../home"}) == (0, 0, 3)
    assert "linked is a link" in stage.done.stderr
    assert stage.sweep(env={"HOLDFAST_CLEANUP_HOMES": ""}) == (0, 0, 0)
    assert stage.done.stdout.endswith("roots=none\n")
    assert stage.sweep(env={"HOLDFAST_CLEANUP_UIDS": str(STRANGER)}) == (0, 0, 1)
    assert stage.sweep(env={"HOLDFAST_CLEANUP_SECONDS": "0"}) == (0, 0, 1)
    assert "the time was up" in stage.done.stderr
    stage.home.chmod(0o777)
    assert stage.sweep() == (0, 0, 1)
    stage.home.chmod(0o755)
    stage.trash.chmod(0o770)
    assert stage.sweep() == (0, 0, 1)
    stage.home.chmod(0o700)  # then nobody gets to the trash, whatever its mode
    workspaces = stage.trash.parent
    workspaces.rename(stage.home / "real")
    workspaces.symlink_to("real")
    assert stage.sweep() == (0, 0, 1)
    workspaces.unlink()
    (stage.home / "real").rename(workspaces)
    assert (stage.trash / "abcdefgh" / "file").exists()
    assert stage.sweep() == (1, 0, 0)


def test_root_runs_only_what_root_alone_can_write(stage: RootStage) -> None:
    """R-TREE-10: a copy in the user's environment, or one that somebody may write, is refused; the exit code is 0."""
    stage.entry()
    for harm in (
        lambda copy: os.chown(copy / "delete_tree.py", OTHER_USER, 0),
        lambda copy: (copy / "root_cleanup.py").chmod(0o664),
        lambda copy: copy.chmod(0o777),
        lambda copy: (copy / "delete_tree.py").unlink(),
        lambda copy: (copy / "root_cleanup.py").write_text("raise SystemExit(3)\n"),
    ):
        copy = Path(shutil.copytree(stage.programs, stage.root / "copy"))
        harm(copy)
        assert stage.sweep(programs=copy) == (0, 1, 0), harm
        shutil.rmtree(copy)
    assert (stage.trash / "abcdefgh" / "file").exists()


MOUNTS = """
set -e
mount --make-rprivate /
mount --bind "$1/outside" "$2/abcdefgh/bound"
mount --bind "$1/outside/file" "$2/abcdefgh/bound-file"
mount -t tmpfs none "$2/abcdefgh/tmpfs"
echo x > "$2/abcdefgh/tmpfs/kept"
mount --bind "$1/outside" "$2/mountedx"
"$3"
[ -e "$2/abcdefgh/tmpfs/kept" ]
"""


@pytest.mark.parametrize("way", ["openat2", "mount ids"])
def test_no_mount_is_crossed(stage: RootStage, way: str) -> None:
    """R-TREE-10: bind mounts (equal `st_dev`), of a directory, a file, a whole entry; and another file system."""
    tree = stage.entry()
    for name in ("bound", "tmpfs", "plain"):
        (tree / name).mkdir()
    (tree / "bound-file").touch()
    stage.entry("mountedx")
    if way == "mount ids":
        stage.without_openat2()
    script = ("unshare", "-m", "sh", "-c", MOUNTS, "sh", str(stage.root), str(stage.trash))
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode != 0:
        pytest.skip("NOT RUN: no mount namespaces here")
    assert stage.sweep(prefix=script) == (0, 2, 0), stage.done.stderr
    assert "mount point of something else" in stage.done.stderr
    assert sorted(os.listdir(tree)) == ["bound", "bound-file", "tmpfs"]  # the rest of it is gone
    assert stage.sweep() == (2, 0, 0)


def test_an_immutable_file_is_a_failure_that_is_told(stage: RootStage) -> None:
    """R-TREE-10: nobody changes attributes; the next sweep takes it when somebody has."""
    tree = stage.entry()
    (tree / "below").mkdir()
    (tree / "below" / "fixed").touch()
    if subprocess.run(["chattr", "+i", tree / "below" / "fixed"], capture_output=True, check=False).returncode != 0:
        pytest.skip("NOT RUN: this file system has no immutable files (chattr)")
    try:
        assert stage.sweep() == (0, 1, 0)
        assert "abcdefgh/below/fixed: Operation not permitted (1 obstacle(s))" in stage.done.stderr
        assert os.listdir(tree) == ["below"]
    finally:
        subprocess.run(["chattr", "-i", tree / "below" / "fixed"], check=True)
    assert stage.sweep() == (1, 0, 0)


# -- races -------------------------------------------------------------------------------------------------------------


def grow_small(folder: Path) -> Path:
    tree = folder / "tree"
    for name in ("a/b/c", "d"):
        (tree / name).mkdir(parents=True)
    for name in ("precious", "a/precious", "a/b/precious", "a/b/c/precious", "d/precious", "a/file", "d/file"):
        (tree / name).touch()
    give(tree)
    return tree


@contextlib.contextmanager
def enemy_in(entry: Path, stage: RootStage) -> Iterator[Callable[[], int]]:
    """tests/hostile/swapper.py at work on `entry`, as another user; how often it has swapped something."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    count = stage.root / "swaps"
    with SWAPPER.open("rb") as program, count.open("wb") as out:
        enemy = subprocess.Popen(
            [python, "-I", "-", entry, stage.outside],
            stdin=program,
            stdout=out,
            user=OTHER_USER,
            group=OTHER_USER,
            extra_groups=[],
        )
    try:
        wait_until(lambda: count.stat().st_size or enemy.poll() is not None, "the enemy is at work")
        yield lambda: int(count.read_text())
        assert enemy.poll() is None, "the enemy gave up"
    finally:
        enemy.kill()
        enemy.wait()


@pytest.mark.parametrize("way", ["openat2", "mount ids"])
def test_a_tree_that_is_swapped_all_the_time(stage: RootStage, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-TREE-10: another user exchanges every directory with a link that leads out, and with others, as fast as it
    can, while root deletes. The canaries live, and in the end the tree is gone."""
    if way == "mount ids":
        monkeypatch.setattr(delete_tree, "_probed", [None])
    nursery = stage.root / "nursery"
    nursery.mkdir()
    entry = stage.entry()
    swept = failed = 0
    with enemy_in(entry, stage) as swaps:
        for number in range(RACES // 2):
            if not entry.exists():
                stage.entry()
            with contextlib.suppress(OSError):  # the enemy has one there already
                grow_small(nursery).rename(entry / "tree")
            shutil.rmtree(nursery / "tree", ignore_errors=True)
            sweep = RootCleanup(NAMES, None, 30)
            sweep.home(str(stage.home))
            swept, failed = swept + sweep.swept, failed + sweep.failed
            if number % 50 == 0:
                stage.assert_untouched()
        print(f"{RACES // 2} races by {way}: swept {swept}, failed {failed}, swaps {swaps()}")
        assert swaps() > 0
    stage.assert_untouched()
    assert swept + failed == RACES // 2
    assert swept > 0
    stage.sweep()
    assert not entry.exists()


@pytest.mark.parametrize("victim", ["a", "a/b", "a/b/c", "d"])
def test_a_swap_at_the_worst_moment(stage: RootStage, victim: str) -> None:
    """R-TREE-10: between the listing and the opening of a directory, and before each removal in it, it becomes a link
    that leads out: every moment there is, one after another."""
    opener = delete_tree.probe_openat2()
    if opener is None:
        pytest.skip("NOT RUN: no openat2 here")
    moment, reached = 0, True
    while reached:
        entry = stage.entry()
        grow_small(entry)
        reached, steps = False, 0

        def step(_name: str = "", at: int = moment, entry: Path = entry) -> None:
            nonlocal steps, reached
            if steps == at:
                reached = True
                with contextlib.suppress(FileNotFoundError):
                    (entry / "tree" / victim).rename(stage.root / "moved")
                    (entry / "tree" / victim).symlink_to(stage.outside)
            steps += 1

        def opened(holder: int, name: str, flags: int) -> int:
            step()
            return opener(holder, name, flags)

        parent = os.open(stage.trash, os.O_RDONLY)
        try:
            worker = delete_tree.Deleter(may_chmod=False, point=step, openat2=opened)
            assert worker.delete(parent, entry.name, str(entry)), worker.obstacles
        finally:
            os.close(parent)
        assert not entry.exists()
        stage.assert_untouched()
        shutil.rmtree(stage.root / "moved", ignore_errors=True)
        moment += 1
    assert moment > 15


# -- the user's own deleter has the same walk --------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["openat2", "mount ids"])
def test_the_supervisors_deleter_withstands_the_same_tree(
    stage: RootStage, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-TREE-04, R-TREE-10: one walk for both; with few descriptors."""
    if way == "mount ids":
        monkeypatch.setattr(delete_tree, "_probed", [None])
    tree = stage.entry()
    stage.grow_everything(tree, levels=400)
    gc.collect()  # what earlier tests left is not closed in between
    before = len(os.listdir("/proc/self/fd"))
    most = 0

    def watch(_name: str) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/proc/self/fd")))

    real = delete_tree.Deleter._raise

    def watched(self: delete_tree.Deleter, *arguments: object) -> None:
        watch("")
        real(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(delete_tree.Deleter, "_raise", watched)
    trash.delete_tree(str(tree))
    assert not tree.exists()
    assert 0 < most - before < delete_tree.DEEPEST + 8
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_interrupted_deletion_leaves_nothing_beside_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies too deep rises within the tree: whoever deletes it again finds everything."""
    tree = tmp_path / "tree"
    tree.mkdir()
    grow_deep(tree, 300)
    with monkeypatch.context() as patched:
        patched.setattr(delete_tree.Deleter, "_go_into", _until(delete_tree.Deleter._go_into, 100))
        with pytest.raises(KeyboardInterrupt):
            trash.delete_tree(str(tree))
    assert os.listdir(tmp_path) == ["tree"]
    assert any(name.startswith(".holdfast-deep") for name in os.listdir(tree))
    trash.delete_tree(str(tree))
    assert os.listdir(tmp_path) == []


def _until(real: Callable[..., None], count: int) -> Callable[..., None]:
    calls = iter(range(count))

    def limited(*arguments: object) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        real(*arguments)

    return limited


# -- names, and the whole of it ----------------------------------------------------------------------------------------


def test_the_shell_entry_uses_our_names(tmp_path: Path) -> None:
    """R-TREE-12: what the entry hands to the deleter is what names.py says; neither file of root's has names of its
    own."""
    for name in INSTALLED:
        shutil.copy(PROGRAMS / name, tmp_path / name)
    (tmp_path / "root_cleanup.py").write_text("import sys, json; print(json.dumps(sys.argv[1:]))\n")
    done = subprocess.run([tmp_path / "holdfast-cleanup"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == NAMES
    ours = {value for value in vars(names).values() if isinstance(value, str) and len(value) > 5 and "/" not in value}
    for program in ("root_cleanup.py", "delete_tree.py"):
        code = (PROGRAMS / program).read_text().split('"""', 2)[2]
        assert [name for name in ours if f'"{name}"' in code] == []


def test_root_clears_what_the_supervisor_may_not(other_users_fleet: Fleet) -> None:
    """R-TREE-09, R-TREE-10: an agent's container left directories of root's, inside and as the workspace itself. The
    supervisor says what would help and keeps trying; root sweeps before the next start; then nothing is left."""
    fleet = other_users_fleet
    supervisor = fleet.up()
    tasks = {}
    for kind in ("inside", "whole"):
        go = fleet.root / f"go-{kind}"
        tasks[kind] = fleet.add(kind, command=("sh", "-c", f"touch started; until [ -e {go} ]; do sleep 0.1; done"))
    for kind, task_id in tasks.items():
        path = Path(fleet.wait_started(task_id)["workspace"]["path"])
        wait_until((path / "started").exists, "the agent is at work")
        (path / "roots" / "below").mkdir(parents=True)
        (path / "roots" / "below" / "file").write_text("made by root")
        if kind == "whole":
            os.chown(path, 0, 0)
            path.chmod(0o755)
        (fleet.root / f"go-{kind}").touch()
    for task_id in tasks.values():
        fleet.wait_state(task_id, "completed", "failed", "cancelled")

    def told(task_id: str) -> list[str]:
        return [event["message"] for event in fleet.events(task_id) if event["kind"] == "workspace.cleanup-failed"]

    wait_until(lambda: all(told(task_id) for task_id in tasks.values()), "both clean-ups failed and said so")
    for task_id in tasks.values():
        assert "sudo holdfast service install" in told(task_id)[0]
    fleet.kill_supervisor(supervisor)
    workspaces = fleet.home / "workspaces"
    assert len([name for name in os.listdir(workspaces / ".trash") if "." not in name]) == 1
    assert len(list(workspaces.glob("*/.trash-*"))) == 1
    markers = list((workspaces / ".trash").glob("*.json"))
    assert [trash.is_needed_marker(str(marker)) for marker in markers] == [True, True]
    programs = Path(shutil.copytree(PROGRAMS, fleet.root / "libexec", ignore=shutil.ignore_patterns("__pycache__")))
    done = subprocess.run(
        [programs / "holdfast-cleanup"],
        env={"HOLDFAST_CLEANUP_HOMES": str(fleet.home)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "swept=2 failed=0 skipped=0" in done.stdout, done.stderr
    fleet.up()
    fleet.wait_clean()
    assert os.listdir(workspaces / ".trash") == []
    assert list(workspaces.glob("*/*")) == []
