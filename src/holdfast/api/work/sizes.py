"""How large trees are, measured bit by bit: a million files must not keep anybody waiting, nor a core busy."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

BATCH = 64  # entries between two glances at the clock


@dataclass(frozen=True, slots=True)
class Size:
    bytes: int
    is_whole: bool  # False: still being counted, for the first time
    at: float  # when it was counted, by the monotonic clock


class Sizes:
    """Of one thread. `go_on` measures for so many seconds what was never measured, then what is older than `fresh`."""

    def __init__(self, fresh: float) -> None:
        self.known: Mapping[str, Size] = {}
        self._fresh = fresh
        self._walk: Iterator[int] | None = None
        self._path, self._count = "", 0

    def go_on(self, paths: list[str], seconds: float) -> bool:
        """Whether something is left to measure. `known` is another dict when something was found out."""
        deadline = time.monotonic() + seconds
        wanted = frozenset(paths)
        found = {path: size for path, size in self.known.items() if path in wanted}
        if self._path not in wanted:
            self._walk = None
        while True:
            if self._walk is None:
                following = self._next(paths, found)
                if following is None:
                    self._keep(found)
                    return False
                self._path, self._count, self._walk = following, 0, _walk(following)
            for count in self._walk:
                self._count += count
                if time.monotonic() >= deadline:
                    before = found.get(self._path)
                    if before is None or not before.is_whole:
                        found[self._path] = Size(self._count, False, time.monotonic())
                    self._keep(found)
                    return True
            found[self._path] = Size(self._count, True, time.monotonic())
            self._walk = None

    def _next(self, paths: list[str], found: Mapping[str, Size]) -> str | None:
        for path in paths:
            if path not in found or not found[path].is_whole:
                return path
        oldest = min(paths, key=lambda path: found[path].at, default=None)
        return oldest if oldest is not None and time.monotonic() - found[oldest].at > self._fresh else None

    def _keep(self, found: dict[str, Size]) -> None:
        if found != self.known:
            self.known = found


def _walk(path: str) -> Iterator[int]:
    """Bytes of the next few entries below it, as far as we may look; links are not followed."""
    folders, total, number = [path], 0, 0
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            total += entry.stat(follow_symlinks=False).st_size
                    except OSError:  # it went meanwhile
                        continue
                    number += 1
                    if number % BATCH == 0:
                        yield total
                        total = 0
        except OSError:  # it went meanwhile, or we may not look
            continue
    yield total
