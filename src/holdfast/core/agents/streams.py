"""The two streams of an agent. Alone, because nearly everybody names them."""

from __future__ import annotations

from enum import StrEnum


class Stream(StrEnum):
    """Where a line was written."""

    OUT = "out"
    ERR = "err"
