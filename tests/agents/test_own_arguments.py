"""`<agent>.args` and `permissions.allow`: what each CLI is given, and what would break our own handling is refused."""

from __future__ import annotations

import json

import pytest

from holdfast.agents.common.cli_agent import CliAgent, find_own_argument
from holdfast.agents.opencode import CONTENT, PROFILE
from holdfast.agents.port import HostFacts, WorkOrder
from holdfast.agents.registry import AGENTS
from holdfast.config.settings import CLI_AGENTS
from holdfast.config.values import is_plain_command

HOST = HostFacts(is_root=False, is_sandboxed=False, has_namespaces=True)
SHARED = {"-c", "--allowedTools", "--allowed-tools", "--allow-tool", "--deny-tool"}  # a user may give more of these


def cli(name: str) -> CliAgent:
    agent = AGENTS[name]
    assert isinstance(agent, CliAgent)
    return agent


def order(mode: str = "edit", session: str | None = None, **options: object) -> WorkOrder:
    given = {"permission": mode, "model": "m", "max_turns": 3, "budget_usd": 1.0, **options}
    return WorkOrder(prompt="x", run_number=1, session_id=session, options=given, new_session="ID", directory="/w")


@pytest.mark.parametrize("name", CLI_AGENTS)
@pytest.mark.parametrize("mode", ["read", "edit", "full"])
def test_every_option_that_we_give_is_refused_to_the_user(name: str, mode: str) -> None:
    agent = cli(name)
    for session in (None, "s"):
        for word in agent.build(order(mode, session)).argv[1:]:
            option = word.partition("=")[0]
            if option.startswith("-") and option not in SHARED and option != "-":
                assert find_own_argument(agent, [option]) == option
                assert find_own_argument(agent, [f"{option}=x"]), "with its value"
    assert find_own_argument(agent, ["say hello"]), "a prompt"
    assert find_own_argument(agent, ["--"]) == "--"


@pytest.mark.parametrize(
    ("name", "words", "refused"),
    [
        ("claude", ["--append-system-prompt", "be kind", "--mcp-config", "x.json"], None),
        ("claude", ["--effort", "high", "--OutputFormat", "json"], "--OutputFormat"),
        ("claude", ["-dp"], "-dp"),
        ("codex", ["-c", "model_reasoning_effort=high"], None),
        ("codex", ["-c", "sandbox_workspace_write.network_access=true"], None),
        ("codex", ["-c", 'sandbox_mode="danger-full-access"'], 'sandbox_mode="danger-full-access"'),
        ("codex", ["--config=approval_policy=never"], "--config=approval_policy=never"),
        ("gemini", ["--outputFormat", "json"], "--outputFormat"),
        ("aider", ["--map-tokens", "1024"], None),
        ("aider", ["--message-fi", "x"], "--message-fi"),
        ("copilot", ["--no-auto-update"], "--no-auto-update"),
    ],
)
def test_what_users_may_add(name: str, words: list[str], refused: str | None) -> None:
    assert find_own_argument(cli(name), words) == refused
    problem = cli(name).problem({"args": words}, HOST)
    assert (problem is None) == (refused is None)
    if problem is not None:
        assert f"{name}.args" in problem
    else:
        argv = list(cli(name).build(order(args=words)).argv)
        assert words in [argv[at : at + len(words)] for at in range(len(argv))]
        assert (argv[-1] == "-") == (name == "codex"), "codex reads standard input by its last argument"


def test_each_cli_is_told_its_own_way() -> None:
    allow = ["make test", "pytest"]
    made = {name: list(cli(name).build(order(allow=allow)).argv) for name in CLI_AGENTS}
    assert {"--allowedTools", "Bash(make test:*)", "Bash(pytest:*)"} <= set(made["claude"])
    for name in ("gemini", "qwen"):
        assert "--allowed-tools=run_shell_command(make test)" in made[name]
    assert {"--allow-tool=shell(make test)", "--allow-tool=shell(make test:*)"} <= set(made["copilot"])
    assert made["codex"] == list(cli("codex").build(order()).argv), "its sandbox runs every command"
    profile = json.loads(cli("opencode").build(order(allow=allow)).env[CONTENT])["agent"][PROFILE]["permission"]
    assert list(profile["bash"].items()) == [
        ("*", "deny"), ("make test", "allow"), ("make test *", "allow"), ("pytest", "allow"), ("pytest *", "allow"),
    ]  # fmt: skip
    problem = cli("aider").problem({"allow": allow, "permission": "edit"}, HOST)
    assert problem is not None
    assert "--gate COMMAND" in problem


@pytest.mark.parametrize("name", CLI_AGENTS)
@pytest.mark.parametrize("mode", ["read", "full"])
def test_other_modes_are_as_they_were(name: str, mode: str) -> None:
    with_list, without = cli(name).build(order(mode, allow=["make test"])), cli(name).build(order(mode))
    assert (with_list.argv, with_list.env) == (without.argv, without.env)


@pytest.mark.parametrize("command", ["make test", "./run.sh", "npm run -s test", "go test ./...", "py.test -k=x"])
def test_plain_commands(command: str) -> None:
    assert is_plain_command(command)


@pytest.mark.parametrize(
    "command", ["", "-x", "make test && rm", "a;b", "a|b", "$(x)", "`x`", "a\nb", "a'b", "a,b", "a*", "a)", "a (b", "ä"]
)
def test_commands_that_a_shell_or_a_cli_would_read_as_more(command: str) -> None:
    assert not is_plain_command(command)
