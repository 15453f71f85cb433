"""Which colours there are. With sixteen or none the terminal's own are used: shades of grey would all become one."""

from __future__ import annotations

import os

from rich.console import Console

# They only add to the words, which say it all.
STATES = {
    "queued": "cyan",
    "running": "bright_blue",
    "paused": "yellow",
    "completed": "green",
    "failed": "bold red",
    "cancelled": "magenta",
}
LEVELS = {"critical": "bold red", "warning": "yellow"}
FEW = "ansi-dark"  # Textual's name for "the terminal's own sixteen, on its own background"
# What backgrounds say elsewhere, reverse and underline say here.
CSS = """
Grid:ansi > .grid--title { text-style: bold underline; }
Grid:ansi > .grid--cursor { background: ansi_default; text-style: bold reverse; }
Status:ansi { text-style: reverse; }
Banner:ansi { background: ansi_red; color: ansi_bright_white; text-style: bold; }
Banner:nocolor { text-style: bold reverse; }
"""


def are_few() -> bool:
    if "NO_COLOR" in os.environ:
        return True
    return Console(force_terminal=True).color_system in (None, "standard")
