"""The budgets that the policy decides by, from the settings."""

from __future__ import annotations

from holdfast.config.layers import Config
from holdfast.core.budgets import Limits


def limits_of(settings: Config) -> Limits:
    return Limits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        crash_window=settings["crash.window"],
        retry=settings["retry.max"],
        retry_base=settings["retry.base"],
        lost=settings["lost.max"],
        default_hold=settings["resume.default_hold"],
        auto_resume=settings["resume.auto"],
        resume_enabled=settings["resume.enabled"],
        resume_jitter=settings["resume.jitter"],
        max_wait=settings["resume.max_wait"],
    )
