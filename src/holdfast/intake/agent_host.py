"""The host on which an agent will run, as its CLI sees it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.agents.port import HostFacts
from holdfast.core.model import Strategy, TaskSpec


def describe_host(strategy: str, options: Mapping[str, object]) -> HostFacts:
    return HostFacts(
        is_root=os.geteuid() == 0,
        is_sandboxed=strategy == Strategy.CONTAINER or options.get("sandbox") is True,
        has_namespaces=strategy != Strategy.CONTAINER and _has_namespaces(),
    )


def _has_namespaces() -> bool:
    """Return False only if the kernel reports it. The filters of containers are not visible here."""
    if _kernel_says("user/max_user_namespaces") == "0":
        return False
    return os.geteuid() == 0 or _kernel_says("kernel/unprivileged_userns_clone") != "0"


def _kernel_says(name: str) -> str:
    try:
        with open(f"/proc/sys/{name}", encoding="ascii") as file:
            return file.read(32).strip()
    except (OSError, ValueError):
        return ""


def describe_host_of(spec: TaskSpec) -> HostFacts:
    return describe_host(spec.strategy, spec.agent_options)
