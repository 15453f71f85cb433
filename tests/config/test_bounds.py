"""Every number among the settings has bounds, and a value beyond them is refused with the bound in the message.

An interval of nothing makes a supervisor look without a pause, a limit of one byte ends every run, and a percentage
over a hundred is never reached. Where 0 has a meaning of its own, the meaning says so.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from holdfast.base.units import LONGEST, parse_duration, parse_size
from holdfast.config import SETTINGS, ConfigError, load
from holdfast.config.settings import format_value, variable_name
from holdfast.config.values import BIGGEST_NUMBER, WholeNumber, parse_age, parse_money

KIB, MIB = 1024, 1024 * 1024
YEARS, SIZES, COUNTS = LONGEST, 2**63 - 1, BIGGEST_NUMBER

# key: (least, most, True if 0 is accepted below the least)
BOUNDS: dict[str, tuple[float, float, bool]] = {
    "agents": (0, COUNTS, False),
    "workspace.preserve_ttl": (0.001, math.inf, False),
    "workspace.setup_timeout": (0.1, YEARS, False),
    "gate.tries": (1, COUNTS, False),
    "salvage.max_size": (0, SIZES, False),
    "salvage.max_files": (1, COUNTS, False),
    "salvage.keep": (0.001, math.inf, False),
    "container.memory_share": (1, 100, False),
    "disk.floor": (0, SIZES, False),
    "health.max_runtime": (0.1, YEARS, False),
    "health.grace": (0, YEARS, False),
    "health.orphan_grace": (0.1, YEARS, False),
    "health.stuck_after": (0.1, math.inf, False),
    "health.tool_silence": (0.1, math.inf, False),
    "health.startup_timeout": (0.1, math.inf, False),
    "health.loop_steps": (0, COUNTS, False),
    "health.doomed_after": (0.1, math.inf, False),
    "health.retry_patience": (0.1, math.inf, False),
    "health.claim_grace": (0, YEARS, False),
    "health.adaptive_floor": (0.1, YEARS, False),
    "adaptive.percent": (100, COUNTS, False),
    "adaptive.runs": (1, COUNTS, False),
    "monitor.every": (0.1, 3600, False),
    "monitor.quiet_percent": (0, 100, False),
    "stop.fast_grace": (0, YEARS, False),
    "stop.alarm_after": (0.1, YEARS, False),
    "limits.memory": (MIB, SIZES, True),
    "limits.processes": (0, COUNTS, False),
    "limits.processes_ceiling": (0, COUNTS, False),
    "limits.cpu_weight": (0, 10_000, False),
    "limits.output": (4 * KIB, SIZES, True),
    "limits.output_kept": (4 * KIB, SIZES, False),
    "pressure.min_memory": (0, SIZES, False),
    "pressure.max_load": (0, COUNTS, False),
    "pressure.max_stall": (0, 100, False),
    "resume.max_attempts": (0, COUNTS, False),
    "resume.jitter": (0, YEARS, False),
    "resume.max_wait": (0, YEARS, False),
    "resume.default_hold": (0.01, YEARS, False),
    "resume.max_hold": (0.01, YEARS, False),
    "crash.max_in_window": (1, COUNTS, False),
    "crash.window": (1, YEARS, False),
    "retry.max": (0, COUNTS, False),
    "retry.base": (0.01, YEARS, False),
    "retry.max_delay": (0.01, YEARS, False),
    "outage.max": (0, YEARS, False),
    "breaker.failures": (0, COUNTS, False),
    "breaker.hold": (0.01, YEARS, False),
    "breaker.max_hold": (0.01, YEARS, False),
    "probe.alone": (0.1, YEARS, False),
    "near_limit.starts": (0, COUNTS, False),
    "mass_death.agents": (0, COUNTS, False),
    "mass_death.percent": (1, 100, False),
    "mass_death.window": (0.1, YEARS, False),
    "mass_death.hold": (0.01, YEARS, False),
    "sweep.warn_above": (0, COUNTS, False),
    "sweep.slow_above": (0, COUNTS, False),
    "stage.collect_for": (0, YEARS, False),
    "lost.max": (0, COUNTS, False),
    "runs.max": (1, COUNTS, False),
    "budget.task_usd": (0, COUNTS, False),
    "budget.task_tokens": (0, COUNTS, False),
    "budget.day_usd": (0, COUNTS, False),
    "budget.day_tokens": (0, COUNTS, False),
    "subtasks.max_depth": (0, COUNTS, False),
    "subtasks.max": (0, COUNTS, False),
    "retention.crashes": (0.001, math.inf, False),
    "checkpoint.every": (0.1, YEARS, True),
    "checkpoint.keep": (1, COUNTS, False),
    "tracker.poll": (0.05, YEARS, False),
    "tracker.max_delay": (0.1, YEARS, False),
    "tracker.timeout": (0.1, YEARS, False),
    "notify.gather": (0, YEARS, False),
    "notify.timeout": (0.1, YEARS, False),
    "notify.attempts": (1, COUNTS, False),
    "retention.events": (0.001, math.inf, False),
    "retention.runs": (0.001, math.inf, False),
    "retention.tasks": (0.001, math.inf, False),
    "retention.log_size": (KIB, SIZES, False),
}


def is_number(key: str) -> bool:
    parse = SETTINGS[key].parse
    return isinstance(parse, WholeNumber) or parse in (parse_duration, parse_age, parse_size, parse_money)


def shown(key: str, value: float) -> str:
    """Return a value as people write it, without quotes."""
    return format_value(key, value).strip('"')


def test_the_table_has_every_number() -> None:
    assert {key for key in SETTINGS if is_number(key)} == set(BOUNDS)


@pytest.mark.parametrize("key", BOUNDS)
def test_a_number_beyond_its_bounds_is_refused(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, with the file's line, and in the environment. The least and the most value are accepted."""
    file = tmp_path / "config.toml"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    least, most, has_zero = BOUNDS[key]
    for value in (least, most) if most != math.inf else (least,):
        more = '[[worker]]\nname = "w"\n' if key == "agents" else ""  # without any worker, 0 is another mistake
        file.write_text(f"{key} = {format_value(key, int(value) if value >= 1 else value)}\n{more}")
        assert load()[key] == value
    bound = shown(key, least)
    if least:
        below = format_value(key, _below(key, least))
        file.write_text(f"{key} = {below}\n")
        with pytest.raises(ConfigError, match=rf"config\.toml:1: {key}: '.*' .*at least {bound}\b"):
            load()
        file.unlink()
        monkeypatch.setenv(variable_name(key), below.strip('"'))
        with pytest.raises(ConfigError, match=rf"{variable_name(key)} in the environment: .*at least {bound}\b"):
            load()
        monkeypatch.delenv(variable_name(key))
        file.write_text(f"{key} = {format_value(key, 0)}\n")
        if has_zero:
            assert load()[key] == 0
        else:
            with pytest.raises(ConfigError, match=rf"at least {bound}\b"):
                load()
    if most not in (YEARS, SIZES, COUNTS, math.inf):
        file.write_text(f"{key} = {format_value(key, most + 1)}\n")
        with pytest.raises(ConfigError, match=rf"'.*' .*at most {shown(key, most)}\b"):
            load()


