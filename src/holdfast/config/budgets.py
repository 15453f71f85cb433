"""The budgets that the policy decides by, from the settings."""

from __future__ import annotations

from holdfast.config.layers import Config
from holdfast.core.budgets import Limits
from holdfast.core.holds import HoldRules


def hold_rules_of(settings: Config) -> HoldRules:
    return HoldRules(
        failures=settings["breaker.failures"],
        hold=settings["breaker.hold"],
        longest=settings["breaker.max_hold"],
        alone=settings["probe.alone"],
        near_starts=settings["near_limit.starts"],
        deaths=settings["mass_death.agents"],
        death_window=settings["mass_death.window"],
        death_hold=settings["mass_death.hold"],
    )


def limits_of(settings: Config) -> Limits:
    return Limits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        crash_window=settings["crash.window"],
        retry=settings["retry.max"],
        retry_base=settings["retry.base"],
        lost=settings["lost.max"],
        outage=settings["outage.max"],
        outage_base=settings["breaker.hold"],
        default_hold=settings["resume.default_hold"],
    )
