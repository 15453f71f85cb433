"""Colours of task states and of levels, for the command line and the terminal UI. Every text is complete without its
colour."""

from __future__ import annotations

from collections.abc import Mapping

STATE_COLOURS: Mapping[str, str] = {
    "queued": "cyan",
    "running": "blue",
    "paused": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "magenta",
}
LEVEL_COLOURS: Mapping[str, str] = {"critical": "red", "warning": "yellow"}  # of events and alerts; others have none
