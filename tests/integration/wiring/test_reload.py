"""Every setting that the reference page calls "at once" reaches the place that a running supervisor reads it from."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stage import Stage
from tests.fleet import Fleet

import holdfast.supervisor
from holdfast import config
from holdfast.config.settings import SETTINGS
from holdfast.core.model import Level
from holdfast.supervisor.context import Context
from holdfast.supervisor.services.reload import ReloadService
from holdfast.supervisor.settings import SupervisorSettings
from holdfast.wiring.alerts import UserAlertTargets
from holdfast.wiring.reload import UserSettings, apply_settings

WORKER = '[[worker]]\nname = "ann"\n'

# key: (the value as TOML, where the supervisor reads it, the value there)
PLACES: dict[str, tuple[str, str, Any]] = {
    "agents": ("7", "settings.agents", 7),
    "salvage.keep": ('"3d"', "settings.keeping.salvages", 3 * 86400.0),
    "disk.floor": ('"3GiB"', "settings.pressure.disk_floor", 3 * 1024**3),
    "adaptive.percent": ("170", "settings.thresholds.adaptive_factor", 1.7),
    "adaptive.runs": ("9", "settings.thresholds.adaptive_runs", 9),
    "monitor.every": ('"7s"', "settings.thresholds.look_every", 7.0),
    "monitor.quiet_percent": ("3", "settings.thresholds.quiet_share", 0.03),
    "stop.fast_grace": ('"3s"', "settings.thresholds.fast_grace", 3.0),
    "stop.alarm_after": ('"7s"', "settings.thresholds.alarm_after", 7.0),
    "pressure.min_memory": ('"1MiB"', "settings.pressure.min_memory", 1024**2),
    "pressure.max_load": ("7", "settings.pressure.max_load", 7),
    "pressure.max_stall": ("7", "settings.pressure.max_stall", 7),
    "resume.enabled": ("false", "limits.resume_enabled", False),
    "resume.auto": ("false", "limits.auto_resume", False),
    "resume.jitter": ('"7s"', "limits.resume_jitter", 7.0),
    "resume.max_wait": ('"7h"', "limits.max_wait", 7 * 3600.0),
    "resume.reset_on_progress": ("true", "limits.reset_on_progress", True),
    "resume.default_hold": ('"7s"', "limits.default_hold", 7.0),
    "resume.max_hold": ('"7m"', "limits.max_hold", 420.0),
    "resume.change_account": ("true", "limits.change_account", True),
    "crash.max_in_window": ("7", "limits.crash", 7),
    "crash.window": ('"7s"', "limits.crash_window", 7.0),
    "crash.auto_restart": ("true", "worker.restart", True),
    "crash.release_claims": ("false", "settings.staff.release_claims", False),
    "retry.max": ("7", "limits.retry", 7),
    "retry.base": ('"7s"', "limits.retry_base", 7.0),
    "retry.max_delay": ('"7s"', "limits.backoff_cap", 7.0),
    "outage.max": ('"7s"', "limits.outage", 7.0),
    "breaker.failures": ("7", "settings.holds.failures", 7),
    "breaker.hold": ('"7s"', "settings.holds.hold", 7.0),
    "breaker.max_hold": ('"7s"', "settings.holds.longest", 7.0),
    "probe.alone": ('"7s"', "settings.holds.alone", 7.0),
    "near_limit.starts": ("7", "settings.holds.near_starts", 7),
    "mass_death.agents": ("7", "settings.holds.deaths", 7),
    "mass_death.percent": ("70", "settings.holds.death_share", 0.7),
    "mass_death.window": ('"7s"', "settings.holds.death_window", 7.0),
    "mass_death.hold": ('"7s"', "settings.holds.death_hold", 7.0),
    "sweep.warn_above": ("7", "settings.thresholds.backlog_many", 7),
    "sweep.slow_above": ("7", "settings.thresholds.backlog_slow", 7),
    "stage.collect_for": ('"7s"', "settings.thresholds.collect_for", 7.0),
    "lost.max": ("7", "limits.lost", 7),
    "runs.max": ("7", "limits.runs", 7),
    "budget.day_usd": ("7", "limits.caps.day.usd", 7.0),
    "budget.day_tokens": ("7", "limits.caps.day.tokens", 7),
    "retention.crashes": ('"7d"', "settings.keeping.crashes", 7 * 86400.0),
    "retention.events": ('"forever"', "settings.keeping.events", math.inf),
    "retention.runs": ('"7d"', "settings.keeping.runs", 7 * 86400.0),
    "retention.tasks": ('"7d"', "settings.keeping.tasks", 7 * 86400.0),
    "retention.log_size": ('"7MiB"', "settings.keeping.log_size", 7 * 1024**2),
    "checkpoint.every": ('"7s"', "settings.checkpoint.every", 7.0),
    "checkpoint.keep": ("7", "settings.checkpoint.keep", 7),
    "tracker.max_delay": ('"7s"', "settings.thresholds.tracker_delay", 7.0),
    "crash.notify": ("false", "rules.crashes", False),
    "notify.level": ('"critical"', "rules.level", Level.CRITICAL),
    "notify.urls": ('["env:NOTIFY_KEY"]', "messenger._url", "the key"),
    "notify.on": ('["completed"]', "rules.on", frozenset({"completed"})),
    "notify.gather": ('"7s"', "rules.gather", 7.0),
    "notify.command": ('["/bin/new"]', "command._argv", ["/bin/new"]),
    "notify.webhook": ('"https://new.example"', "webhook._url", "https://new.example"),
    "notify.secret": ('"env:NOTIFY_KEY"', "webhook._secret", "the key"),
    "notify.resolved": ("true", "rules.resolved", True),
    "notify.timeout": ('"7s"', "command._timeout", 7.0),
    "notify.attempts": ("7", "rules.attempts", 7),
}
TARGETS = {  # what makes the place exist
    "notify.timeout": 'notify.command = ["/bin/old"]',
    "notify.secret": 'notify.webhook = "https://old.example"',
}


class Running:
    """The places of a supervisor that reads its settings from a file."""

    def __init__(self, file: Path, context: Context) -> None:
        self.file = file
        settings = config.load()
        how = apply_settings(SupervisorSettings(agents=settings["agents"]), settings)
        source = UserSettings(settings, how)
        self.context = context
        context.settings = how
        context.ports = replace(context.ports, source=source)
        self.service = ReloadService(context)
        self.targets = UserAlertTargets(source.held, None)  # type: ignore[arg-type]  # nothing is sent

    async def reload(self, text: str) -> None:
        self.file.write_text(text)
        self.service.ask()
        await self.service.tick()

    def read(self, place: str) -> Any:
        head, _, rest = place.partition(".")
        owners: dict[str, Callable[[], Any]] = {
            "worker": lambda: self.context.settings.staff.workers[0],
            "rules": self.targets.rules,
            "command": lambda: self.targets.target("command"),
            "webhook": lambda: self.targets.target("webhook"),
            "messenger": lambda: self.targets.target("env:NOTIFY_KEY"),
        }
        owner = owners[head]() if head in owners else getattr(self.context, head)
        return None if owner is None else attrgetter(rest)(owner)


def test_every_setting_that_is_reloaded_has_its_place() -> None:
    assert {key for key, setting in SETTINGS.items() if setting.reload} == set(PLACES)


def test_a_running_supervisor_takes_every_setting_over(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Config, hot reload: each new value is at its place, and it goes when the file no longer has it."""
    file = tmp_path / "config.toml"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    monkeypatch.setenv("NOTIFY_KEY", "the key")

    async def act(closing: contextlib.ExitStack) -> list[str]:
        running, wrong = Running(file, Stage(fleet).context(closing)), []
        for key, (text, place, value) in PLACES.items():
            before = (f"{TARGETS[key]}\n" if key in TARGETS else "") + WORKER
            await running.reload(before)
            default = running.read(place)
            await running.reload(f"{key} = {text}\n{before}")
            found = running.read(place)
            await running.reload(before)
            if default == value or found != value or running.read(place) != default:
                wrong.append(f"{key}: {default!r} → {found!r} instead of {value!r} → {running.read(place)!r}")
        return wrong

    file.write_text("")
    with contextlib.ExitStack() as closing:
        assert asyncio.run(act(closing)) == []


def test_no_service_keeps_settings_from_its_start() -> None:
    """`context.settings` and `context.limits` are read when they are used: a copy of them would never change."""
    folder = Path(next(iter(holdfast.supervisor.__path__)))
    kept = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef) or node.name != "__init__":
                continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Assign) and _reads_settings(inner.value):
                    kept.append(f"{path.relative_to(folder)}: {ast.unparse(inner)}")
    assert kept == ["health/monitor.py: self._numbers = context.settings.thresholds"], "held by its own test"


def _reads_settings(value: ast.expr) -> bool:
    if isinstance(value, ast.Lambda):
        return False
    if isinstance(value, ast.Attribute) and value.attr in ("settings", "limits"):
        return ast.unparse(value.value).endswith("context")
    return any(_reads_settings(child) for child in ast.iter_child_nodes(value) if isinstance(child, ast.expr))
