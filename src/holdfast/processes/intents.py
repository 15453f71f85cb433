"""What intent.json says: all that a keeper, and whoever comes after its supervisor, has to know of a run."""

from __future__ import annotations

import dataclasses
import os

from holdfast.processes.cgroups import Cgroups
from holdfast.processes.port import LaunchSpec


def intent_of(spec: LaunchSpec, cgroups: Cgroups | None) -> dict[str, object]:
    """What is written before the spawn. The environment is not: it may hold secrets, and the keeper inherits it.

    The token is: it is worth something only to this very run, whose next supervisor has to know it.
    """
    mask = os.umask(0o077)
    os.umask(mask)
    return {
        "run": spec.run_id,
        "argv": list(spec.argv),
        "cwd": spec.cwd,
        "timeout": spec.timeout,
        "grace": spec.grace,
        "fast_grace": spec.fast_grace,
        "orphan_grace": spec.orphan_grace,
        "umask": mask,
        "limits": dataclasses.asdict(spec.limits),
        "cgroup": cgroups.intent(spec.run_id, spec.limits) if cgroups else {},
        "ender": list(spec.ender),
        "token": spec.token,
        "metadata": dict(spec.metadata),
    }
