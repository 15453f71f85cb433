"""A repository's file that is not trusted can only be stricter than the user's own settings, for every setting."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import pytest

from holdfast.base.errors import Refused
from holdfast.base.units import parse_duration, parse_size
from holdfast.config import SETTINGS, Config, ConfigError, load, trust
from holdfast.config.per_agent import KEYS as PER_AGENT_KEYS
from holdfast.config.values import (
    DOWN,
    NEVER,
    UP,
    OneOf,
    Setting,
    WholeNumber,
    parse_age,
    parse_boolean,
    parse_text,
    parse_words,
    write_toml,
)

DECLARED = {key: setting for key, setting in SETTINGS.items() if not setting.user_only}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "repo").mkdir()


def loaded(tmp_path: Path, users: str, repos: str) -> Config:
    (tmp_path / "config.toml").write_text(users)
    (tmp_path / "repo" / "holdfast.toml").write_text(repos)
    return load(repo=str(tmp_path / "repo"))


def written(key: str, value: Any) -> str:
    return f"{key} = {write_toml(SETTINGS[key].parse, value)}\n"


def some_values(setting: Setting) -> list[Any]:
    """Return different values of a setting, the strictest one first where one is stricter."""
    parse = setting.parse
    if isinstance(parse, OneOf):
        return list(parse.choices)
    if parse is parse_boolean:
        return [False, True]
    if isinstance(parse, WholeNumber) or parse is parse_size:
        least = parse.least if isinstance(parse, WholeNumber) else int(setting.least)
        return [least + 2, least + 5, least + 9 if setting.no_limit is None else setting.no_limit]
    if parse in (parse_duration, parse_age):
        return [2.0, 5.0, math.inf if parse is parse_age else 9.0]
    if parse is parse_text:
        return ["", "a", "b"]
    assert parse is parse_words, "a new kind of value: give examples of it here"
    return [[], ["a"], ["b"]]


def may_apply(rule: str, values: list[Any], own: Any, asked: Any) -> bool:
    distance = values.index(asked) - values.index(own)
    return distance == 0 or (rule == DOWN and distance < 0) or (rule == UP and distance > 0)


def test_every_setting_is_declared() -> None:
    """A new setting declares what a file that is not trusted may do with it. Without a word it may do nothing."""
    assert {key for key, setting in DECLARED.items() if setting.untrusted not in (NEVER, DOWN, UP)} == set()
    assert {key for key, setting in SETTINGS.items() if setting.user_only and setting.untrusted} == set()
    assert Setting("", parse_text, "new").untrusted not in (DOWN, UP)


@pytest.mark.parametrize("key", DECLARED)
def test_an_untrusted_file_can_only_tighten(tmp_path: Path, key: str) -> None:
    """Security F1, F7. Looser or other: the user's value stays, and people are told. Stricter: applied if declared."""
    values, rule = some_values(SETTINGS[key]), SETTINGS[key].untrusted
    for own, asked in itertools.product(values, values):
        may = may_apply(rule, values, own, asked)
        for place in (key, f"per_agent.claude.{key}") if key in PER_AGENT_KEYS else (key,):
            settings = loaded(tmp_path, written(key, own), place.removesuffix(key) + written(key, asked))
            assert settings.for_agent("claude")[key] == (asked if may else own), (place, own, asked)
            told = [str(each) for each in settings.not_applied]
            assert len(told) == (not may), told
            if told:
                assert told[0].startswith(f"{tmp_path / 'repo' / 'holdfast.toml'}:1: {place} = ")
                assert f"`holdfast trust {tmp_path / 'repo'}`" in told[0]


@pytest.mark.parametrize("key", PER_AGENT_KEYS)
def test_a_users_value_for_one_agent_is_a_bound_too(tmp_path: Path, key: str) -> None:
    """A repository's value for all agents would also replace the user's stricter value for one agent."""
    values, rule = some_values(SETTINGS[key]), SETTINGS[key].untrusted
    for own, asked in itertools.product(values, values):
        mine = written(key, values[-1]) + f"per_agent.claude.{written(key, own)}"
        for place in (key, f"per_agent.claude.{key}"):
            claude = loaded(tmp_path, mine, place.removesuffix(key) + written(key, asked)).for_agent("claude")[key]
            assert claude == (asked if may_apply(rule, values, own, asked) else own), (place, own, asked)


