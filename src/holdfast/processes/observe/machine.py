"""The machine's free memory, load and disk: from /proc, and from the cgroups around us if their limit is smaller.

`proc` and `cgroups` are arguments so that recorded files of other machines can be read. A value that cannot be read is
None.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.core.dispatch.pressure import Pressure


class Machine:
    def __init__(
        self, proc: str = "/proc", cgroups: str = "/sys/fs/cgroup", cores: int | None = None, home: str | None = None
    ) -> None:
        self._proc = proc
        self._home = home
        self._cgroups = cgroups
        self._cores = cores or os.cpu_count() or 1

    def pressure(self) -> Pressure:
        """Return the pressure on the machine now. Reads a dozen small files, in well under a millisecond."""
        return Pressure(memory=self._memory(), load=self._load(), stall=self._stall(), disk=self.disk())

    def disk(self) -> int | None:
        """Return the bytes that an ordinary user may still write to the home's file system."""
        return None if self._home is None else _free_disk(self._home)

    def free_disk_elsewhere(self, path: str) -> int | None:
        """Return the bytes that an ordinary user may still write at `path`. None: it is on the home's file system, or
        unknown."""
        try:
            is_homes = self._home is None or os.stat(path).st_dev == os.stat(self._home).st_dev
        except OSError:
            return None
        return None if is_homes else _free_disk(path)

    def _load(self) -> float | None:
        words = _text(os.path.join(self._proc, "loadavg")).split()
        return None if not words else float(words[0]) / self._cores

    def _stall(self) -> float | None:
        """Return `some avg10` of the pressure stall information. Kernels may be built or booted without it."""
        for line in _text(os.path.join(self._proc, "pressure", "memory")).splitlines():
            if line.startswith("some "):
                return float(line.partition("avg10=")[2].split()[0])
        return None

    def _memory(self) -> int | None:
        machine = _fields(_text(os.path.join(self._proc, "meminfo")))
        kib = machine.get("MemAvailable")
        everything = machine.get("MemTotal", 0) * 1024
        rooms = [] if kib is None else [kib * 1024]
        rooms += [room for limit, room in self._free_in_cgroups() if not everything or limit < everything]
        return min(rooms) if rooms else None

    def _free_in_cgroups(self) -> Iterator[tuple[int, int]]:
        """Yield (limit, bytes left) of every cgroup around us that has a limit: a parent's limit holds for us too."""
        for line in _text(os.path.join(self._proc, "self", "cgroup")).splitlines():
            number, controllers, path = [*line.split(":", 2), "", ""][:3]
            if number == "0":
                for root in (self._cgroups, os.path.join(self._cgroups, "unified")):
                    yield from _free_below_limits(root, path, _V2)
            elif "memory" in controllers.split(","):
                yield from _free_below_limits(os.path.join(self._cgroups, "memory"), path, _V1)


def _free_disk(path: str) -> int | None:
    """Return the bytes that an ordinary user may still write to the file system of a path."""
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


_V2 = ("memory.max", "memory.current", "inactive_file")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _free_below_limits(root: str, path: str, names: tuple[str, str, str]) -> Iterator[tuple[int, int]]:
    """Yield (limit, bytes left) from our own cgroup up to the root.

    In a container the path may be the host's. Then only the root exists.
    """
    limit_name, used_name, cache_name = names
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        folder = os.path.join(root, *parts[:depth])
        limit, used = _text(os.path.join(folder, limit_name)).strip(), _text(os.path.join(folder, used_name)).strip()
        if limit.isdigit() and used.isdigit():
            cache = _fields(_text(os.path.join(folder, "memory.stat"))).get(cache_name, 0)  # the kernel can reclaim it
            yield int(limit), max(0, int(limit) - max(0, int(used) - cache))


def _fields(text: str) -> dict[str, int]:
    """Parse lines of a name and a number, with or without a colon and a unit."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[1].isdigit():
            found[words[0].removesuffix(":")] = int(words[1])
    return found


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:  # this controller or the pressure information is missing, or this is not Linux
        return ""
