"""Every setting: one row with its default, parser and meaning. Pages, files and checks derive from the table."""

from __future__ import annotations

from typing import Any

from holdfast.base.units import parse_duration, parse_size
from holdfast.config.recovery_settings import RECOVERY
from holdfast.config.service_settings import NOTIFY, TRACKERS, without_path
from holdfast.config.setting_type import DANGEROUS as DANGEROUS
from holdfast.config.setting_type import OF_THE_SUPERVISOR as OF_THE_SUPERVISOR
from holdfast.config.setting_type import Setting as Setting
from holdfast.config.values import age, boolean, count, one_of, pairs, program, text, variable_patterns, words, write
from holdfast.core.task_settings import GIB, MIB

# The modules of `agents/` that are real CLIs: the one place where they are registered (docs/howto/add-an-agent.md).
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
        count(0),
        "How many agents run at once, beside those of named workers (`[[worker]]`); 0 needs at least one worker.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "agent": Setting("", text, "The agent of tasks that name none."),
    "command.argv": Setting([], words, "The command that the `command` agent runs.", user_only=DANGEROUS),
    **{
        key: setting
        for name in CLI_AGENTS
        for key, setting in (
            (f"{name}.binary", Setting("", program, f"The {name} CLI; empty: found in PATH.", user_only=DANGEROUS)),
            (f"{name}.model", Setting("", text, f"The model of {name} tasks; empty: the CLI's own choice.")),
            (
                f"{name}.account",
                Setting(
                    "auto",
                    text,
                    f"The account of {name} tasks (`[accounts.{name}.NAME]`); `auto`: Holdfast chooses one.",
                    user_only=DANGEROUS,
                ),
            ),
        )
    },
    "permissions.mode": Setting(
        "edit",
        one_of("read", "edit", "full"),
        "What agents may do unasked: `read`, `edit` files of their workspace, or `full`: everything that you may do.",
        user_only=DANGEROUS,
    ),
    "permissions.sandbox": Setting(
        False,
        boolean,
        "This machine is a throw-away: agents may have `full` permissions even as root. So says IS_SANDBOX=1, too.",
        user_only=DANGEROUS,
    ),
    "workspace.strategy": Setting("worktree", one_of(*STRATEGIES), "Where agents work."),
    "workspace.cleanup_on_complete": Setting(True, boolean, "Clean the workspace of a completed task."),
    "workspace.preserve_on_failure": Setting(False, boolean, "Keep the workspace of a failed task."),
    "workspace.worktree.preserve_on_failure": Setting(None, boolean, "The same, for worktrees only."),
    "workspace.directory.preserve_on_failure": Setting(None, boolean, "The same, for directories only."),
    "workspace.clone.preserve_on_failure": Setting(None, boolean, "The same, for clones only."),
    "workspace.container.preserve_on_failure": Setting(None, boolean, "The same, for containers only."),
    "workspace.preserve_ttl": Setting(
        7 * 86400.0, age, "A preserved workspace is salvaged and removed after this long; `forever` keeps it."
    ),
    "workspace.setup": Setting(
        [], words, "Shell commands that furnish a new workspace before its first agent.", user_only=DANGEROUS
    ),
    "workspace.setup_timeout": Setting(600.0, parse_duration, "How long each command of set-up or teardown may take."),
    "workspace.teardown": Setting(
        [], words, "Shell commands that run in a workspace before it is put away.", user_only=DANGEROUS
    ),
    "workspace.copy": Setting(
        [], words, "Files of the checkout that git does not carry (patterns), copied in.", user_only=DANGEROUS
    ),
    "workspace.commit_leftovers": Setting(
        "all",
        one_of("all", "tracked", "none"),
        "What a successful agent left uncommitted goes to its branch.",
    ),
    "gate.command": Setting(
        "",
        text,
        "The command that decides whether work is good, such as `make test`: of workflows' stages with `gate = true`.",
        user_only=DANGEROUS,
    ),
    "salvage.max_size": Setting(
        512 * MIB, parse_size, "A workspace with more unsaved bytes than this is preserved instead of salvaged."
    ),
    "salvage.max_files": Setting(50_000, count(1), "The same, for the number of unsaved files."),
    "salvage.ignored": Setting([], words, "Ignored files (patterns) that are salvaged all the same."),
    "salvage.keep": Setting(
        90 * 86400.0,
        age,
        "Salvaged work is dropped after this long; `forever` keeps it.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "container.image": Setting("", text, "The image of tasks that work in a container.", user_only=DANGEROUS),
    "container.engine": Setting(
        "", text, "The engine's socket; empty: $DOCKER_HOST, else the usual places.", user_only=DANGEROUS
    ),
    "container.network": Setting(
        "bridge", text, "`none`, `bridge`, `host`, or a network of the engine.", user_only=DANGEROUS
    ),
    "container.user": Setting(
        "", text, "UID:GID in the container; empty: yours, so that files are not root's.", user_only=DANGEROUS
    ),
    "disk.floor": Setting(
        1 * GIB,
        parse_size,
        "Nothing new starts while less disk than this is free for the home; 0 switches it off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "health.max_runtime": Setting(3600.0, parse_duration, "A run is ended after this long."),
    "health.grace": Setting(5.0, parse_duration, "How long a whole tree may take to end after TERM."),
    "health.orphan_grace": Setting(
        120.0, parse_duration, "A keeper without a supervisor ends its agent after this long."
    ),
    "health.stuck_after": Setting(
        300.0,
        age,
        "A run without any sign of life is stuck after this long; `forever` switches it off. Unset: 10 m for CLIs that "
        "tell an answer only when it is whole (codex, opencode, qwen, copilot, aider).",
    ),
    "health.tool_silence": Setting(2700.0, age, "The same while a tool of the agent is open: at most this long."),
    "health.startup_timeout": Setting(
        300.0, age, "A run that never showed a sign of life is given up after this long."
    ),
    "health.on_stuck": Setting(
        "kill", one_of("kill", "notify"), "Whether a stuck or looping run is ended, or only told of."
    ),
    "health.loop_steps": Setting(50, count(0), "A run loops after so many events without progress; 0 switches it off."),
    "health.doomed_after": Setting(
        15.0, age, "A run that reported a fatal error and goes on is ended after this long; `forever` switches it off."
    ),
    "health.retry_patience": Setting(
        90.0, age, "A run that only tries again, without any progress, is ended after this long: the wait is ours."
    ),
    "health.claim_grace": Setting(30.0, parse_duration, "How long an agent that reported its result has to exit."),
    "health.adaptive_timeout": Setting(
        False, boolean, "The timeout follows earlier runs of the same kind: 1.5 × their mean, from five runs on."
    ),
    "health.adaptive_floor": Setting(600.0, parse_duration, "An adaptive timeout is never shorter than this."),
    "processes.cgroup": Setting(
        "auto",
        one_of("auto", "off"),
        "`auto`: agents run in a cgroup of their own where this user may make one; `off`: never.",
        user_only=OF_THE_SUPERVISOR,
    ),
    "limits.memory": Setting(0, parse_size, "Memory of a run's whole process tree; 0 is no limit."),
    "limits.processes": Setting(0, count(0), "Processes and threads of a run's tree; 0 is no limit."),
    "limits.cpu_weight": Setting(0, count(0), "Share of the CPU under contention, 1 to 10000; 0 leaves it at 100."),
    "limits.output": Setting(2 * GIB, parse_size, "A run that writes more output than this is ended; 0 is no limit."),
    "limits.output_kept": Setting(
        64 * MIB, parse_size, "So much of the end of each output file stays on disk, beside its first MiB."
    ),
    "pressure.min_memory": Setting(
        256 * MIB,
        parse_size,
        "Nothing new starts while less memory than this is available; 0 switches it off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "pressure.max_load": Setting(
        0,
        count(0),
        "Nothing new starts while the load average per core is above this; 0 switches it off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "pressure.max_stall": Setting(
        0,
        count(0),
        "Nothing new starts while something waited for memory in more than this percentage of the last ten seconds "
        "(`some avg10` of /proc/pressure/memory); 0 switches it off.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    **RECOVERY,
    **TRACKERS,
    **NOTIFY,
    "retention.events": Setting(
        30 * 86400.0,
        age,
        "Events of finished tasks are forgotten after this long; `forever` keeps them. How a task ended stays.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "retention.runs": Setting(
        14 * 86400.0,
        age,
        "Run directories (agents' output) of finished tasks are deleted after this long.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "retention.tasks": Setting(
        90 * 86400.0,
        age,
        "Finished tasks without branch, saved work and workspace are forgotten after this long.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "retention.log_size": Setting(
        10 * 1024 * 1024,
        parse_size,
        "`supervisor.log` is put aside when it is larger; three old ones are kept.",
        user_only=OF_THE_SUPERVISOR,
        reload=True,
    ),
    "top.bell": Setting(False, boolean, "`holdfast top` rings the terminal's bell, once per critical alert."),
    "env.pass": Setting(
        [], variable_patterns, "More environment variables that agents may see (patterns).", user_only=DANGEROUS
    ),
    "env.set": Setting({}, pairs, "Environment variables set for agents.", user_only=DANGEROUS),
}

SECTIONS = frozenset(key[:cut] for key in SETTINGS for cut in range(len(key)) if key[cut] == ".")


def variable_of(key: str) -> str:
    """The environment variable of a setting: HOLDFAST_WORKSPACE_STRATEGY is workspace.strategy."""
    return f"HOLDFAST_{key.replace('.', '_').upper()}"


def masked(key: str, value: Any) -> Any:
    """What may be shown of a value that may hold a secret, to whoever reads logs and screens."""
    if key == "env.set":
        return dict.fromkeys(value, "…")
    if key == "notify.command":
        return [*value[:1], *["…"][: len(value) - 1]]  # a token, or an address with one, is often among its arguments
    return without_path(value) if key == "notify.webhook" else value


def shown(key: str, value: Any) -> str:
    """A value as a file would have it."""
    return "unset" if value is None else write(SETTINGS[key].parse, value)
