"""The two output streams of an agent. They have their own module, because `add` and `ps` need them and nothing else of
events."""

from __future__ import annotations

from enum import StrEnum


class Stream(StrEnum):
    """The stream to which an agent wrote a line. Nearly every module that handles output imports this class."""

    OUT = "out"
    ERR = "err"
