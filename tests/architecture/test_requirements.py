"""Every requirement has a test, every number of a requirement a setting, and every proof a make target that runs it.

docs/requirements-list.md has the ids and their sentences. A test names the ids that it holds in its docstring."""

from __future__ import annotations

import functools
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.architecture.left_out import find_left_out

from holdfast.config import SETTINGS, load
from holdfast.core.cleanup.sweep_report import backlog_warning
from holdfast.core.dispatch.holds import HoldRules
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.supervisor.settings import SupervisorSettings, Thresholds
from holdfast.wiring.reload import apply_settings

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "generate_docs.py"))
sentences = cast("Callable[[], dict[str, str]]", SCRIPT["requirement_sentences"])
in_tests = cast("Callable[[], dict[str, set[str]]]", SCRIPT["requirements_in_tests"])

# Switches that prove nothing more: they choose or replay a case, or name a place.
AIDS = {
    "HOLDFAST_GIT_CACHE": "where the newest git is built",
    "HOLDFAST_HOME": "the home of a test's own process",
    "HOLDFAST_WALK": "replays one await of a walk",
    "HOLDFAST_WALK_MOST": "limits a walk",
    "HOLDFAST_WALK_SEED": "chooses the awaits of a walk",
    "HOLDFAST_SEED": "chooses the sample of the matrix",
    "HOLDFAST_STORM_SEED": "chooses the storm",
    "HOLDFAST_TEST_SOAK_SEED": "chooses the soak",
    "HOLDFAST_FUZZ_CASE": "replays one input",
    "HOLDFAST_CHECKPOINT_FUZZ_ONLY": "replays one case",
    "HOLDFAST_TREE_FUZZ_ONLY": "replays one case",
    "HOLDFAST_AGENTS_CACHE": "names a directory",
    "HOLDFAST_TEST_COLD": "starts a new interpreter for each command, for coverage",
}
# The numbers of the requirements, and the settings that have them as defaults. `off` and unit are the setting's.
NUMBERS = {
    "R-CLEAN-07": {"workspace.preserve_ttl": 7 * 86400},
    "R-RES-03": {"resume.max_attempts": 3},
    "R-RES-11": {"checkpoint.every": 30},
    "R-TERM-03": {"monitor.every": 30},
    "R-TERM-04": {"health.stuck_after": 300, "health.tool_silence": 2700, "monitor.quiet_percent": 1},
    "R-TERM-05": {"health.max_runtime": 3600},
    "R-TERM-06": {"health.grace": 5, "stop.fast_grace": 1, "stop.alarm_after": 2},
    "R-TERM-11": {"retry.base": 1, "retry.max": 3, "retry.max_delay": 300, "outage.max": 6 * 3600},
    "R-TERM-13": {"adaptive.percent": 150, "adaptive.runs": 5, "health.adaptive_floor": 600},
    "R-TREE-08": {"sweep.warn_above": 10, "sweep.slow_above": 100},
    "R-CRON-05": {"stage.collect_for": 10},
    "R-CRASH-04": {"crash.max_in_window": 3, "crash.window": 600},
    "R-CRASH-07": {
        "mass_death.agents": 5,
        "mass_death.percent": 50,
        "mass_death.window": 30,
        "mass_death.hold": 300,
    },
    "R-CRASH-08": {"tracker.timeout": 10, "tracker.max_delay": 300},
}
SWITCH = re.compile(r"""environ\.get\(\s*"(HOLDFAST_\w+)"|"(HOLDFAST_\w+)" (?:not )?in os\.environ""")


def test_every_requirement_has_a_test_and_every_named_one_is_in_the_list() -> None:
    """A requirement without a test, and an id that means nothing, are both found here."""
    assert set(sentences()) == set(in_tests())
    assert len(sentences()) >= 71


def test_every_requirement_has_a_test_that_make_test_plays() -> None:
    """A docstring alone is no proof: a test that only `make test-all` or `test-strict` plays does not count."""
    left_out = functools.cache(lambda path: find_left_out((ROOT / path).read_text(encoding="utf-8")))
    held = {
        requirement
        for requirement, tests in in_tests().items()
        for path, _, name in (test.partition("::") for test in tests)
        if name.startswith("test_") and name not in left_out(path)
    }
    assert set(sentences()) - held == set()


def test_tests_that_are_left_out_are_seen() -> None:
    source = """
MINUTES = os.environ.get("HOLDFAST_TEST_SOAK")
needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="not here")

@pytest.mark.skipif(not MINUTES, reason="takes minutes")
def test_switch(): ...

@pytest.mark.skipif("HOLDFAST_TEST_OUTAGE" not in os.environ, reason="fifty tasks")
async def test_variable(): ...

@pytest.mark.parametrize("name", sampled(NAMES, keep=0))
def test_no_case(name): ...

@needs_tmux
@pytest.mark.parametrize("name", sampled(NAMES, keep=2))
def test_played(name):
    leave_out(name == "x")

class TestAll:
    def test_body(self):
        \"\"\"R-X.\"\"\"
        leave_out(True)

    def test_strict(self):
        if not STRICT:
            pytest.skip("the number needs a quiet machine")

    def test_also_played(self):
        patience = 1 if STRICT else 60
"""
    assert find_left_out(source) == {"test_switch", "test_variable", "test_no_case", "test_body", "test_strict"}
    assert find_left_out(f"pytestmark = pytest.mark.skipif('HOLDFAST_X' not in os.environ, reason='')\n{source}") >= {
        "test_played",
        "test_also_played",
    }


def test_every_switch_that_a_test_reads_is_set_by_a_make_target() -> None:
    """A proof that no target runs is not a proof (the audit found five)."""
    read = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for found in SWITCH.findall(path.read_text(encoding="utf-8"))
        for name in found
        if name
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sorted(name for name in read - set(AIDS) if f"{name}=" not in makefile) == []
    assert set(AIDS) <= read, "an aid that no test reads any more"


@pytest.mark.parametrize("requirement", NUMBERS)
def test_the_numbers_of_a_requirement_are_settings_with_that_default(requirement: str) -> None:
    """R-TERM-06, R-TREE-08, R-CRON-05: a default that differs from its requirement is found without any clock."""
    assert {key: SETTINGS[key].default for key in NUMBERS[requirement]} == NUMBERS[requirement]
    assert requirement in sentences()


def test_the_defaults_of_the_settings_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Supervisors in tests are made without settings: they have the same numbers as the product."""
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "none.toml"))
    settings = load()
    assert apply_settings(SupervisorSettings(agents=1), settings).thresholds == Thresholds()
    assert settings["retry.max_delay"] == RetryLimits().backoff_cap
    assert settings["mass_death.percent"] == 100 * HoldRules().death_share


def test_the_warnings_of_a_backlog() -> None:
    """R-TREE-08: more than 10 are a crash storm, more than 100 also a slow start."""
    numbers = Thresholds()
    told = {count: backlog_warning(count, numbers.backlog_many, numbers.backlog_slow) for count in (10, 11, 100, 101)}
    assert told[10] == ""
    assert ["storm" in told[count] for count in (11, 100, 101)] == [True] * 3
    assert ["slow" in told[count] for count in (11, 100, 101)] == [False, False, True]
