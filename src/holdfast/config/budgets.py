"""What decisions are made by, from the settings: the budgets of tasks, the workers."""

from __future__ import annotations

from holdfast.config.layers import Config
from holdfast.core.budgets import Limits
from holdfast.core.dispatch import Lane
from holdfast.core.staffing import Staff, Worker


def limits_of(settings: Config) -> Limits:
    return Limits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        crash_window=settings["crash.window"],
        retry=settings["retry.max"],
        retry_base=settings["retry.base"],
        lost=settings["lost.max"],
        default_hold=settings["resume.default_hold"],
    )


def staff_of(settings: Config) -> Staff:
    return Staff(
        workers=tuple(
            Worker(
                lane=Lane(name=table.name, agent=table.agent, account=table.account, labels=table.labels),
                restart=settings["crash.auto_restart"] if table.restart is None else table.restart,
            )
            for table in settings.workers
        ),
        release_claims=settings["crash.release_claims"],
    )
