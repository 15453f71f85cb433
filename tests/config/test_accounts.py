"""Tables of accounts: every mistake on its line, no secret in any message, secrets found when they are needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.base.errors import LaunchError, UsageError
from holdfast.config.layers import Config, merge_layers
from holdfast.config.read_file import read_settings_file
from holdfast.config.report import report_settings
from holdfast.config.tables.accounts import AccountTable, accounts_to_show, holds_secrets
from holdfast.intake.accounts import UserAccounts, account_names, choose_named_account, load_account

SECRET = "sk-very-secret"

GOOD = f"""\
[accounts.claude.work]
config_dir = "~/.claude-work"
base_url = "https://me:{SECRET}@gateway.example"
env = {{ ANTHROPIC_API_KEY = "env:WORK_KEY", OTHER = "{SECRET}" }}

[accounts.claude.spare]
auto = false
[accounts.codex.default]
config_dir = "/srv/codex"
"""

MISTAKES = {
    "no such agent": ("\n[accounts.cluade.work]\n", 2, "there is no agent 'cluade'", "did you mean 'claude'?"),
    "an agent without logins": ("[accounts.command.work]\n", 1, "there is no agent 'command' with accounts", ""),
    "no such key": (
        "[accounts.claude.work]\n\nconfig_dri = '/x'\n",
        3,
        "there is no setting 'accounts.claude.work.config_dri'",
        "did you mean 'accounts.claude.work.config_dir'?",
    ),
    "a bad name": ("[accounts.claude.'a/b']\n", 1, "'a/b' cannot be the name of an account", "letters, digits"),
    "a word of ours": ("[accounts.claude.auto]\n", 1, "'auto' cannot be the name", "Holdfast chooses"),
    "no table": ("accounts.claude.work = 3\n", 1, "'accounts.claude.work' is an account, a table with", "config_dir"),
    "no tables": ("accounts = 3\n", 1, "'accounts' is a section of tables", "cannot be set itself"),
    "no accounts": ("[accounts]\nclaude = 3\n", 2, "'accounts.claude' is a section of accounts", ""),
    "a part of a path": ("[accounts.claude.work]\nconfig_dir = 'x'\n", 2, "'x' is not a whole path", "/ or ~"),
    "no address": (f"[accounts.claude.work]\nbase_url = '{SECRET}'\n", 2, "work.base_url: it is not an address", ""),
    "a login that ps would show": (
        f"[accounts.codex.work]\nbase_url = 'https://me:{SECRET}@x'\n",
        2,
        "work.base_url: it has a login in it, and codex takes its address on its command line",
        "env",
    ),
    "a number": ("[accounts.claude.work]\nenv = { A = 1 }\n", 2, "the value of A is not text", ""),
    "a bad variable": (f"[accounts.claude.work.env]\n'A=B' = '{SECRET}'\n", 1, "'A=B' cannot be the name of", ""),
    "our variable": (f"[accounts.claude.work.env]\nHOLDFAST_X = '{SECRET}'\n", 1, "HOLDFAST_X is a variable of", ""),
    "no variable": ("[accounts.claude.work]\nenv = { A = 'env:' }\n", 2, 'A: after "env:" the name of', ""),
    "no file": ("[accounts.claude.work]\nenv = { A = 'file:x' }\n", 2, 'A: after "file:" a whole path', ""),
    "no flag": ("[accounts.claude.work]\nauto = 'yes'\n", 2, "work.auto: it is neither true nor false", ""),
}


def config_of(path: Path, text: str) -> Config:
    path.write_text(text)
    layer = read_settings_file(str(path), of_repository=False)
    assert layer.problems == []
    return merge_layers([layer])


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_its_line_and_shows_no_secret(tmp_path: Path, name: str) -> None:
    text, line, expected, more = MISTAKES[name]
    (tmp_path / "config.toml").write_text(text)
    layer = read_settings_file(str(tmp_path / "config.toml"), of_repository=False)
    assert [problem.line for problem in layer.problems] == [line]
    said = str(layer.problems[0])
    assert expected in said
    assert more in said
    assert SECRET not in said
    assert layer.accounts == {}


def test_a_repository_sets_no_accounts_trusted_or_not(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text(GOOD)
    layer = read_settings_file(str(tmp_path / "holdfast.toml"), of_repository=True)
    assert [problem.line for problem in layer.problems] == [1]
    assert "never read from a repository's file, trusted or not" in layer.problems[0].text
    assert layer.accounts == {}


def test_tables_are_read_and_secrets_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/tess")
    config = config_of(tmp_path / "config.toml", GOOD)
    assert account_names(config, "claude") == ["default", "work", "spare"]
    assert account_names(config, "codex") == ["default"]
    assert account_names(config, "command") == []
    assert UserAccounts(lambda: config).choosable("claude") == ["default", "work"]
    assert config.accounts["claude"]["work"].config_dir == "/home/tess/.claude-work"
    shown = accounts_to_show(config.accounts, reveal=False)
    assert shown["accounts.claude.work.base_url"] == "https://…@gateway.example"
    assert shown["accounts.claude.work.env"] == {"ANTHROPIC_API_KEY": "env:WORK_KEY", "OTHER": "…"}
    assert shown["accounts.codex.default.config_dir"] == "/srv/codex"
    assert SECRET not in str(shown)
    assert SECRET in str(accounts_to_show(config.accounts, reveal=True))
    assert holds_secrets(config.accounts)
    assert SECRET not in repr(load_account("claude", "work", AccountTable(env={"A": SECRET})))


def test_secrets_are_looked_up_when_they_are_needed(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n")
    table = AccountTable(env={"A": "env:WORK_KEY", "B": f"file:{tmp_path}/key", "C": "plain"})
    found = load_account("claude", "work", table, {"WORK_KEY": "from outside"})
    assert found.env == {"A": "from outside", "B": SECRET, "C": "plain"}
    with pytest.raises(LaunchError, match=r"accounts\.claude\.work\.env\.A names the variable WORK_KEY"):
        load_account("claude", "work", table, {})
    gone = AccountTable(env={"B": f"file:{tmp_path}/gone"})
    with pytest.raises(LaunchError, match="gone: No such file or directory"):
        load_account("claude", "work", gone, {})


def test_which_account_a_new_task_names(tmp_path: Path) -> None:
    config = config_of(tmp_path / "config.toml", GOOD + "[claude]\naccount = 'spare'\n")
    assert choose_named_account(config, "claude", None) == "spare"
    assert choose_named_account(config, "claude", "work") == "work"
    assert choose_named_account(config, "claude", "auto") is None
    assert choose_named_account(config, "codex", None) is None
    assert choose_named_account(config, "command", None) is None
    with pytest.raises(UsageError, match=r"There is no account 'wrok' for claude\. Did you mean 'work'"):
        choose_named_account(config, "claude", "wrok")
    with pytest.raises(UsageError, match="The agent 'command' has no accounts"):
        choose_named_account(config, "command", "work")
    nobody = config_of(tmp_path / "config.toml", "[accounts.claude.default]\nauto = false\n")
    with pytest.raises(UsageError, match="all have `auto = false`"):
        choose_named_account(nobody, "claude", None)
    assert choose_named_account(nobody, "claude", "default") == "default"


def test_a_file_with_secrets_that_others_can_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("HOLDFAST_CONFIG", str(path))
    for text, mode, told in (
        (GOOD, 0o644, True),
        (GOOD, 0o640, True),
        (GOOD, 0o600, False),
        ('[accounts.claude.work]\nenv = { A = "env:B", C = "file:/d" }\n', 0o644, False),
    ):
        path.write_text(text)
        path.chmod(mode)
        warnings = report_settings(None, str(tmp_path)).warnings
        assert [warning for warning in warnings if "can be read by others" in warning] == list(warnings)
        assert bool(warnings) is told
        assert SECRET not in str(warnings)
