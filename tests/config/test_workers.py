"""Tables of workers: every mistake on its line; shown, with their origin; never from a repository's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.config.layers import load, merge_layers
from holdfast.config.problems import ConfigError
from holdfast.config.read_file import read_settings_file
from holdfast.config.report import report_settings
from holdfast.config.tables.workers import WorkerTable, workers_to_show

GOOD = """\
agents = 0

[accounts.claude.work]
config_dir = "/srv/claude"

[[worker]]
name = "web"
agent = "claude"
account = "work"
labels = { area = "web", size = "small" }
restart = true

[[worker]]
name = "any-1"

[worker.labels]
area = "docs"
"""

MISTAKES = {
    "no list": ("worker = 3\n", 1, "'worker' is a list of workers", "[[worker]]"),
    "one table": ("[worker]\nname = 'web'\n", 1, "'worker' is a list of workers", "[[worker]]"),
    "no name": ("[[worker]]\nname = 'a'\n[[worker]]\nagent = 'claude'\n", 3, "a worker needs a name", ""),
    "an odd name": ("[[worker]]\nname = 'a b'\n", 2, "'a b' cannot be the name of a worker", "letters, digits"),
    "the same name": (
        "[[worker]]\nname = 'a'\n[[worker]]\n\nname = 'a'\n",
        5,
        "there is a worker 'a' above already",
        "",
    ),
    "no such key": (
        "[[worker]]\nname = 'a'\n[[worker]]\nname = 'b'\nlables = {}\n",
        5,
        "there is no setting 'worker.lables'",
        "did you mean 'worker.labels'?",
    ),
    "no such agent": ("[[worker]]\nname = 'a'\nagent = 'cluade'\n", 3, "there is no agent 'cluade'", "'claude'?"),
    "no such account": (
        "[accounts.claude.work]\n[[worker]]\nname = 'a'\nagent = 'claude'\naccount = 'wrok'\n",
        5,
        "there is no account 'wrok' for claude (known: default, work)",
        "did you mean 'work'?",
    ),
    "an account of nobody": ("[[worker]]\nname = 'a'\naccount = 'work'\n", 3, "an account belongs to one agent", ""),
    "an agent without logins": (
        "[[worker]]\nname = 'a'\nagent = 'command'\naccount = 'x'\n",
        4,
        "the agent 'command' has no accounts",
        "",
    ),
    "a label that is no text": ("[[worker]]\nname = 'a'\nlabels = { n = 1 }\n", 3, "the value of 'n' is not text", ""),
    "no labels": ("[[worker]]\nname = 'a'\nlabels = ['x']\n", 3, "worker.labels: it is not a table", ""),
    "no flag": ("[[worker]]\nname = 'a'\nrestart = 'yes'\n", 3, "worker.restart: it is neither true nor false", ""),
    "inline": ("x = 1\nworker = [{ name = 'a', agnet = 'claude' }]\n", 2, "'worker.agnet'", "'worker.agent'?"),
    "too many": ("".join(f"[[worker]]\nname = 'w{n}'\n" for n in range(257)), 1, "there are 257 workers", "256"),
}


def test_workers_are_read_and_shown_with_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R-CRASH-05: named workers are in the user's settings."""
    file = tmp_path / "config.toml"
    file.write_text(GOOD)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    config = load()
    assert config.workers == (
        WorkerTable(name="web", agent="claude", account="work", labels={"area": "web", "size": "small"}, restart=True),
        WorkerTable(name="any-1", labels={"area": "docs"}),
    )
    assert config["agents"] == 0
    assert config.with_values({"agents": 3}).workers == config.workers
    assert config.origins["worker.web"] == f"{file}:6"
    assert config.origins["worker.any-1"] == f"{file}:13"
    assert workers_to_show(config.workers) == {
        "worker.web.agent": "claude",
        "worker.web.account": "work",
        "worker.web.labels": {"area": "web", "size": "small"},
        "worker.web.restart": True,
        "worker.any-1.agent": "any",
        "worker.any-1.labels": {"area": "docs"},
    }


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_on_its_line(name: str, tmp_path: Path) -> None:
    text, line, first, second = MISTAKES[name]
    file = tmp_path / "config.toml"
    file.write_text(text)
    layer = read_settings_file(str(file), of_repository=False)
    problem = next(problem for problem in layer.problems if "worker" in problem.text)
    assert problem.line == line
    assert first in problem.text
    assert second in problem.text
    assert len(merge_layers([layer]).workers) == text.count("[[worker]]") - 1 or name in (
        "no list",
        "one table",
        "too many",
        "inline",
    )


def test_a_repository_defines_no_workers(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text("agent = 'claude'\n[[worker]]\nname = 'mine'\n")
    layer = read_settings_file(str(file), of_repository=True)
    assert [(problem.line, "not read from a repository's file" in problem.text) for problem in layer.problems] == [
        (2, True)
    ]
    assert merge_layers([layer]).workers == ()


def test_without_workers_and_agents_nothing_would_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# nobody\nagents = 0\n")
    monkeypatch.setenv("HOLDFAST_CONFIG", str(file))
    with pytest.raises(ConfigError, match=r"config.toml:2: agents: '0' agents and no \[\[worker\]\]"):
        load()
    assert [problem.line for problem in report_settings(None, str(tmp_path)).problems] == [2]
    with pytest.raises(ConfigError, match=r"--agents: "):
        load(flags={"agents": 0})
    file.write_text("agents = 0\n[[worker]]\nname = 'web'\n")
    assert load()["agents"] == 0
