"""`[budget.labels."team=web"]`: read, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

from holdfast.config.layers import merge_layers
from holdfast.config.read_file import read_settings_file
from holdfast.config.retry_budgets import caps_from_settings
from holdfast.core.dispatch.spending_caps import LabelCap, SpendingCap


def test_a_label_has_a_day_and_a_total(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[budget]\nday_usd = "$20"\ntask_tokens = 5_000\n[budget.labels."team=web"]\nday_usd = 2.5\ntotal_tokens = 9\n'
    )
    layer = read_settings_file(str(file), of_repository=False)
    assert layer.problems == []
    settings = merge_layers([layer])
    assert (settings["budget.day_usd"], settings["budget.task_tokens"], settings["budget.task_usd"]) == (
        20.0,
        5000,
        0.0,
    )
    caps = caps_from_settings(settings)
    assert caps.day == SpendingCap(usd=20.0)
    assert caps.labels == {"team=web": LabelCap(day=SpendingCap(usd=2.5), total=SpendingCap(tokens=9))}
    assert settings.origins["budget.labels.team=web"].endswith("config.toml:4")


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        '[budget.labels."team=web"]\nday_usd = -1\nday_use = 2\n'
        '[budget.labels.team]\nday_usd = 1\n[budget.labels]\n"a=b" = 3\n[budget]\nday_tokens = "many"\n'
    )
    found = {(problem.line, problem.text) for problem in read_settings_file(str(file), of_repository=False).problems}
    told = dict(found)
    assert "is not an amount of dollars" in told[2]
    assert "did you mean 'budget.labels.team=web.day_usd'?" in told[3]
    assert "'team' is not a label: write it KEY=VALUE" in told[4]
    assert "is a label's budget, a table with day_usd" in told[7]
    assert "day_tokens" in told[9]
    assert len(found) == 5


def test_a_repository_has_no_say_in_your_money(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('[budget]\ntask_usd = 100\n[budget.labels."team=web"]\nday_usd = 1\n')
    problems = read_settings_file(str(file), of_repository=True).problems
    assert sorted(problem.line or 0 for problem in problems) == [2, 3]
    assert all("controls your money" in problem.text for problem in problems)
