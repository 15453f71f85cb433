"""Since when a process tree is quiet, from readings of its CPU time."""

from __future__ import annotations

from collections import deque

QUIET_SHARE = 0.01  # of one core: below, a tree is quiet (R-TERM-04)
TICK = 0.01  # the kernel counts in hundredths of a second: less than three of them may be rounding
AT_WORK = 3 * TICK


class CpuTrail:
    """Readings (moment, CPU seconds so far), only as many as are needed.

    The counter only rises, so a reading that lies more CPU time back than a whole window may use can never again be
    the beginning of a quiet window: it is dropped. A busy tree keeps a handful of readings, a quiet one a few dozen.
    """

    def __init__(self, window: float) -> None:
        self.window = window
        self._readings: deque[tuple[float, float]] = deque()
        self.at_work = True  # whether the newest two readings say so; unknown counts as yes: look again soon

    def add(self, at: float, cpu: float) -> None:
        if self._readings:
            last_at, last_cpu = self._readings[-1]
            used = cpu - last_cpu
            self.at_work = used < 0 or used >= max(AT_WORK, QUIET_SHARE * (at - last_at))
            if cpu < last_cpu:  # a process went and nobody counted it: nothing can be said of what was before
                self._readings.clear()
        self._readings.append((at, cpu))
        while cpu - self._readings[0][1] >= QUIET_SHARE * self.window and len(self._readings) > 1:
            self._readings.popleft()
        while len(self._readings) > 1 and self._readings[1][0] <= at - self.window:
            self._readings.popleft()

    @property
    def quiet_since(self) -> float | None:
        """The tree used less than a hundredth of what a window has, from this moment to the newest reading."""
        return self._readings[0][0] if self._readings else None

    @property
    def read_at(self) -> float | None:
        return self._readings[-1][0] if self._readings else None

    @property
    def share(self) -> float:
        """Of one core, over `span`."""
        if not self.span:
            return 0.0
        return (self._readings[-1][1] - self._readings[0][1]) / self.span

    @property
    def span(self) -> float:
        return self._readings[-1][0] - self._readings[0][0] if self._readings else 0.0
