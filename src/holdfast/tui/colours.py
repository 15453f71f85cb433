"""Colours of the terminal UI.

A terminal with sixteen colours or none keeps its own colours: shades of grey would all look the same there.
"""

from __future__ import annotations

import os

from rich.console import Console

from holdfast.api.colours import LEVEL_COLOURS, STATE_COLOURS

# Only what works, waits for a person or failed has a colour.
STATES = {
    **STATE_COLOURS,
    "queued": "",
    "running": "bright_blue",
    "failed": "bold red",
    "completed": "dim",
    "cancelled": "dim",
}
LEVELS = {**LEVEL_COLOURS, "critical": "bold red"}
FEW = "ansi-dark"  # Textual's name for "the terminal's own sixteen, on its own background"
# Reverse and underline take the place of backgrounds.
CSS = """
Grid:ansi > .grid--title { text-style: bold underline; }
Grid:ansi > .grid--cursor { background: ansi_default; text-style: bold reverse; }
Status:ansi { text-style: reverse; }
Banner:ansi #critical { background: ansi_default; color: ansi_bright_red; }
Banner:ansi #deaths { background: ansi_default; color: ansi_yellow; }
Banner:nocolor { text-style: bold reverse; }
"""


def has_few_colours() -> bool:
    """True if the terminal has sixteen colours or none."""
    if "NO_COLOR" in os.environ:
        return True
    return Console(force_terminal=True).color_system in (None, "standard")
