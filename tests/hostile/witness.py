"""Who of a hostile tree lives, told by the kernel and by nothing of Holdfast: see tree.py for the marks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

from tests.fleet import wait_until
from tests.hostile.tree import KINDS

COMPLETE_PATIENCE = 50.0  # for a loaded machine; a tree is complete within half a second


class Witness:
    def __init__(self, marks: Path, kinds: frozenset[str] = frozenset(KINDS)) -> None:
        self.marks = marks
        self.kinds = kinds

    def alive(self) -> set[str]:
        """Kinds of which at least one process lives. Exact: a lock is held as long as any process has it open."""
        return {kind for kind in KINDS if self._is_held(kind)}

    def _is_held(self, kind: str) -> bool:
        try:
            fd = os.open(self.marks / f"{kind}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def processes(self) -> dict[int, str]:
        """pid → kind, from every descriptor of every process: for counting and naming (a hopper may be missed)."""
        marks = {}
        for kind in KINDS:
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(self.marks / f"{kind}.lock")
                marks[found.st_dev, found.st_ino] = kind
        seen = {}
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                found_kind = _kind_of(int(name), marks)
                if found_kind is not None:
                    seen[int(name)] = found_kind
        return seen

    def wait_complete(self) -> int:
        """Until every kind is there; how many processes are."""
        deadline = time.monotonic() + COMPLETE_PATIENCE
        while (missing := self.kinds - self.alive()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not missing, f"{sorted(missing)} never came to life"
        count = len(self.processes())
        assert count >= len(self.kinds)  # the watchdogs are two, and one hopper may be between two pids
        return count

    def assert_none(self) -> None:
        """Now, not soon: whoever says that a run is over says that this holds."""
        left = self.alive()
        assert not left, f"survivors: {sorted(left)}, processes {self.processes()}"

    def end(self) -> None:
        """End what a test left on purpose (or a broken keeper by mistake), until the kernel says that none is left."""

        def none_left() -> bool:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # within the millisecond in which its mark was seen
            return not self.alive()

        (self.marks / "end").touch()
        wait_until(none_left, "every member of the tree is ended")


def _kind_of(pid: int, marks: dict[tuple[int, int], str]) -> str | None:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return None
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            seen = os.stat(f"{folder}/{descriptor}")
            if (seen.st_dev, seen.st_ino) in marks:
                return marks[seen.st_dev, seen.st_ino]
    return None
