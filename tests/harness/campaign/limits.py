"""Limits of the system on a process: descriptors, processes, memory. At many small values, for a command and for a
supervisor: a clear refusal or work, never a traceback, a loop or a loss; and without the limit all continues."""

from __future__ import annotations

import ctypes
import os
import random
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.harness.campaign.family import Run, Scope
from tests.harness.campaign.limited_process import Ordeal, acknowledged, add, added, let_go_on, rest, said, supervise
from tests.harness.matrix.steps import COMMIT, write
from tests.harness.matrix.world import World

FILES, MEMORY, DATA, PROCESSES = "nofile", "as", "data", "nproc"
ADD, UP, COLD = "add", "up", "cold"  # cold: a command in an interpreter of its own, which has everything to load yet
WORDS = "work under limits"
STAY = 3.0  # seconds that a supervisor may wait for better times before it is told to end
FIRST_USER = 610_000  # nobody's: as root no limit of processes binds, and the count is one of the user
_PR_SET_KEEPCAPS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 8, 47, 2
_CAP_DAC_READ_SEARCH, _CAPABILITIES_V3 = 2, 0x20080522


class Limits(Ordeal):
    """A case is `who/what=value`: descriptors in all, KiB above what the process has already, processes of the user."""

    name = "limits"
    about = "RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA and RLIMIT_NPROC of commands and supervisors, at small values"
    USUAL = 24

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._bare = 0  # KiB of an interpreter that has loaded nothing

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        every = {
            f"{ADD}/{FILES}": range(3, 40),
            f"{UP}/{FILES}": range(3, 90),
            f"{ADD}/{MEMORY}": range(0, 24_000, 50),
            f"{UP}/{MEMORY}": range(0, 120_000, 200),
            f"{ADD}/{DATA}": range(0, 24_000, 50),
            f"{UP}/{DATA}": range(0, 120_000, 200),
            f"{COLD}/{MEMORY}": range(1_500, 20_000, 25),
            f"{COLD}/{FILES}": range(5, 30),
        }
        if os.geteuid() == 0:
            every[f"{UP}/{PROCESSES}"] = range(1, 40)
            every[f"{ADD}/{PROCESSES}"] = range(1, 6)
        everything = [f"{what}={value}" for what, values in every.items() for value in values]
        if scope.long:
            return everything
        kinds = chance.sample(list(every), len(every))
        picked = [kinds[number % len(kinds)] for number in range(scope.amount(self.USUAL))]
        return [f"{what}={chance.choice(every[what])}" for what in picked]

    def prepare(self, root: Path) -> None:
        super().prepare(root)
        asked = [sys.executable, "-c", "print(open('/proc/self/status').read())"]
        told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        self._bare = next(int(line.split()[1]) for line in told.split("\n") if line.startswith("VmPeak:"))

    def _cold(self, world: World, what: str, value: int, script: str) -> list[str]:
        """`value` is what it may have beyond a bare interpreter, which could not say anything of ours."""

        def start() -> None:
            which = resource.RLIMIT_NOFILE if what == FILES else resource.RLIMIT_AS
            resource.setrlimit(which, (value,) * 2 if what == FILES else ((self._bare + value) * 1024,) * 2)
            os.execv(sys.executable, [*world.mutation.command, *added(WORDS, script)])

        world.client(COLD, start)
        return acknowledged(world, WORDS, COLD, world.wait(COLD), said(world))

    def undergo(self, world: World, case: str) -> tuple[list[str], str]:
        who, _, limit = case.partition("/")
        what, _, value = limit.partition("=")
        user = FIRST_USER + os.getpid() if what == PROCESSES else 0
        if user:
            _give(world.root, user)

        def burden(role: str) -> None:
            if user:
                os.environ["HOME"] = str(world.root)
                os.environ["GIT_CONFIG_GLOBAL"] = str(self._root / "user" / ".gitconfig")
                become_user(user)
            if role == who:
                _limit(what, int(value))

        world.burden = burden
        script = write("first.txt", "first") + COMMIT + write("second.txt", "second")
        first = add(world, WORDS, script, role=ADD) if who != COLD else self._cold(world, what, int(value), script)
        found = [*first, *add(world, f"{WORDS} too", script, role="add-more")]
        if found:
            return found, ""
        supervise(world, UP)
        found += let_go_on(world, UP, STAY)
        expected = [f"{WORDS} too", *([WORDS] if who == UP else [])]
        return [*found, *rest(world, expected)], ""


def _limit(what: str, value: int) -> None:
    if what == FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (value, value))
    elif what == PROCESSES:
        resource.setrlimit(resource.RLIMIT_NPROC, (value, value))
    else:
        field, which = ("VmSize:", resource.RLIMIT_AS) if what == MEMORY else ("VmData:", resource.RLIMIT_DATA)
        bytes_ = (_kibibytes(field) + value) * 1024
        resource.setrlimit(which, (bytes_, bytes_))


def _kibibytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().split("\n"):
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


def become_user(user: int) -> None:
    """Somebody else, who may read what root may (an interpreter may be anywhere) and nothing else."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    os.setresgid(user, user, user)
    done = [libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)]
    os.setresuid(user, user, user)
    only = 1 << _CAP_DAC_READ_SEARCH
    done.append(libc.capset((ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0), (ctypes.c_uint32 * 6)(only, only, only)))
    done.append(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0))
    if any(done):
        raise OSError(ctypes.get_errno(), "no other user can be had here")


def _give(root: Path, user: int) -> None:
    """The world, to a user who has nothing else."""
    for folder, _folders, files in os.walk(root):
        os.chown(folder, user, user)
        for name in files:
            os.chown(os.path.join(folder, name), user, user, follow_symlinks=False)
    os.chmod(root.parent, 0o711)  # he passes through it
