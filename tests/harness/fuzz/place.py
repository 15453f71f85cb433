"""A home with a life behind it, and copies of it that stand on their own.

Paths are recorded all over a home and in git's own files. A copy has a name of the same length as the original, and
that name is put in wherever the original's stands: so whatever an input does, it does to its own copy.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw
from tests.harness.matrix.cases import parse
from tests.harness.matrix.runner import prepare
from tests.harness.matrix.stages import PROMPT as STAGED
from tests.harness.matrix.stages import add_staged
from tests.harness.matrix.steps import COMMIT, add, commands_of, state, task_id, write
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.cli import main

ORIGINAL = "original"  # as many letters as the name of a copy has
DATABASE = "holdfast.db"
_LIVES = ("completes", "\x1b[31mred\x1b[0m é 日本", "it will pause", "waits for it", STAGED)
_ENDS = ("completed", "failed", "paused")


def make(root: Path) -> Path:
    """The original, made by real processes in one of its own: they end with it."""
    prepare(root)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _live(root)
            code = 0
        finally:
            os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        log = root / "places" / ORIGINAL / "log"
        raise RuntimeError(f"the home could not be made: {log.read_text()[-3000:] if log.exists() else 'see above'}")
    shutil.copytree(root / "user", root / "places" / ORIGINAL / "user")
    return root / "places" / ORIGINAL


def _live(root: Path) -> None:
    """Tasks in every state that one can be in without a supervisor, with all that lies around them."""
    (root / "places").mkdir()
    world = World(root / "places" / ORIGINAL, root / "template", parse("success"))
    completes, fails, pauses = _LIVES[:3]
    add(world, completes, write("done.txt", "done") + COMMIT)
    add(world, fails, write("left.txt", "left") + "exit 3", labels={"area": "docs"})
    add(world, "waits for it", "true", role="add2", after=(task_id(world, completes),))
    add_staged(world)
    _add_pausing(world, pauses)
    world.start("up")
    at_rest = lambda: all(state(world, prompt) in _ENDS for prompt in _LIVES)  # noqa: E731 - one fact
    world.wait_until(at_rest, "each has come as far as it can", while_running="up")
    world.client("down", lambda: main.run(["down"]))
    world.wait("up")
    add(world, "waits for its time", "true", role="add3", delay=3600.0)
    add(world, "cancelled", "true", role="add4", delay=3600.0)
    world.client("cancel", lambda: commands_of(world).cancel(task_id(world, "cancelled"), "enough"))
    _write_back(world.home)
    (world.root / "good.toml").write_text('[[step]]\nprint = "x"\n')
    (world.root / "odd.json").write_text('{"step": [{"print": 1}]}')


def _add_pausing(world: World, prompt: str) -> None:
    steps = [{"do": "limit", "with": {"kind": "usage", "for": 3600}, "run": None}]
    new = NewTask(prompt=prompt, directory=str(world.repo), scenario=steps)
    world.client("add-pausing", lambda: world.acknowledge(Commands(str(world.home)).add(new).id))


def _write_back(home: Path) -> None:
    """A log has checksums: no path in it could be replaced."""
    connection = apsw.Connection(str(home / DATABASE))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def copy_of(original: Path) -> Path:
    """Beside it. The caller removes it."""
    place = _fresh(original)
    shutil.copytree(
        original, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("trace-*", "doorbell")
    )
    old, new = os.fsencode(original), os.fsencode(place)
    for directory, folders, files in os.walk(place):
        if Path(directory).name == "objects":
            folders.clear()  # compressed, and without paths
            continue
        for name in files:
            _move(os.path.join(directory, name), old, new)
    return place


def _fresh(original: Path) -> Path:
    while True:
        place = original.with_name(os.urandom(len(ORIGINAL) // 2).hex()[: len(ORIGINAL)])
        try:
            place.mkdir(mode=0o700)
            return place
        except FileExistsError:
            continue


def _move(path: str, old: bytes, new: bytes) -> None:
    if os.path.islink(path):
        target = os.fsencode(os.readlink(path))
        if old in target:
            os.unlink(path)
            os.symlink(target.replace(old, new), path)
        return
    if not os.path.isfile(path):
        return
    with open(path, "rb") as file:
        content = file.read()
    if old in content:
        mode = os.stat(path).st_mode
        os.chmod(path, 0o600)
        with open(path, "wb") as file:
            file.write(content.replace(old, new))
        os.chmod(path, mode)
