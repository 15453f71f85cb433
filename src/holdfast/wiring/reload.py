"""The user's settings for a running supervisor, and the reload of changed settings."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from holdfast import config
from holdfast.config.known_secrets import register_settings_secrets
from holdfast.config.retry_budgets import (
    checkpoint_rules_from_settings,
    hold_rules_from_settings,
    retry_limits_from_settings,
    workers_from_settings,
)
from holdfast.config.tables.accounts import Accounts
from holdfast.core.dispatch.pressure import PressureLimits
from holdfast.supervisor.ports import ReloadedSettings
from holdfast.supervisor.settings import RetentionTimes, SupervisorSettings, Thresholds


class UserSettings:
    """The user's settings in a running supervisor. Flags of `up` and the environment still override the file."""

    def __init__(
        self, settings: config.Config, how: SupervisorSettings, flags: Mapping[str, object] | None = None
    ) -> None:
        self._current = self._read = settings
        self._supervisor_settings = how
        self._flags = flags
        register_settings_secrets(settings)

    @property
    def cgroup(self) -> str:
        return str(self._current["processes.cgroup"])

    def held(self) -> config.Config:
        return self._current

    def stamp(self) -> object:
        try:
            found = os.stat(config.user_file_path())
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> ReloadedSettings:
        new = config.load(flags=self._flags)
        changed = {
            key: f"{_format_value(key, self._current[key])} → {_format_value(key, new[key])}"
            for key, setting in config.SETTINGS.items()
            if setting.user_only == config.OF_THE_SUPERVISOR and new[key] != self._current[key]
        }
        if new.accounts != self._current.accounts:
            changed["accounts"] = _describe_accounts(new.accounts)
        if new.label_budgets != self._current.label_budgets:
            changed["budget.labels"] = f"now {', '.join(new.label_budgets) or 'none'}"
        if new.workers != self._current.workers:
            changed["workers"] = f"now {', '.join(worker.name for worker in new.workers) or 'none'}"
        later = [key for key in changed if key in config.SETTINGS and not config.SETTINGS[key].reload]
        self._read = new.with_values({key: self._current[key] for key in later})
        agents = self._read["agents"] if "agents" in changed else self._supervisor_settings.agents
        return ReloadedSettings(
            settings=apply_settings(dataclasses.replace(self._supervisor_settings, agents=agents), self._read),
            limits=retry_limits_from_settings(self._read),
            changes={key: change for key, change in changed.items() if key not in later},
            at_next_start=tuple(later),
        )

    def accept(self, tuning: ReloadedSettings) -> None:
        self._current, self._supervisor_settings = self._read, tuning.settings
        register_settings_secrets(self._current)

    def adopt(self, settings: SupervisorSettings) -> None:
        if settings.agents != self._supervisor_settings.agents:
            self._flags = {**(self._flags or {}), "agents": settings.agents}
            self._current = self._current.with_values({"agents": settings.agents})
        self._supervisor_settings = settings


def _format_value(key: str, value: object) -> str:
    """Format a setting's value for an event. Possible secrets are masked."""
    return config.format_value(key, config.mask_secrets(key, value))


def _describe_accounts(accounts: Accounts) -> str:
    """List the accounts by name only, because their values may be secrets."""
    names = [f"{agent}/{name}" for agent, tables in accounts.items() for name in tables]
    return f"now {', '.join(names) or 'none but your own logins'}"


def apply_settings(how: SupervisorSettings, settings: config.Config) -> SupervisorSettings:
    """Return the supervisor's settings with all values from the user's settings. Used at the start and at each
    reload."""
    return dataclasses.replace(
        how,
        keeping=_retention_of(settings),
        pressure=_pressure_of(settings),
        thresholds=_thresholds_of(settings),
        checkpoint=checkpoint_rules_from_settings(settings),
        holds=hold_rules_from_settings(settings),
        staff=workers_from_settings(settings),
    )


def _retention_of(settings: config.Config) -> RetentionTimes:
    return RetentionTimes(
        events=settings["retention.events"],
        runs=settings["retention.runs"],
        tasks=settings["retention.tasks"],
        salvages=settings["salvage.keep"],
        crashes=settings["retention.crashes"],
        log_size=settings["retention.log_size"],
    )


def _thresholds_of(settings: config.Config) -> Thresholds:
    return Thresholds(
        fast_grace=settings["stop.fast_grace"],
        alarm_after=settings["stop.alarm_after"],
        look_every=settings["monitor.every"],
        quiet_share=settings["monitor.quiet_percent"] / 100,
        adaptive_factor=settings["adaptive.percent"] / 100,
        adaptive_runs=settings["adaptive.runs"],
        backlog_many=settings["sweep.warn_above"],
        backlog_slow=settings["sweep.slow_above"],
        collect_for=settings["stage.collect_for"],
        tracker_delay=settings["tracker.max_delay"],
    )


def _pressure_of(settings: config.Config) -> PressureLimits:
    return PressureLimits(
        min_memory=settings["pressure.min_memory"],
        max_load=settings["pressure.max_load"],
        max_stall=settings["pressure.max_stall"],
        disk_floor=settings["disk.floor"],
    )