@pytest.mark.parametrize("key", [key for key, setting in SETTINGS.items() if setting.user_only])
def test_other_settings_are_refused_or_kept(tmp_path: Path, key: str) -> None:
    """Keys that could run commands are refused. Their empty values, which would undo the user's, are not applied."""
    setting = SETTINGS[key]
    if not setting.needs_trust:
        with pytest.raises(ConfigError, match=r"not read from a repository's file"):
            loaded(tmp_path, "", written(key, setting.default))
        return
    mine: dict[Any, Any] = {
        "permissions.mode": "read",
        "permissions.sandbox": True,
        "tracker.kind": "builtin",
        "env.set": {"A": "1"},
    }
    own = mine.get(key, ["x"] if isinstance(setting.default, list) else "x")
    empty = False if key == "permissions.sandbox" else type(own)()
    if not isinstance(setting.parse, OneOf):
        settings = loaded(tmp_path, written(key, own), written(key, empty))
        assert settings[key] == own
        assert [each.key for each in settings.not_applied] == [key]
    other = {"permissions.mode": "full", "tracker.kind": "beads"}.get(key, own)
    with pytest.raises(Refused, match=r"its current content is not trusted"):
        loaded(tmp_path, "", written(key, other))


def test_trust_is_for_each_value(tmp_path: Path) -> None:
    """A trusted value applies until it changes. Another value of the same file does not matter."""
    repo = str(tmp_path / "repo")
    asked = {"health.grace": 60.0, "workspace.strategy": "none"}
    trust.record_trust(str(tmp_path / "home"), repo, {}, by="ann", at=1.0, settings=asked)
    text = "".join(written(key, value) for key, value in asked.items())
    assert loaded(tmp_path, "", text)["workspace.strategy"] == "none"
    settings = loaded(tmp_path, "", text.replace("none", "directory"))
    assert (settings["workspace.strategy"], settings["health.grace"]) == ("worktree", 60.0)
    trust.revoke_trust(str(tmp_path / "home"), repo)
    assert loaded(tmp_path, "", text)["workspace.strategy"] == "worktree"


def test_a_flag_or_variable_is_not_a_conflict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORKSPACE_STRATEGY", "directory")
    settings = loaded(tmp_path, "", 'workspace.strategy = "none"\n')
    assert (settings["workspace.strategy"], settings.not_applied) == ("directory", ())


STAGE = '[[workflow.own.stage]]\nname = "build"\n'


@pytest.mark.parametrize(
    "line",
    [
        'agent = "codex"',
        'model = "big"',
        'timeout = "1000h"',
        "retry = 50",
        'gate = true\ngate_timeout = "9h"',
        'members = [{ name = "a", agent = "codex" }]',
    ],
)
def test_a_repositorys_workflow_may_not_loosen(tmp_path: Path, line: str) -> None:
    settings = loaded(tmp_path, "", f"{STAGE}{line}\n")
    assert settings.workflows == {}
    assert [each.workflow for each in settings.not_applied] == ["own"]
    assert "own" in loaded(tmp_path, "", f"{STAGE}timeout = '5m'\nretry = 1\n").workflows


@pytest.mark.parametrize("name", ["safe", "plan-build-review"])
def test_a_workflow_of_the_user_is_the_users(tmp_path: Path, name: str) -> None:
    """Security F7: neither the user's workflow nor a built-in one can be replaced by its name, trusted or not."""
    mine = '[[workflow.safe.stage]]\nname = "one"\napproval = true\ngate = "false"\n'
    settings = loaded(tmp_path, mine, f'[[workflow.{name}.stage]]\nname = "other"\n')
    assert [stage.name for stage in settings.workflows["safe"].stages] == ["one"]
    assert list(settings.workflows) == ["safe"]
    assert "is kept" in str(settings.not_applied[0])
