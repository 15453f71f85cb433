"""A home on a disk of 2 MB (and of 8, which has room for the reserve) that fills at some step, and is freed later.

Whatever could not be written while it was full: nothing acknowledged is lost, nothing is reported twice, everybody was
told in one line, and with room again all continues by itself.
"""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.harness.campaign.family import Run, Scope
from tests.harness.campaign.limited_process import (
    SETTINGS,
    Ordeal,
    add,
    command,
    let_go_on,
    refusal,
    rest,
    supervise,
    tasks,
)
from tests.harness.matrix.steps import COMMIT, write
from tests.harness.matrix.world import World

SIZES = ("2M", "8M")
STEPS = ("add", "up", "working", "cancel", "pause")
MOST_LEFT = 320  # KiB: with more than this, nothing of what we write meets the end of the disk
STAY = 2.5
PATIENT, WORDS = "wait, then work", "work on a small disk"
_CLONE_NEWNS = 0x20000


class SmallDisk(Ordeal):
    """A case is `size/step:KiB`: what is left free from that step on, until all of it is."""

    name = "small-disk"
    about = "a home on a tmpfs of 2 MB that fills at some step and is freed"
    settings = SETTINGS + "[disk]\nfloor = 0\n"  # or it would not even begin
    USUAL = 18

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._apart = False

    def absent(self) -> str:
        if os.geteuid() != 0:
            return "a small disk is mounted by root only; run it as root"
        probe = "mount -t tmpfs -o size=64k none /mnt"
        done = subprocess.run(["unshare", "-m", "sh", "-c", probe], capture_output=True, text=True, check=False)
        return f"no small disk can be mounted: {done.stderr.strip()}" if done.returncode else ""

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        every = [f"{size}/{step}:{left}" for size in SIZES for step in STEPS for left in range(0, MOST_LEFT, 4)]
        return chance.sample(every, scope.amount(self.USUAL, len(every)))

    def undergo(self, world: World, case: str) -> tuple[list[str], str]:
        size, _, more = case.partition("/")
        step, _, left = more.partition(":")
        self._mount(world, size)
        ballast = world.home / "ballast"
        room = int(left) * 1024
        # An agent that cannot write says so by its exit code; these ones do not, so that each task can be completed.
        script = write("first.txt", "first") + COMMIT + write("second.txt", "second") + "true\n"
        waiting = "touch $WORLD/working; until [ -e $WORLD/go-on ]; do sleep 0.02; done\n"
        patient = f"{write('early.txt', 'early')}{waiting}{write('late.txt', 'late')}true\n"
        found = add(world, PATIENT, patient, role="add")
        if step == "add":
            _fill(ballast, room)
        found += add(world, WORDS, script, role="add-2")
        if step == "up":
            _fill(ballast, room)
        supervise(world, "up")
        if step not in ("add", "up"):
            world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
            _fill(ballast, room)
        if step in ("cancel", "pause"):
            found += _ask(world, step)
        (world.root / "go-on").touch()
        found += let_go_on(world, "up", STAY)
        ballast.unlink(missing_ok=True)
        known = {str(row["prompt"]) for row in tasks(world)}
        if not known:
            found += add(world, PATIENT, patient, role="add-again")
            known = {PATIENT}
        if step == "pause":
            world.up("settle")  # a pause that was asked for, but not carried out yet
            command(world, "resume", "resume", _id(world, PATIENT))
        ends = ("completed", "cancelled") if step == "cancel" else ("completed",)
        return [*found, *rest(world, sorted(known), allowed=ends)], ""

    def end(self, world: World) -> None:
        subprocess.run(["umount", "-l", str(world.home)], capture_output=True, check=False)

    def _mount(self, world: World, size: str) -> None:
        if not self._apart:  # once per worker: what is mounted in it goes away with it, however it ends
            if ctypes.CDLL(None).unshare(_CLONE_NEWNS):
                raise OSError("no mount namespace of its own")
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            self._apart = True
        world.home.mkdir(mode=0o700)
        options = f"size={size},mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(world.home)], check=True)


def _fill(ballast: Path, left: int) -> None:
    status = os.statvfs(ballast.parent)
    size = status.f_bavail * status.f_frsize - left
    if size > 0:
        fd = os.open(ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)


def _ask(world: World, what: str) -> list[str]:
    code, told = command(world, "ask", what, _id(world, PATIENT), "--no-wait")
    return refusal(what, code, told) if code else []


def _id(world: World, prompt: str) -> str:
    return next((str(row["id"]) for row in tasks(world) if row["prompt"] == prompt), "none")
