"""The step from a request to a task: all checks and settings, in one place for the CLI, schedules and trackers."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast import config
from holdfast.base import clock
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import UsageError
from holdfast.base.ids import new_id
from holdfast.base.text import is_text
from holdfast.config.env_secrets import stored_environment
from holdfast.config.known_secrets import redact_agent_text
from holdfast.config.read_file import Layer
from holdfast.core.model import Strategy, Task, TaskSpec
from holdfast.core.task_settings import (
    ContainerRules,
    HealthRules,
    RunLimits,
    SalvageRules,
    SubtaskRules,
    WorkspaceRules,
)
from holdfast.intake.new_task import NewTask, resolve_provider
from holdfast.intake.workflow import resolve_agents, resolve_range, resolve_rules
from holdfast.processes.caller import find_caller
from holdfast.workspaces.names import identity_in

BIGGEST_PROMPT = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedTask:
    """A request that passed every check. `add` records it as a task."""

    checkout: str
    git_directory: str
    spec: TaskSpec  # `repo_id` is empty until `add`
    notes: Sequence[str]  # for the person who adds the task

    def add(self, tx: Any, needs: Sequence[str] | None = None, *, by: str = "") -> Task:
        """Record the task in the transaction `tx`. `needs` replaces the tasks that it waits for. `by` is the one who
        adds it."""
        repo = tx.workspaces.register_repo(self.checkout, self.git_directory, clock.now())
        spec = replace(self.spec, repo_id=repo.id, needs=self.spec.needs if needs is None else tuple(needs))
        task: Task = tx.tasks.add(spec, clock.now(), by)
        return task


def resolve_task(
    home: str,
    new: NewTask,
    place: tuple[str, str],
    head: str | None = None,
    before: Mapping[str, Layer] | None = None,
    commits: Mapping[str, str] | None = None,
) -> ResolvedTask:
    """Check `new` and look up its settings. Raise HoldfastError with the reason if it cannot become a task.

    `place`: the repository's checkout and git directory. `head`: the base, if it is known already. `commits`: commits
    of names that were looked up already. Git is not called for either. `before`: layers of settings as config.load
    takes them. A task that a process inside a run adds can do no more than the run's own task.
    """
    if new.prompt.strip() or not new.workflow:  # some workflows need none
        check_prompt(new.prompt)
    top, common = place
    caller = find_caller(home)
    own = None
    if caller is not None:
        from holdfast.intake import subtasks  # only a process inside a run needs it

        own = subtasks.read_own_task(home, caller)
        subtasks.refuse_options(own, new)
    settings = config.load(
        repo=top,
        flags={
            "agent": new.agent,
            "workspace.strategy": new.workspace,
            "resume.max_attempts": new.max_resumes,
            "gate.command": new.gate,
            "gate.tries": new.tries,
        },
        home=home,
        before=before,
        environment=own is None,
        path=None if own is None else subtasks.trusted_settings_path(home),
    )
    crew = resolve_agents(new, settings)
    for argv in crew.commands:
        _refuse_unlaunchable(argv, settings["env.set"])
    crew.find_programs(settings)
    settings, budget, notes = resolve_rules(new, crew, settings)
    health, limits = _rules(new, settings)
    strategy, _, variant = str(settings["workspace.strategy"]).partition(":")
    base, range_base = resolve_range(top, new, strategy, crew, head, commits)
    if strategy == "container" and not settings["container.image"]:
        raise UsageError(
            "Tasks in containers need an image: set container.image in your config (`holdfast help containers`)."
        )
    environment = stored_environment(settings, identity_in(os.environ))
    task_id = new_id()
    spec = TaskSpec(
        id=task_id,
        repo_id="",  # set by `ResolvedTask.add`
        prompt=redact_agent_text(crew.prompt, home) if own is not None or _is_of_other_home() else crew.prompt,
        agent=crew.agent,
        agent_options=crew.options,
        workflow=crew.workflow,
        stages=crew.stages,
        range_base=range_base,
        strategy=Strategy(strategy),
        directory_copy=variant == "copy",
        base_ref=base,
        priority=new.priority,
        labels=new.labels,
        parent_id=new.parent,
        base_from_parent=new.parent is not None and new.base is None and new.ref is None,
        needs=tuple(new.after),
        not_before=None if new.delay is None else clock.now().wall + new.delay,
        timeout=crew.timeout(new, settings),
        grace=settings["health.grace"],
        orphan_grace=settings["health.orphan_grace"],
        max_resumes=settings["resume.max_attempts"],
        schedule=new.schedule,
        fire_time=new.fire_time,
        preserve_on_failure=crew.preserve_on_failure if new.preserve_on_failure is None else new.preserve_on_failure,
        preserve_strategy_default=preserve_default_of_strategy(settings, strategy),
        preserve_global_default=settings["workspace.preserve_on_failure"],
        cleanup_on_complete=settings["workspace.cleanup_on_complete"],
        keep_workspace=new.keep_workspace or crew.keep_workspace,
        commit_leftovers=settings["workspace.commit_leftovers"],
        environment=environment,
        health=health,
        limits=limits,
        workspace=_workspace_rules(settings),
        salvage=_salvage_rules(settings),
        container=_container_rules(settings),
        budget=budget,
        subtasks=SubtaskRules(max_depth=settings["subtasks.max_depth"], most=settings["subtasks.max"]),
        provider=resolve_provider(crew.agent, crew.options, settings),
        adaptive_floor=settings["health.adaptive_floor"] if settings["health.adaptive_timeout"] else None,
    )
    notes = [*map(str, settings.not_applied), *notes]
    if own is not None:
        subtasks.refuse_looser(own, spec, settings, place)
        spec, capped = subtasks.cap_spec(own, spec, new, settings)
        notes += [*subtasks.note_variables(own), *capped]
    return ResolvedTask(checkout=top, git_directory=common, spec=spec, notes=notes)


def _is_of_other_home() -> bool:
    """True if this process is inside a run of another home."""
    return "HOLDFAST_RUN_ID" in os.environ


def check_prompt(prompt: str) -> None:
    if not prompt.strip():
        raise UsageError("The prompt is empty: say what the agent should do.")
    if len(prompt.encode(errors="surrogatepass")) > BIGGEST_PROMPT:
        raise UsageError(
            f"The prompt is larger than {BIGGEST_PROMPT // 1024} KiB. Put the material into a file instead."
        )
    if not is_text(prompt):
        raise UsageError("The prompt is not text (it has NUL or undecodable bytes).")


def preserve_default_of_strategy(settings: config.Config, strategy: str) -> bool | None:
    key = f"workspace.{strategy}.preserve_on_failure"
    value: bool | None = settings[key] if key in config.SETTINGS else None
    return value


def _rules(new: NewTask, settings: config.Config) -> tuple[HealthRules, RunLimits]:
    health = HealthRules(
        stuck_after=settings["health.stuck_after"] if new.stuck_after is None else new.stuck_after,
        tool_silence=settings["health.tool_silence"],
        startup_timeout=_startup_timeout(new, settings),
        on_stuck=new.on_stuck or settings["health.on_stuck"],
        loop_steps=settings["health.loop_steps"],
        doomed_after=settings["health.doomed_after"],
        retry_patience=settings["health.retry_patience"],
        claim_grace=settings["health.claim_grace"],
    )
    limits = {
        "memory": settings["limits.memory"] or None,
        "processes": settings["limits.processes"] or None,
        "processes_ceiling": settings["limits.processes_ceiling"] or None,
        "cpu_weight": settings["limits.cpu_weight"] or None,
        "output": settings["limits.output"] or None,
        "output_kept": settings["limits.output_kept"],
    }
    return health, RunLimits(**{**limits, **new.limits})


def _workspace_rules(settings: config.Config) -> WorkspaceRules:
    return WorkspaceRules(
        setup=tuple(settings["workspace.setup"]),
        setup_timeout=settings["workspace.setup_timeout"],
        teardown=tuple(settings["workspace.teardown"]),
        copy=tuple(settings["workspace.copy"]),
        preserve_ttl=settings["workspace.preserve_ttl"],
    )


def _salvage_rules(settings: config.Config) -> SalvageRules:
    return SalvageRules(
        max_size=settings["salvage.max_size"],
        max_files=settings["salvage.max_files"],
        ignored=tuple(settings["salvage.ignored"]),
    )


def _container_rules(settings: config.Config) -> ContainerRules:
    names = ("image", "engine", "network", "user", "memory_share", "read_only")
    return ContainerRules(**{name: settings[f"container.{name}"] for name in names})


def _startup_timeout(new: NewTask, settings: config.Config) -> float:
    """Return the start-up timeout. A task without `stuck_after` has no start-up timeout either: no silence of its agent
    should matter, not even at the start."""
    if new.startup_timeout is not None:
        return new.startup_timeout
    return math.inf if new.stuck_after == math.inf else float(settings["health.startup_timeout"])


def _refuse_unlaunchable(argv: Sequence[str], variables: Mapping[str, str]) -> None:
    """Refuse arguments and variables with which no process can be started. Otherwise the error would come only when the
    supervisor starts the agent."""
    if argv and not argv[0]:
        raise UsageError("The command's first word is empty: say which program to run.")
    if any("\0" in word for word in argv):
        raise UsageError("The command has a NUL character in it, which no program can be given.")
    for name, value in variables.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise UsageError(
                f"env.set: '{name}' cannot be an environment variable: its name cannot be empty or have '=' in it, "
                "and neither name nor value may have a NUL character."
            )