def _below(key: str, least: float) -> float:
    """Return the largest value below the least one that can be written."""
    if isinstance(SETTINGS[key].parse, WholeNumber) or SETTINGS[key].parse is parse_size:
        return int(least) - 1
    return round(least - 0.0001, 4)


def test_the_reference_page_names_every_bound() -> None:
    page = Path(__file__).parents[2].joinpath("docs/reference/settings.md").read_text()
    rows = {line.split("`")[1]: line.split(" | ")[1] for line in page.splitlines() if line.startswith("| `")}
    for key, (least, most, has_zero) in BOUNDS.items():
        if SETTINGS[key].parse is parse_money:
            continue
        takes = rows[key].replace("`", "")
        if least:
            zero = f"{shown(key, 0)}, or " if has_zero else ""
            assert f"{zero}at least {shown(key, least)}" in takes, key
        if most not in (YEARS, SIZES, COUNTS, math.inf):
            assert f"at most {shown(key, most)}" in takes, key


def test_a_meaning_explains_zero() -> None:
    """Where 0 is accepted although it is below the least value, people read what 0 does."""
    for key, (_least, _most, has_zero) in BOUNDS.items():
        if has_zero:
            assert f"{shown(key, 0)}" in SETTINGS[key].meaning.replace("`", ""), key
