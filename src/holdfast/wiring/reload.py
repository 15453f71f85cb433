"""The user's settings for a running supervisor, and the reload of changed settings."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from holdfast import config
from holdfast.config.known_secrets import learn_settings
from holdfast.config.retry_budgets import checkpoint_rules_of, hold_rules_of, limits_of, staff_of
from holdfast.config.tables.accounts import Accounts
from holdfast.core.dispatch.pressure import PressureLimits
from holdfast.supervisor.ports import Tuning
from holdfast.supervisor.settings import Keeping, Settings


class UserSettings:
    """The user's settings in a running supervisor. Flags of `up` and the environment still override the file."""

    def __init__(self, settings: config.Config, how: Settings, flags: Mapping[str, object] | None = None) -> None:
        self._holds = self._read = settings
        self._how = how
        self._flags = flags
        learn_settings(settings)

    @property
    def cgroup(self) -> str:
        return str(self._holds["processes.cgroup"])

    def held(self) -> config.Config:
        return self._holds

    def stamp(self) -> object:
        try:
            found = os.stat(config.user_file())
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def read(self) -> Tuning:
        new = config.load(flags=self._flags)
        changed = {
            key: f"{_told(key, self._holds[key])} → {_told(key, new[key])}"
            for key, setting in config.SETTINGS.items()
            if setting.user_only == config.OF_THE_SUPERVISOR and new[key] != self._holds[key]
        }
        if new.accounts != self._holds.accounts:
            changed["accounts"] = _new_accounts(new.accounts)
        if new.label_budgets != self._holds.label_budgets:
            changed["budget.labels"] = f"now {', '.join(new.label_budgets) or 'none'}"
        if new.workers != self._holds.workers:
            changed["workers"] = f"now {', '.join(worker.name for worker in new.workers) or 'none'}"
        later = [key for key in changed if key in config.SETTINGS and not config.SETTINGS[key].reload]
        self._read = new.but({key: self._holds[key] for key in later})
        agents = self._read["agents"] if "agents" in changed else self._how.agents
        return Tuning(
            settings=dataclasses.replace(
                self._how,
                agents=agents,
                keeping=keeping_of(self._read),
                pressure=pressure_of(self._read),
                checkpoint=checkpoint_rules_of(self._read),
                holds=hold_rules_of(self._read),
                staff=staff_of(self._read),
            ),
            limits=limits_of(self._read),
            changes={key: change for key, change in changed.items() if key not in later},
            at_next_start=tuple(later),
        )

    def accept(self, tuning: Tuning) -> None:
        self._holds, self._how = self._read, tuning.settings
        learn_settings(self._holds)


def _told(key: str, value: object) -> str:
    """Format a setting's value for an event. Possible secrets are masked."""
    return config.shown(key, config.masked(key, value))


def _new_accounts(accounts: Accounts) -> str:
    """List the accounts by name only, because their values may be secrets."""
    names = [f"{agent}/{name}" for agent, tables in accounts.items() for name in tables]
    return f"now {', '.join(names) or 'none but your own logins'}"


def keeping_of(settings: config.Config) -> Keeping:
    return Keeping(
        events=settings["retention.events"],
        runs=settings["retention.runs"],
        tasks=settings["retention.tasks"],
        salvages=settings["salvage.keep"],
        crashes=settings["retention.crashes"],
        log_size=settings["retention.log_size"],
    )


def pressure_of(settings: config.Config) -> PressureLimits:
    return PressureLimits(
        min_memory=settings["pressure.min_memory"],
        max_load=settings["pressure.max_load"],
        max_stall=settings["pressure.max_stall"],
        disk_floor=settings["disk.floor"],
    )
