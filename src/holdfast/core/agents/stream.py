"""The two streams of an agent. Alone, because `add` and `ps` name them and need nothing else of events."""

from __future__ import annotations

from enum import StrEnum


class Stream(StrEnum):
    """The stream to which an agent wrote a line. Nearly every module that handles output names these two."""

    OUT = "out"
    ERR = "err"
