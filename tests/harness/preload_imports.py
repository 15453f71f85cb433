"""Everything imported, before anybody forks: what a forked process imports by itself, each of its siblings does too."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import holdfast

_LEFT_OUT = (
    "holdfast.cli",
    "holdfast.tui",
    "holdfast.__main__",
    "holdfast.processes.keeper_fork_server",
)  # neither library nor ours


def import_everything() -> None:
    """All that a supervisor or a command may import while it runs: agents, facets of the store, helpers of the api."""
    for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
            import_module(module.name)
