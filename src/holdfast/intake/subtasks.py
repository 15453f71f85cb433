"""Tasks that a process inside a run adds: such a task can do no more than the run's own task.

The environment of the process does not count as a layer of settings, because an agent can set any variable. An option
that would loosen a rule is refused. Limits, budgets and timeouts are capped at those of the run's own task.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.base.errors import Refused
from holdfast.core.model import Repo, Run, Strategy, Task, TaskSpec
from holdfast.core.task_settings import BudgetRules, HealthRules, RunLimits
from holdfast.intake.new_task import NewTask
from holdfast.processes.caller import Caller
from holdfast.processes.supervisor_facts import read_surroundings
from holdfast.store.open import open_store

if TYPE_CHECKING:
    from holdfast.core.workflows.workflow import Stage
    from holdfast.store.port.transaction import Transaction

_PERMISSIONS = ("read", "edit", "full")
_CPU_WEIGHT = 100  # of a run that names none: the kernel's default
# Options of `add` that choose what the supervisor runs, or with which login.
_NEED_TRUST = (
    ("gate", "--gate or --no-gate"),
    ("tries", "--tries"),
    ("account", "--account"),
    ("command", "permission of a plain command"),
    ("scenario", "--scenario"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnTask:
    """The task that a process inside a run works for, and the permissions of its present run."""

    spec: TaskSpec
    options: Mapping[str, object]  # of the run's own agent, which may be a member of a parallel stage
    common_dir: str  # of the task's repository

    @property
    def is_confined(self) -> bool:
        """True if the agent's permission is below `full`. A plain command as agent has no permission setting, so it can
        do everything."""
        return self.options.get("permission") in _PERMISSIONS[:2]

    def refuse(self, what: str) -> Refused:
        return Refused(
            f"This process belongs to task {self.spec.id}, and a task with {what} could do more than {self.spec.id} "
            "itself. Nothing was queued. Ask a person to add it."
        )


def read_own_task(home: str, caller: Caller) -> OwnTask:
    """Return the task of the caller. Raise NotFound if this home does not know it."""
    with contextlib.closing(open_store(home, create=False)) as store:
        task, runs, repo = store.write(lambda tx: _read_rows(tx, caller.task))
    names = {(run.stage, run.member) for run in runs if run.id == caller.run}
    options = [
        member.agent_options
        for stage in task.spec.stages
        for member in stage.members
        if (stage.name, member.name) in names
    ]
    return OwnTask(
        spec=task.spec,
        options=options[0] if options else task.spec.agent_options,
        common_dir=repo.common_dir,
    )


def _read_rows(tx: Transaction, task_id: str) -> tuple[Task, Sequence[Run], Repo]:
    task = tx.tasks.get(task_id)
    return task, tx.runs.open_runs(task_id) if task.spec.stages else (), tx.workspaces.repo(task.spec.repo_id)


def trusted_settings_path(home: str) -> str:
    """Return the user's file of settings as the supervisor reads it. Variables of this process are not used to find the
    path."""
    recorded = read_surroundings(home).settings
    return recorded or os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".config", "holdfast", "config.toml")


def note_variables(own: OwnTask) -> list[str]:
    """Return a note about variables that would be settings if a person had set them."""
    names = config.list_set_variables()
    if not names:
        return []
    return [
        f"{' and '.join(names)} has no effect: this process belongs to task {own.spec.id}, and only a person's "
        "environment changes settings."
    ]


def refuse_options(own: OwnTask, new: NewTask) -> None:
    """Raise Refused for an option that only a person may give, unless the agent of the own task may do everything
    anyway."""
    for name, option in _NEED_TRUST if own.is_confined else ():
        given = getattr(new, name)
        if given is not None and given not in ((), []) and given != own.options.get(name):
            raise own.refuse(option)


def refuse_looser(own: OwnTask, spec: TaskSpec, settings: config.Config, place: tuple[str, str]) -> None:
    """Raise Refused if the task could do more than the own task: its agents' permissions, workspace or repository.

    `place`: the checkout and the git directory of the new task's repository.
    """
    limit = str(own.options.get("permission") or "")
    for options in _all_options(spec):
        asked = str(options.get("permission") or "")
        is_more = asked not in _PERMISSIONS or _PERMISSIONS.index(asked) > _PERMISSIONS.index(limit or "full")
        if own.is_confined and is_more:
            raise own.refuse(f"permission {asked or 'of a plain command'}")
    is_outside = own.spec.strategy is Strategy.CONTAINER and spec.strategy is not Strategy.CONTAINER
    is_checkout = spec.strategy is Strategy.NONE and own.spec.strategy is not Strategy.NONE
    if is_outside or is_checkout:
        raise own.refuse(f"workspace {spec.strategy}")
    file = config.repo_file_path(place[0])
    trusted = [
        key
        for key, setting in config.SETTINGS.items()
        if setting.needs_trust and settings.origins[key].rpartition(":")[0] == file
    ]
    if own.is_confined and trusted and place[1] != own.common_dir:
        raise own.refuse(f"{' and '.join(trusted)} of another repository")


def _all_options(spec: TaskSpec) -> Iterator[Mapping[str, object]]:
    yield spec.agent_options
    for stage in spec.stages:
        yield stage.agent_options
        for member in stage.members:
            yield member.agent_options


def cap_spec(own: OwnTask, spec: TaskSpec, new: NewTask, settings: config.Config) -> tuple[TaskSpec, list[str]]:
    """Return the task with no value beyond that of the own task, and a note about the values that were lowered."""
    capped = replace(
        spec,
        **_map_agents(spec, own.spec.timeout, lambda agent, options: _cap_options(own, agent, options, settings)),
        timeout=min(spec.timeout, own.spec.timeout),
        max_resumes=min(spec.max_resumes, own.spec.max_resumes),
        health=_cap_health(own.spec.health, spec.health, new, settings),
        limits=_cap_limits(own.spec.limits, spec.limits),
        budget=_cap_budget(own.spec.budget, spec),
        labels={**spec.labels, **_labels_with_budget(own, settings)},
    )
    names = ("timeout", "max_resumes", "health", "limits", "budget", "labels", "agent_options", "stages")
    changed = [name.replace("_", " ") for name in names if getattr(capped, name) != getattr(spec, name)]
    if not changed:
        return capped, []
    return capped, [
        f"This process belongs to task {own.spec.id}, so the new task gets at most what {own.spec.id} has: "
        f"{', '.join(changed)}."
    ]


def _map_agents(
    spec: TaskSpec, longest: float, adjust: Callable[[str, Mapping[str, object]], dict[str, object]]
) -> dict[str, Any]:
    """Return the fields of `spec` that hold options of agents, each adjusted. The timeout of each stage is capped at
    `longest`."""

    def of_stage(stage: Stage) -> Stage:
        members = tuple(
            replace(member, agent_options=adjust(member.agent, member.agent_options)) for member in stage.members
        )
        return replace(
            stage,
            agent_options=adjust(stage.agent, stage.agent_options),
            members=members,
            timeout=min(stage.timeout, longest),
        )

    return {"agent_options": adjust(spec.agent, spec.agent_options), "stages": tuple(map(of_stage, spec.stages))}


def _cap_options(own: OwnTask, agent: str, options: Mapping[str, object], settings: config.Config) -> dict[str, object]:
    from holdfast.agents.registry import AGENTS

    found = dict(options)
    most, asked = own.options.get("max_turns"), options.get("max_turns")
    if isinstance(most, int) and AGENTS[agent].capabilities.turns:
        found["max_turns"] = min(most, asked) if isinstance(asked, int) else most
    if not own.is_confined:
        return found
    allowed = own.options.get("allow") or ()
    if isinstance(allow := options.get("allow"), list) and isinstance(allowed, list | tuple):
        found["allow"] = [command for command in allow if command in allowed]
    if not (own.options.get("sandbox") or settings["permissions.sandbox"]):
        found.pop("sandbox", None)  # IS_SANDBOX of the environment
    return {name: value for name, value in found.items() if name != "allow" or value}


def _cap_health(own: HealthRules, asked: HealthRules, new: NewTask, settings: config.Config) -> HealthRules:
    """Return the rules with no option above both the own task's rule and the settings.

    The settings of the new task's agent may be larger than the own task's rules, because some CLIs are silent for
    longer.
    """
    found = asked
    if new.stuck_after is not None:
        most = max(own.stuck_after, settings["health.stuck_after"])
        found = replace(found, stuck_after=min(found.stuck_after, most))
    if new.startup_timeout is not None or new.stuck_after is not None:
        most = max(own.startup_timeout, settings["health.startup_timeout"])
        found = replace(found, startup_timeout=min(found.startup_timeout, most))
    if "notify" not in (own.on_stuck, settings["health.on_stuck"]):
        found = replace(found, on_stuck="kill")
    return found


def _cap_limits(own: RunLimits, asked: RunLimits) -> RunLimits:
    weight = own.cpu_weight or _CPU_WEIGHT
    return RunLimits(
        memory=_least(own.memory, asked.memory),
        processes=_least(own.processes, asked.processes),
        processes_ceiling=_least(own.processes_ceiling, asked.processes_ceiling),
        cpu_weight=asked.cpu_weight if (asked.cpu_weight or _CPU_WEIGHT) <= weight else weight,
        output=_least(own.output, asked.output),
        output_kept=min(own.output_kept, asked.output_kept),
    )


def _least(own: Any, asked: Any) -> Any:
    """Return the smaller limit. None means no limit."""
    return asked if own is None else own if asked is None else min(own, asked)


def _cap_budget(own: BudgetRules, spec: TaskSpec) -> BudgetRules:
    """Return the budget of the new task, at most the own task's. A task whose agent does not report its usage has no
    budget."""
    from holdfast.agents.registry import AGENTS

    agents = {spec.agent, *(stage.agent for stage in spec.stages)}
    agents |= {member.agent for stage in spec.stages for member in stage.members}
    tells = [AGENTS[agent].capabilities for agent in agents]
    return BudgetRules(
        usd=_least(own.usd, spec.budget.usd) if any(each.cost for each in tells) else None,
        tokens=_least(own.tokens, spec.budget.tokens) if any(each.tokens for each in tells) else None,
    )


def _labels_with_budget(own: OwnTask, settings: config.Config) -> dict[str, str]:
    """Return the own task's labels that share a budget: a subtask without these labels would be outside of the
    budget."""
    return {key: value for key, value in own.spec.labels.items() if f"{key}={value}" in settings.label_budgets}
