"""The table of all settings: one row per key, with its default, its parser and its meaning.

The reference page, the file that `init` writes and all checks derive from this table.
"""

from __future__ import annotations

from typing import Any

from holdfast.base.units import parse_duration, parse_size
from holdfast.config.alert_tracker_settings import NOTIFY, TRACKERS, without_address, without_path
from holdfast.config.recovery_settings import RECOVERY
from holdfast.config.values import DANGEROUS as DANGEROUS
from holdfast.config.values import (
    DOWN,
    NEVER,
    UP,
    OneOf,
    WholeNumber,
    parse_age,
    parse_boolean,
    parse_commands,
    parse_pairs,
    parse_program,
    parse_text,
    parse_words,
    variable_patterns,
    write_toml,
)
from holdfast.config.values import OF_THE_SUPERVISOR as OF_THE_SUPERVISOR
from holdfast.config.values import Setting as Setting
from holdfast.core.task_settings import GIB, MIB

# Modules of `agents/` that run a real CLI. This is the only place that registers them (docs/howto/add-an-agent.md).
CLI_AGENTS = (
    "claude",
    "codex",
    "gemini",
    "opencode",
    "qwen",
    "copilot",
    "aider",
)
STRATEGIES = ("worktree", "clone", "container", "directory", "directory:copy", "none")

