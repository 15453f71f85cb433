"""The rules for decisions, made from the settings: retry budgets, holds, spending caps, workers and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.config.layers import Config

if TYPE_CHECKING:  # `show` and `why` need only one of these, and have to start fast
    from holdfast.core.dispatch.holds import HoldRules
    from holdfast.core.dispatch.spending_caps import SharedCaps
    from holdfast.core.dispatch.workers import WorkerList
    from holdfast.core.runs.intervals import CheckpointRules
    from holdfast.core.runs.retry_budgets import RetryLimits


def hold_rules_from_settings(settings: Config) -> HoldRules:
    from holdfast.core.dispatch.holds import HoldRules

    return HoldRules(
        failures=settings["breaker.failures"],
        hold=settings["breaker.hold"],
        longest=settings["breaker.max_hold"],
        alone=settings["probe.alone"],
        near_starts=settings["near_limit.starts"],
        deaths=settings["mass_death.agents"],
        death_share=settings["mass_death.percent"] / 100,
        death_window=settings["mass_death.window"],
        death_hold=settings["mass_death.hold"],
    )


def retry_limits_from_settings(settings: Config) -> RetryLimits:
    from holdfast.core.runs.retry_budgets import RetryLimits

    return RetryLimits(
        runs=settings["runs.max"],
        crash=settings["crash.max_in_window"],
        crash_window=settings["crash.window"],
        retry=settings["retry.max"],
        retry_base=settings["retry.base"],
        backoff_cap=settings["retry.max_delay"],
        lost=settings["lost.max"],
        outage=settings["outage.max"],
        outage_base=settings["breaker.hold"],
        default_hold=settings["resume.default_hold"],
        max_hold=settings["resume.max_hold"],
        change_account=settings["resume.change_account"],
        caps=caps_from_settings(settings),
        auto_resume=settings["resume.auto"],
        resume_enabled=settings["resume.enabled"],
        resume_jitter=settings["resume.jitter"],
        max_wait=settings["resume.max_wait"],
        reset_on_progress=settings["resume.reset_on_progress"],
    )


def caps_from_settings(settings: Config) -> SharedCaps:
    """Return the spending caps that tasks share: per day and per label."""
    from holdfast.core.dispatch.spending_caps import SharedCaps, SpendingCap

    day = SpendingCap(usd=settings["budget.day_usd"] or None, tokens=settings["budget.day_tokens"] or None)
    return SharedCaps(day=day, labels=settings.label_budgets)


def workers_from_settings(settings: Config) -> WorkerList:
    from holdfast.core.dispatch.terms import Lane
    from holdfast.core.dispatch.workers import Worker, WorkerList

    return WorkerList(
        workers=tuple(
            Worker(
                lane=Lane(name=table.name, agent=table.agent, account=table.account, labels=table.labels),
                restart=settings["crash.auto_restart"] if table.restart is None else table.restart,
            )
            for table in settings.workers
        ),
        release_claims=settings["crash.release_claims"],
    )


def checkpoint_rules_from_settings(settings: Config) -> CheckpointRules:
    from holdfast.core.runs.intervals import CheckpointRules

    return CheckpointRules(every=settings["checkpoint.every"], keep=settings["checkpoint.keep"])
