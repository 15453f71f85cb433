"""Claude Code: `claude -p --output-format stream-json`, the prompt on standard input.

Seen with 2.1.325:
- `read` is its plan mode, `edit` accepts edits of files and simple commands on them (touch, mkdir; the rest is refused
  unless its own settings allow it), `full` skips its permissions. It refuses the latter to root, unless `IS_SANDBOX=1`
  is set: a container as workspace or `permissions.sandbox` sets it.
- Unattended it asks nobody about a repository: the hooks of its `.claude/settings.json` and the servers of its
  `.mcp.json` are started in every mode, `read` too.
- By itself it tries for three minutes when its provider fails (11 requests); with three retries it takes about ten
  seconds. Retry-After of more than a minute makes it give up at once.
- It cannot be made to notice an answer that never comes: its watchdogs for streams had no effect below a minute. The
  health service does (`health.stuck_after`).
- With a login of a plan, a limit comes with its reset time to the second; with an API key it looks like any other 429.
- After SIGINT it exits with 0; after errors of its provider it says `"subtype":"success"` with `"is_error":true`.
- `total_cost_usd` and `modelUsage` go on counting when a session is continued, `model_usage_since_last_result` starts
  anew. A run that was cut off has told its tokens, and no money.
- While its model thinks or writes it says nothing, however long that takes, unless it is asked for pieces of messages.
  It is: they tell work from a hang, and are shown to nobody.
- A cut stream is asked for again in one piece, so the run goes on.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.agents.claude import parse
from holdfast.agents.common.cli_agent import Capabilities, CliAgent, Login, option, permission, permission_of
from holdfast.agents.port import Permission, Surroundings, WorkOrder

_MODES = {
    Permission.READ: ("--permission-mode", "plan"),
    Permission.EDIT: ("--permission-mode", "acceptEdits"),
    Permission.FULL: ("--dangerously-skip-permissions",),
}
_TAMED = {
    # A short hiccup is its own to bridge; anything longer is the supervisor's, for all agents of an account together.
    "CLAUDE_CODE_MAX_RETRIES": "3",
    # Until the headers of an answer. A streamed one sends them at once, but where the stream broke it asks for the
    # whole answer in one piece, and 32,000 tokens take ten minutes. Silence is cut off sooner: health.stuck_after.
    "API_TIMEOUT_MS": "600000",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
_LOGIN = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")
_PROVIDERS = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")


def _arguments(order: WorkOrder) -> list[str]:
    # With pieces of messages: a long answer would be silent for minutes, as an answer that never comes is.
    given = ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]
    given += _MODES[permission(order)]
    given += ["--resume", order.session_id] if order.session_id is not None else ["--session-id", order.new_session]
    for flag, name in (("--model", "model"), ("--max-budget-usd", "budget_usd"), ("--max-turns", "max_turns")):
        if (value := option(order, name)) is not None:
            given += [flag, value]
    return given


def _environment(order: WorkOrder) -> dict[str, str]:
    env = dict(_TAMED)
    if permission(order) is Permission.FULL and order.surroundings.is_sandboxed:
        env["IS_SANDBOX"] = "1"  # its own word for it: without, it refuses this mode to root
    if order.account.config_dir is not None:
        env["CLAUDE_CONFIG_DIR"] = order.account.config_dir
    if order.account.base_url is not None:
        env["ANTHROPIC_BASE_URL"] = order.account.base_url
    return env


def _refusal(options: Mapping[str, object], surroundings: Surroundings) -> str | None:
    if permission_of(options) is not Permission.FULL or not surroundings.is_root or surroundings.is_sandboxed:
        return None
    return (
        "Claude Code refuses `full` permissions to root. Run Holdfast as another user, give the task a container as "
        "its workspace (--workspace container), choose --permission edit, or set `permissions.sandbox = true` if this "
        "machine is a throw-away"
    )


def _transcript(session: str, config: str, _workspace: str) -> str:
    return f"{config}/projects/*/{session}.jsonl"  # the middle is made of the directory, and cut when that is long


CLAUDE = CliAgent(
    name="claude",
    served_by="anthropic",
    title="Claude Code",
    binary="claude",
    tested=("2.1.325", "2.1.325"),
    arguments=_arguments,
    parse_line=parse,
    environment=_environment,
    refusal=_refusal,
    passes=(
        *_LOGIN,
        *_PROVIDERS,
        "ANTHROPIC_*",
        "CLAUDE_CONFIG_DIR",
        "CLAUDE_CODE_SKIP_*_AUTH",
        "CLOUD_ML_REGION",
        "VERTEX_REGION_*",
        "AWS_REGION",
        "AWS_PROFILE",
        "AWS_BEARER_TOKEN_BEDROCK",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "NODE_EXTRA_CA_CERTS",
    ),
    capabilities=Capabilities(preassigned_session=True, cost=True, reset_time=True, budget=True, turns=True),
    login=Login(
        config_variable="CLAUDE_CONFIG_DIR",
        config_directory="~/.claude",
        files=("{config}/.credentials.json",),
        variables=(*_LOGIN, *_PROVIDERS),
        command="claude auth login",
    ),
    by_hand=("--resume", "{session}"),
    transcript=_transcript,
    reads_errors=True,
)
