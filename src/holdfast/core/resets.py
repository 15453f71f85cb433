"""When a limit ends, from how the CLIs write it."""

from __future__ import annotations

import math


def reset_time(hint: str | float, now: float, zone: str | None) -> float | None:
    """Wall time in seconds, or None. `zone` is that of the process which wrote it."""
    if isinstance(hint, str) or not math.isfinite(hint) or hint <= 0:
        return None
    return hint / 1000 if hint > 1e11 else float(hint)
