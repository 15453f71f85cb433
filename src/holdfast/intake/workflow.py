"""Workflows of new tasks: every stage with its agent, options and times, resolved when the task is added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast import config
from holdfast.base.dataclass import dataclass
from holdfast.base.errors import UsageError
from holdfast.core.dispatch.spending_caps import SpendingCap
from holdfast.core.task_settings import BudgetRules
from holdfast.intake import repository
from holdfast.intake.new_task import (
    NewTask,
    refuse_missing_cli,
    resolve_agent,
    resolve_budget,
    resolve_provider,
    with_full_path,
    with_longer_silence,
)

if TYPE_CHECKING:  # tasks without a workflow are added faster
    from holdfast.core.workflows.draft import AgentChoice, StageDraft, WorkflowDraft
    from holdfast.core.workflows.workflow import Member, Stage, Stages

# Added to the prompt of a reviewing stage, unless the prompt asks for a verdict itself.
RULING = """

End your answer with exactly one of these two lines, and nothing after it:
VERDICT: approve
VERDICT: changes"""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedAgents:
    """The agents of a new task: the first one, and those of all stages if the task has a workflow."""

    agent: str
    options: dict[str, Any]
    prompt: str
    workflow: str = ""
    stages: Stages = ()
    wants_range: bool = False
    notes: tuple[str, ...] = ()  # for the person who adds the task
    preserve_on_failure: bool | None = None  # of the workflow
    keep_workspace: bool = False

    @property
    def agents(self) -> list[str]:
        """Return the names of all agents, each once, the first one first."""
        return list(dict.fromkeys((self.agent, *(each.agent for each in self._all()))))

    def timeout(self, new: NewTask, settings: config.Config) -> float:
        """Return the timeout of a run of the first stage, or of the task itself."""
        if self.stages:
            return self.stages[0].timeout
        return float(settings["health.max_runtime"] if new.timeout is None else new.timeout)

    @property
    def commands(self) -> Iterator[list[str]]:
        """Yield every command line that is an agent."""
        for options in (self.options, *(each.agent_options for each in self._all())):
            argv = options.get("argv")
            if isinstance(argv, list):
                yield argv

    def find_programs(self, settings: config.Config) -> None:
        """Find the program of each agent as the caller does. Refuse an agent whose CLI is not installed."""
        for argv in self.commands:
            argv[:] = with_full_path(argv, settings)
        refuse_missing_cli(self.agent, self.options, settings)
        for each in self._all():
            refuse_missing_cli(each.agent, each.agent_options, settings)

    def _all(self) -> Iterator[Stage | Member]:
        for stage in self.stages:
            yield stage
            yield from stage.members


def resolve_agents(new: NewTask, settings: config.Config) -> ResolvedAgents:
    """Return the agents of a new task. Raise UsageError with the correction if they are not valid."""
    if not new.workflow:
        agent, options = resolve_agent(new, settings)
        stages = _gate_stage(agent, options, new, settings)
        return ResolvedAgents(agent=agent, options=options, prompt=new.prompt, stages=stages)
    if new.tries is not None:
        raise UsageError("--tries is for tasks without a workflow: a stage has its own `retry`. Nothing was queued.")
    draft = _named(new.workflow, settings) if isinstance(new.workflow, str) else _checked(new.workflow)
    prompt = new.prompt if new.prompt.strip() else draft.prompt
    if not prompt:
        if draft.wants_prompt:
            raise UsageError(f"The workflow '{draft.name}' needs a prompt: say what the agent should do.")
        prompt = draft.about or f"Run the workflow '{draft.name}'."
    stages = resolve_stages(draft, new, settings)
    return ResolvedAgents(
        prompt=prompt,
        notes=tuple(_gate_notes(draft, new, settings)),
        agent=stages[0].agent,
        options=dict(stages[0].agent_options),
        workflow=draft.name,
        stages=stages,
        wants_range=draft.wants_range,
        preserve_on_failure=draft.preserve_on_failure,
        keep_workspace=draft.keep_workspace,
    )


def _gate_stage(agent: str, options: dict[str, Any], new: NewTask, settings: config.Config) -> Stages:
    """Return the only stage of a task with a gate and without a workflow. Empty: the task has no gate.

    The gate of the settings does not check tasks that may only read.
    """
    gate = str(settings["gate.command"])
    if not gate or (new.gate is None and options.get("permission") == "read"):
        if new.tries is not None:
            raise UsageError("--tries needs a check to try for: give --gate COMMAND too. Nothing was queued.")
        return ()
    from holdfast.core.workflows.workflow import WORK, Stage

    own = settings.for_agent(agent)
    return (
        Stage(
            name=WORK,
            agent=agent,
            agent_options=options,
            provider=resolve_provider(agent, options, settings),
            timeout=float(own["health.max_runtime"] if new.timeout is None else new.timeout),
            retry=settings["gate.tries"] - 1,
            gate=gate,
        ),
    )


def _gate_notes(draft: WorkflowDraft, new: NewTask, settings: config.Config) -> Iterator[str]:
    """Yield notes about gates whose command the workflow leaves to the task. Raise UsageError for a `--gate` that no
    stage uses."""
    left = [stage.name for stage in draft.stages if stage.has_set_gate]
    if new.gate is not None and not left:
        raise UsageError(
            f"No stage of the workflow '{draft.name}' has `gate = true`, so --gate would check nothing. "
            "Nothing was queued."
        )
    if left and not settings["gate.command"]:
        yield (
            f"Stage '{left[0]}' has no gate: only the agent's own report shows that its work is good. To add a gate, "
            "use --gate COMMAND or the setting gate.command."
        )


def resolve_stages(draft: WorkflowDraft, new: NewTask, settings: config.Config, only: int | None = None) -> Stages:
    """Return the resolved stages. `only`: resolve just the stage with this number."""
    wanted = draft.stages if only is None else draft.stages[only : only + 1]
    return tuple(_stage(draft, stage, new, settings) for stage in wanted)


def resolve_rules(
    new: NewTask, crew: ResolvedAgents, settings: config.Config
) -> tuple[config.Config, BudgetRules, list[str]]:
    """Return the settings that apply to all agents of the task, its spending cap, and notes about limits that cannot be
    enforced."""
    found, notes = [], list(crew.notes)
    settings = settings.for_agent(crew.agent)
    for agent in crew.agents:
        settings = with_longer_silence(agent, settings)
        budget, more = resolve_budget(new, agent, settings)
        found.append(budget)
        notes += more
    usd = next((budget.usd for budget in found if budget.usd is not None), None)
    tokens = next((budget.tokens for budget in found if budget.tokens is not None), None)
    return settings, BudgetRules(usd=usd, tokens=tokens), notes


def resolve_range(
    top: str,
    new: NewTask,
    strategy: str,
    crew: ResolvedAgents,
    head: str | None,
    commits: Mapping[str, str] | None = None,
) -> tuple[str, str | None]:
    """Return the ref from which the workspace is made, and the commit at which its range begins (or None).

    `head`: the current branch if it is known already. `commits`: the commits of names that were looked up already. Git
    is not called for either.
    """
    known = commits or {}
    _refuse_impossible(strategy, crew)

    def checked(name: str) -> str:
        return name if name in known else repository.check_base(top, new.directory, name)

    if strategy not in ("worktree", "clone", "container"):
        if new.ref is not None or crew.wants_range:
            raise UsageError(
                f"A range of commits needs a workspace that git makes, so --workspace cannot be {strategy}: use "
                "worktree, clone or container. Nothing was queued."
            )
        return "HEAD", None
    if new.ref is None and not crew.wants_range:
        base = repository.current_base(top) if new.base is None and head is None else head
        return (base or "HEAD") if new.base is None else checked(new.base), None
    if new.ref is None and new.base is None:
        raise UsageError(
            f"The workflow '{crew.workflow}' looks at a range of commits: say which with --base BASE (up to the "
            "current branch), or with --ref REF --base BASE. Nothing was queued."
        )
    current = head or repository.current_base(top)
    ref = current if new.ref is None else checked(new.ref)
    if new.base is None and not crew.wants_range:
        return ref, None
    base = current if new.base is None else checked(new.base)
    return ref, known.get(base) or repository.resolve_commit(top, base) or base


def _refuse_impossible(strategy: str, crew: ResolvedAgents) -> None:
    """Refuse a workflow with a stage that cannot succeed, because the stage would fail only after all the work before
    it."""
    for stage in crew.stages:
        if strategy == "container" and stage.members and not stage.apart:
            raise UsageError(
                f"The members of stage '{stage.name}' cannot share a container: give it `apart = true`. "
                "Nothing was queued."
            )
        if strategy == "none" and stage.apart:
            raise UsageError(
                f"The members of stage '{stage.name}' want workspaces of their own (`apart`), but --workspace none "
                "makes no workspaces. Nothing was queued."
            )


def known_workflows(settings: config.Config) -> dict[str, WorkflowDraft]:
    """Return the workflows by name. Workflows of the user replace built-in workflows. Workflows of a repository have
    names that no other workflow has."""
    from holdfast.config.tables.builtin_workflows import BUILT_IN

    return {**BUILT_IN, **settings.workflows}


def _named(name: str, settings: config.Config) -> WorkflowDraft:
    known = known_workflows(settings)
    if name not in known:
        why = next((f"{each} " for each in settings.not_applied if each.workflow == name), "")
        raise UsageError(f"{why or no_such_workflow(name, list(known)) + ' '}Nothing was queued.")
    return known[name]


def no_such_workflow(name: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return f"There is no workflow '{name}'.{hint} Known here: {', '.join(known)} (`holdfast workflows`)."


def _checked(draft: WorkflowDraft) -> WorkflowDraft:
    """Check a workflow that does not come from a file."""
    from holdfast.core.workflows.draft import find_flaws

    for flaw in find_flaws(draft):
        where = "" if flaw.stage is None else f", stage {flaw.stage + 1}"
        raise UsageError(f"The workflow '{draft.name}'{where}: {flaw.key}: {flaw.text}. Nothing was queued.")
    return draft


def _stage(draft: WorkflowDraft, stage: StageDraft, new: NewTask, settings: config.Config) -> Stage:
    from holdfast.core.workflows.workflow import Stage

    place = f"Stage '{stage.name}' of the workflow '{draft.name}'"
    members = tuple(_member(place, stage, number, new, settings) for number in range(len(stage.members)))
    if members:
        agent, options, provider = members[0].agent, dict(members[0].agent_options), members[0].provider
    else:
        agent, options, provider = _agent(place, stage.chosen, new, settings)
    own = settings.for_agent(agent)
    return Stage(
        name=stage.name,
        agent=agent,
        agent_options=options,
        provider=provider,
        prompt=_asking_for_ruling(stage.prompt) if stage.reviews else stage.prompt,
        timeout=_timeout(stage, new, own),
        budget=_budget(place, stage, agent),
        retry=stage.retry,
        gate=str(settings["gate.command"]) if stage.has_set_gate else stage.gate,
        gate_timeout=stage.gate_timeout,
        on_failure=stage.on_failure,
        approval=stage.approval,
        reviews=stage.reviews,
        back_to=stage.back_to,
        max_turns=stage.max_turns,
        members=members,
        apart=stage.apart,
        at_once=stage.at_once,
        least=stage.least,
    )


def _budget(place: str, stage: StageDraft, agent: str) -> SpendingCap:
    """Return the budget of a stage. Raise UsageError if the agent of the stage does not report its usage."""
    from holdfast.agents.registry import AGENTS

    tells = AGENTS[agent].capabilities
    for key, value, is_told, what in (
        ("budget_usd", stage.budget_usd, tells.cost, "its cost"),
        ("budget_tokens", stage.budget_tokens, tells.tokens, "its tokens"),
    ):
        if value is not None and not is_told:
            raise UsageError(
                f"{place} has `{key}`, and its agent '{agent}' does not report {what}. Take the key out, or give the "
                "stage a `timeout`. Nothing was queued."
            )
    return SpendingCap(usd=stage.budget_usd, tokens=stage.budget_tokens)


def _timeout(stage: StageDraft, new: NewTask, settings: config.Config) -> float:
    given = stage.timeout if stage.timeout is not None else new.timeout
    return float(settings["health.max_runtime"] if given is None else given)


def _member(place: str, stage: StageDraft, number: int, new: NewTask, settings: config.Config) -> Member:
    from holdfast.core.workflows.workflow import Member

    draft = stage.members[number]
    place = f"Member '{draft.name}' of {place[0].lower()}{place[1:]}"
    agent, options, provider = _agent(place, _merge_choices(draft.chosen, stage.chosen), new, settings)
    return Member(name=draft.name, agent=agent, agent_options=options, provider=provider, prompt=draft.prompt)


def _merge_choices(own: AgentChoice, general: AgentChoice) -> AgentChoice:
    """Combine a member's choice of agent with the choice of its stage. A member with another agent gets none of the
    options of the stage's agent."""
    if own.is_own and (not own.agent or own.agent != general.agent):
        return replace(own, permission=own.permission or general.permission)
    return replace(
        general,
        agent=own.agent or general.agent,
        command=own.command or general.command,
        scenario=own.scenario or general.scenario,
        model=own.model or general.model,
        permission=own.permission or general.permission,
        account=own.account or general.account,
    )


def _agent(place: str, chosen: AgentChoice, new: NewTask, settings: config.Config) -> tuple[str, dict[str, Any], str]:
    """Return the agent of a stage: the stage's own agent, else the task's, by the same rules as for a task without a
    workflow."""
    tasks = new.agent or ("command" if new.command else "scripted" if new.scenario is not None else settings["agent"])
    asked = replace(
        new,
        model=chosen.model or new.model,
        permission=chosen.permission or new.permission,
        account=chosen.account or new.account,
    )
    if chosen.is_own and (chosen.agent != tasks or chosen.command or chosen.scenario):
        agent = chosen.agent or ("command" if chosen.command else "scripted")
        settings = settings.with_values({"agent": agent})
        asked = replace(
            asked,
            agent=agent,
            command=chosen.command,
            scenario=chosen.scenario or None,
            model=chosen.model or (new.model if agent == tasks else None),
            account=chosen.account or (new.account if agent == tasks else None),
        )
    try:
        agent, options = resolve_agent(asked, settings)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error
    return agent, options, resolve_provider(agent, options, settings)


def _asking_for_ruling(prompt: str) -> str:
    return prompt if "VERDICT:" in prompt else prompt + RULING