SETTINGS: dict[str, Setting] = {
    "agents": Setting(
        4,
        WholeNumber(0),
        "How many agents run at once, not counting those of named workers (`[[worker]]`). 0 needs at least one worker.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "agent": Setting("", parse_text, "The default agent, for tasks that do not name one.", untrusted=NEVER),
    "command.argv": Setting([], parse_words, "The command that the `command` agent runs.", user_only=DANGEROUS),
    **{
        key: setting
        for name in CLI_AGENTS
        for key, setting in (
            (
                f"{name}.binary",
                Setting("", parse_program, f"The {name} CLI. Empty: found in PATH.", user_only=DANGEROUS),
            ),
            (
                f"{name}.args",
                Setting(
                    [],
                    parse_words,
                    f"More arguments for the {name} CLI. An argument that Holdfast sets itself is refused.",
                    user_only=DANGEROUS,
                ),
            ),
            (
                f"{name}.model",
                Setting("", parse_text, f"The model of {name} tasks. Empty: the CLI's own choice.", untrusted=NEVER),
            ),
            (
                f"{name}.account",
                Setting(
                    "auto",
                    parse_text,
                    f"The account of {name} tasks (`[accounts.{name}.NAME]`). `auto`: Holdfast chooses one.",
                    user_only=DANGEROUS,
                ),
            ),
        )
    },
    "permissions.mode": Setting(
        "edit",
        OneOf("read", "edit", "full"),
        "What agents may do without asking. `read`: change nothing. `edit`: change files of their workspace. `full`: "
        "everything that you may do.",
        user_only=DANGEROUS,
    ),
    "permissions.allow": Setting(
        [],
        parse_commands,
        'Commands that agents may run without asking in the mode `edit`, with any arguments added: `["make test"]`. '
        "The modes `read` and `full` ignore them.",
        user_only=DANGEROUS,
    ),
    "permissions.sandbox": Setting(
        False,
        parse_boolean,
        "true: this machine is disposable, so agents may have `full` permissions even as root. The variable "
        "IS_SANDBOX=1 does the same.",
        user_only=DANGEROUS,
    ),
    "workspace.strategy": Setting(
        "worktree",
        OneOf(*STRATEGIES),
        "The kind of workspace that agents work in.",
        untrusted=NEVER,
    ),
    "workspace.cleanup_on_complete": Setting(
        True,
        parse_boolean,
        "true: the workspace of a completed task is removed. false: it stays, even after a failure.",
        untrusted=NEVER,
    ),
    "workspace.preserve_on_failure": Setting(
        False,
        parse_boolean,
        "true: the workspace of a failed task is preserved. false: it is removed.",
        untrusted=NEVER,
    ),
    "workspace.worktree.preserve_on_failure": Setting(
        None,
        parse_boolean,
        "The same as `workspace.preserve_on_failure`, for worktrees only. Unset: that setting decides.",
        untrusted=NEVER,
    ),
    "workspace.directory.preserve_on_failure": Setting(
        None,
        parse_boolean,
        "The same as `workspace.preserve_on_failure`, for directories only. Unset: that setting decides.",
        untrusted=NEVER,
    ),
    "workspace.clone.preserve_on_failure": Setting(
        None,
        parse_boolean,
        "The same as `workspace.preserve_on_failure`, for clones only. Unset: that setting decides.",
        untrusted=NEVER,
    ),
    "workspace.container.preserve_on_failure": Setting(
        None,
        parse_boolean,
        "The same as `workspace.preserve_on_failure`, for containers only. Unset: that setting decides.",
        untrusted=NEVER,
    ),
    "workspace.preserve_ttl": Setting(
        7 * 86400.0,
        parse_age,
        "A preserved workspace is salvaged and removed after this long. `forever` keeps it.",
        untrusted=NEVER,
        least=0.001,
    ),
    "workspace.setup": Setting(
        [],
        parse_words,
        "Shell commands that set up a new workspace before its first agent starts.",
        user_only=DANGEROUS,
    ),
    "workspace.setup_timeout": Setting(
        600.0,
        parse_duration,
        "How long each setup or teardown command may take.",
        untrusted=DOWN,
        least=0.1,
    ),
    "workspace.teardown": Setting(
        [], parse_words, "Shell commands that run in a workspace before it is removed.", user_only=DANGEROUS
    ),
    "workspace.copy": Setting(
        [],
        parse_words,
        "Patterns of files that git does not track. They are copied from the checkout into new workspaces.",
        user_only=DANGEROUS,
    ),
    "workspace.commit_leftovers": Setting(
        "all",
        OneOf("all", "tracked", "none"),
        "Which uncommitted changes of a successful agent are committed to its branch.",
        untrusted=NEVER,
    ),
    "gate.command": Setting(
        "",
        parse_text,
        "The command that decides whether work is good, such as `make test`. It checks every task that may change "
        "files, and workflow stages with `gate = true`.",
        user_only=DANGEROUS,
    ),
    "gate.tries": Setting(
        3,
        WholeNumber(1),
        "How often an agent may try until the gate of its task passes. Stages of a workflow have their own `retry`.",
        untrusted=DOWN,
    ),
    "salvage.max_size": Setting(
        512 * MIB,
        parse_size,
        "A workspace with more unsaved bytes than this is preserved instead of salvaged.",
        untrusted=NEVER,
    ),
    "salvage.max_files": Setting(
        50_000,
        WholeNumber(1),
        "A workspace with more unsaved files than this is preserved instead of salvaged.",
        untrusted=NEVER,
    ),
    "salvage.ignored": Setting(
        [],
        parse_words,
        "Files (patterns) that are salvaged although git ignores them.",
        untrusted=NEVER,
    ),
    "salvage.keep": Setting(
        90 * 86400.0,
        parse_age,
        "Salvaged work is deleted after this long. `forever` keeps it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.001,
    ),
    "container.image": Setting("", parse_text, "The image of tasks that work in a container.", user_only=DANGEROUS),
    "container.engine": Setting(
        "", parse_text, "The engine's socket. Empty: $DOCKER_HOST, else the usual paths.", user_only=DANGEROUS
    ),
    "container.network": Setting(
        "bridge",
        parse_text,
        "The container's network: `none`, `bridge`, `host`, or the name of an engine's network.",
        user_only=DANGEROUS,
    ),
    "container.user": Setting(
        "",
        parse_text,
        "UID:GID in the container. Empty: yours, so that root does not own the files.",
        user_only=DANGEROUS,
    ),
    "container.memory_share": Setting(
        80,
        WholeNumber(1),
        "Percent of the machine's memory that a container may use without `limits.memory`. 100: no limit.",
        untrusted=DOWN,
        most=100,
    ),
    "container.read_only": Setting(
        False,
        parse_boolean,
        "true: only the workspace and /tmp can be written in a container. false: the image's files too.",
        untrusted=UP,
    ),
    "disk.floor": Setting(
        1 * GIB,
        parse_size,
        "No agent starts while less disk space than this is free for the home, or for its repository. 0 switches the "
        "check off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "health.max_runtime": Setting(
        3600.0,
        parse_duration,
        "A run is ended after this long.",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.grace": Setting(
        5.0,
        parse_duration,
        "How long a run's process tree has to end after SIGTERM, before SIGKILL.",
        untrusted=DOWN,
    ),
    "health.orphan_grace": Setting(
        120.0,
        parse_duration,
        "A keeper without a supervisor ends its agent after this long.",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.stuck_after": Setting(
        300.0,
        parse_age,
        "A run without any sign of life is stuck after this long. `forever` switches the check off. Unset: 10 m for "
        "CLIs that print an answer only when it is complete (codex, opencode, qwen, copilot, aider).",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.tool_silence": Setting(
        2700.0,
        parse_age,
        "A run whose agent waits for a tool, without any sign of life, is stuck after at most this long.",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.startup_timeout": Setting(
        300.0,
        parse_age,
        "A run that never showed a sign of life is ended after this long.",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.on_stuck": Setting(
        "kill",
        OneOf("kill", "notify"),
        "`kill`: a stuck or looping run is ended. `notify`: only an alert is raised.",
        untrusted=DOWN,
    ),
    "health.loop_steps": Setting(
        50,
        WholeNumber(0),
        "A run loops after this many events without progress. 0 switches the check off.",
        untrusted=DOWN,
        no_limit=0,
    ),
    "health.doomed_after": Setting(
        15.0,
        parse_age,
        "A run that continues after a fatal error is ended after this long. `forever` switches the check off.",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.retry_patience": Setting(
        90.0,
        parse_age,
        "A run that only retries, without progress, is ended after this long. Holdfast waits instead of the agent.",
        untrusted=DOWN,
        least=0.1,
    ),
    "health.claim_grace": Setting(
        30.0,
        parse_duration,
        "How long an agent has to exit after it reported its result.",
        untrusted=DOWN,
    ),
    "health.adaptive_timeout": Setting(
        False,
        parse_boolean,
        "true: the timeout follows the mean of earlier runs of the same kind (`adaptive.percent`, `adaptive.runs`). "
        "false: it is the task's own timeout.",
        untrusted=NEVER,
    ),
    "health.adaptive_floor": Setting(
        600.0,
        parse_duration,
        "An adaptive timeout is never shorter than this.",
        untrusted=DOWN,
        least=0.1,
    ),
    "adaptive.percent": Setting(
        150,
        WholeNumber(100),
        "An adaptive timeout is this many percent of the mean of earlier runs.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "adaptive.runs": Setting(
        5,
        WholeNumber(1),
        "A timeout adapts once this many runs of the same kind have completed.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "monitor.every": Setting(
        30.0,
        parse_duration,
        "Every run is checked at least this often. Changes are noticed at once.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.1,
        most=3600,
    ),
    "monitor.quiet_percent": Setting(
        1,
        WholeNumber(0),
        "A process tree that uses less than this many percent of one core is quiet.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        most=100,
    ),
    "stop.fast_grace": Setting(
        1.0,
        parse_duration,
        "How long a process tree has to end after SIGTERM when it is cancelled, or stopped by `down --now`.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "stop.alarm_after": Setting(
        2.0,
        parse_duration,
        "An alert is raised if any process of a run is still alive this long after its grace.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.1,
    ),
    "processes.cgroup": Setting(
        "auto",
        OneOf("auto", "off"),
        "`auto`: each run has its own cgroup, where this user may create one. `off`: none has.",
        user_only=OF_THE_SUPERVISOR,
    ),
    "limits.memory": Setting(
        0,
        parse_size,
        "Memory of a run's whole process tree. 0: no limit.",
        untrusted=DOWN,
        no_limit=0,
        least=1 * MIB,
        takes_zero=True,
    ),
    "limits.processes": Setting(
        0,
        WholeNumber(0),
        "Processes and threads of a run's process tree. 0: no limit.",
        untrusted=DOWN,
        no_limit=0,
    ),
    "limits.processes_ceiling": Setting(
        8192,
        WholeNumber(0),
        "Processes and threads of a run without `limits.processes`. Enforced by containers and cgroup v2. 0: no limit.",
        untrusted=DOWN,
        no_limit=0,
    ),
    "limits.cpu_weight": Setting(
        0,
        WholeNumber(0),
        "Share of the CPU under contention, 1 to 10000. 0 leaves it at 100.",
        untrusted=NEVER,
        most=10_000,
    ),
    "limits.output": Setting(
        2 * GIB,
        parse_size,
        "A run that writes more output than this is ended. 0: no limit.",
        untrusted=DOWN,
        no_limit=0,
        least=4096,
        takes_zero=True,
    ),
    "limits.output_kept": Setting(
        64 * MIB,
        parse_size,
        "How much of the end of each output file stays on disk, in addition to its first MiB.",
        untrusted=NEVER,
        least=4096,
    ),
    "pressure.min_memory": Setting(
        256 * MIB,
        parse_size,
        "No agent starts while less memory than this is available. 0 switches the check off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "pressure.max_load": Setting(
        0,
        WholeNumber(0),
        "No agent starts while the load average per core is above this. 0 switches the check off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "pressure.max_stall": Setting(
        0,
        WholeNumber(0),
        "No agent starts while processes waited for memory in more than this percentage of the last ten seconds "
        "(`some avg10` of /proc/pressure/memory). 0 switches the check off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        most=100,
    ),
    **RECOVERY,
    **TRACKERS,
    **NOTIFY,
    "retention.events": Setting(
        30 * 86400.0,
        parse_age,
        "Events of finished tasks are deleted after this long. `forever` keeps them. How a task ended stays recorded.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.001,
    ),
    "retention.runs": Setting(
        14 * 86400.0,
        parse_age,
        "Run directories (agents' output) of finished tasks are deleted after this long.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.001,
    ),
    "retention.tasks": Setting(
        90 * 86400.0,
        parse_age,
        "Finished tasks without a branch, saved work or a workspace are deleted after this long.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=0.001,
    ),
    "retention.log_size": Setting(
        10 * 1024 * 1024,
        parse_size,
        "`supervisor.log` is renamed when it is larger than this. Three old logs are kept.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
        least=1024,
    ),
    "top.bell": Setting(
        False,
        parse_boolean,
        "true: `holdfast top` rings the terminal's bell once per critical alert. false: it does not.",
        untrusted=NEVER,
    ),
    "env.pass": Setting(
        [], variable_patterns, "More environment variables that agents may see (patterns).", user_only=DANGEROUS
    ),
    "env.set": Setting({}, parse_pairs, "Environment variables set for agents.", user_only=DANGEROUS),
}

SECTIONS = frozenset(key[:cut] for key in SETTINGS for cut in range(len(key)) if key[cut] == ".")


def variable_name(key: str) -> str:
    """Return the name of a setting's environment variable: HOLDFAST_WORKSPACE_STRATEGY for workspace.strategy."""
    return f"HOLDFAST_{key.replace('.', '_').upper()}"


def mask_secrets(key: str, value: Any) -> Any:
    """Return the part of a value that logs and screens may show, without its secrets."""
    if key == "env.set":
        return dict.fromkeys(value, "…")
    if key == "notify.urls":
        return [without_address(place) for place in value]
    if key == "notify.command":
        return [*value[:1], *["…"][: len(value) - 1]]  # arguments often hold a token, or an address with one
    return without_path(value) if key == "notify.webhook" else value


def format_value(key: str, value: Any) -> str:
    """Return a value as TOML, as a file of settings has it."""
    return "unset" if value is None else write_toml(SETTINGS[key].parse, value)
