"""The budgets that the policy decides by, from the settings."""

from __future__ import annotations

from holdfast.config.layers import Config
from holdfast.core.budgets import Limits
from holdfast.core.caps import Cap, Caps


def limits_of(settings: Config) -> Limits:
    return Limits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        crash_window=settings["crash.window"],
        retry=settings["retry.max"],
        retry_base=settings["retry.base"],
        lost=settings["lost.max"],
        default_hold=settings["resume.default_hold"],
        caps=caps_of(settings),
    )


def caps_of(settings: Config) -> Caps:
    """What tasks share of money and tokens."""
    day = Cap(usd=settings["budget.day_usd"] or None, tokens=settings["budget.day_tokens"] or None)
    return Caps(day=day, labels=settings.label_budgets)
