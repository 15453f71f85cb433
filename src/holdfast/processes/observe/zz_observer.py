"""Watching runs from outside: the Observer port on inotify, run directories and /proc."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from holdfast.core.health.signs import SignReader
from holdfast.core.runs.liveness import Identity
from holdfast.processes.observe.observer import Changes
from holdfast.processes.observe.process_tree import trees
from holdfast.processes.observe.run_view import RunView, started_moment
from holdfast.processes.port import Tree


class RunObserver:
    """Made on the loop's thread. See the port for `on_change`."""

    def __init__(self, root: str, on_change: Callable[[str, bool], None]) -> None:
        self._root = root
        self._changes = Changes(on_change)

    def watch(self, run_id: str, signs: SignReader | None, agent: Identity | None, now: float) -> RunView:
        """`agent` is given for a run that somebody else launched: it tells since when it runs."""
        path = os.path.join(self._root, run_id)
        view = RunView(path, signs, now if agent is None else started_moment(agent, now))
        if agent is not None:
            view.take_over(now)
        self._changes.watch(run_id, path)
        return view

    def unwatch(self, run_id: str) -> None:
        self._changes.unwatch(run_id)

    def trees(self, roots: Mapping[str, Identity]) -> dict[str, Tree]:
        return trees(roots)

    def close(self) -> None:
        self._changes.close()
