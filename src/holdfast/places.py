"""Where an agent will run, as its CLI sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.agents.port import Surroundings
from holdfast.core.model import Strategy, TaskSpec


def surroundings(strategy: str, options: Mapping[str, object]) -> Surroundings:
    return Surroundings(
        is_root=os.geteuid() == 0,
        is_sandboxed=strategy == Strategy.CONTAINER or options.get("sandbox") is True,
    )


def surroundings_of(spec: TaskSpec) -> Surroundings:
    return surroundings(spec.strategy, spec.agent_options)
