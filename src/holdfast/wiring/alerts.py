"""The alert targets of the user's settings. This module is in `wiring` because it chooses the adapters.

Secrets are looked up at each delivery. If a secret cannot be read, the delivery fails with that reason and is tried
again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from holdfast import __version__, config
from holdfast.agents.common.environment import filter_environment
from holdfast.alerts.command import CommandTarget
from holdfast.alerts.messenger import MessengerTarget, messenger_name
from holdfast.alerts.port import AlertRunner, AlertTarget, SendResult
from holdfast.alerts.webhook import WebhookTarget
from holdfast.base import clock
from holdfast.config.alert_tracker_settings import plain_address
from holdfast.config.known_secrets import register_settings_secrets
from holdfast.config.values import expand_program
from holdfast.core.model import Level
from holdfast.core.tasks.alerts import AlertChange, DeliveryRules
from holdfast.secrets.references import SecretMissing, look_up_secret

COMMAND, WEBHOOK = "command", "webhook"


class UserAlertTargets:
    """The alert targets and rules of the user's current settings. Implements supervisor.ports.AlertTargets."""

    def __init__(self, held: Callable[[], config.Config], run: AlertRunner) -> None:
        self._held = held
        self._run = run

    def rules(self) -> DeliveryRules:
        return rules_of(self._held())

    def names(self) -> Sequence[str]:
        return names_of(self._held())

    def target(self, name: str) -> AlertTarget | None:
        return target_of(name, self._held(), self._run)


class _BrokenTarget:
    """A target with a missing or wrong setting. Every delivery fails with the reason."""

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    async def send(self, _notice: AlertChange) -> SendResult:
        return SendResult(ok=False, told=self._why)


def rules_of(settings: config.Config) -> DeliveryRules:
    return DeliveryRules(
        level=Level(settings["notify.level"]),
        resolved=settings["notify.resolved"],
        crashes=settings["crash.notify"],
        attempts=settings["notify.attempts"],
        on=frozenset(settings["notify.on"]),
        gather=settings["notify.gather"],
    )


def names_of(settings: config.Config) -> list[str]:
    names = [name for name in (COMMAND, WEBHOOK) if settings[f"notify.{name}"]]
    return [*names, *dict.fromkeys(map(messenger_name, settings["notify.urls"]))]


def target_of(
    name: str, settings: config.Config, run: AlertRunner, environment: Mapping[str, str] = os.environ
) -> AlertTarget | None:
    """Return the target `name`, or None if it is not configured.

    A command gets the user's whole environment. The webhook request gets only the variables that every agent may have.
    """
    timeout = float(settings["notify.timeout"])
    if name not in names_of(settings):
        return None
    if name == COMMAND:
        return CommandTarget(expand_program(settings["notify.command"]), environment, run, timeout)
    if name == WEBHOOK:
        return _webhook(settings, run, timeout, environment)
    place = next(place for place in settings["notify.urls"] if messenger_name(place) == name)
    try:
        url = look_up_secret(place, environment)
    except SecretMissing as missing:
        return _BrokenTarget(name, f"notify.urls {missing}")
    register_settings_secrets(settings, environment)
    return MessengerTarget(name, url, filter_environment(environment, ()), run, timeout)


def _webhook(settings: config.Config, run: AlertRunner, timeout: float, environment: Mapping[str, str]) -> AlertTarget:
    looked_up: dict[str, str | None] = {}
    for key in ("notify.webhook", "notify.secret"):
        try:
            looked_up[key] = look_up_secret(settings[key], environment) if settings[key] else None
        except SecretMissing as missing:
            return _BrokenTarget(WEBHOOK, f"{key} {missing}")
    register_settings_secrets(settings, environment)
    try:
        url = plain_address(looked_up["notify.webhook"] or "")
    except ValueError:
        return _BrokenTarget(
            WEBHOOK, "notify.webhook names a value that is not an http:// or https:// address without a login"
        )
    return WebhookTarget(
        url,
        looked_up["notify.secret"],
        filter_environment(environment, ()),
        run,
        timeout,
        _wall,
        f"holdfast/{__version__}",
    )


def _wall() -> float:
    return clock.now().wall
