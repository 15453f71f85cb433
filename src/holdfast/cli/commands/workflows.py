"""The command about workflows: list them, explain one, report mistakes in them."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from holdfast.api.fleet.workflows import Workflows, find_workflow, list_workflows
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.base.units import show_duration
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, one_line, paint, print_json, print_table
from holdfast.core.dispatch.spending_caps import format_dollars

if TYPE_CHECKING:
    from holdfast.api.fleet.schedule_models import WorkflowRow
    from holdfast.api.tasks.models import JsonObject

_HEADERS = ("WORKFLOW", "FROM", "STAGES", "ABOUT")
_AFTER = {
    "fail": "the task fails",
    "continue": "the next stage begins all the same",
    "pause": "it waits for you: `holdfast approve ID`",
    "back": "back to stage '{back_to}', at most {max_turns} times, then the task fails",
}
BROKEN = 1


def configure_workflows(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="WORKFLOW", help="the details of this workflow, with its prompts")
    parser.add_argument("--repo", default=".", metavar="DIR", help="the workflows of a task in this repository")
    add_json_option(parser)


def run_workflows(arguments: argparse.Namespace) -> int:
    found = list_workflows(home_directory(), find_repository(arguments.repo))
    if arguments.name == "list" and not any(row["name"] == "list" for row in found.rows):
        arguments.name = None
    rows = [find_workflow(found, arguments.name)] if arguments.name and not found.problems else list(found.rows)
    if arguments.name and found.problems:  # the named one may have a mistake. Then the mistakes below explain it
        rows = [row for row in found.rows if row["name"] == arguments.name]
    if arguments.json:
        for row in rows:
            print_json(row)
        for problem in found.problems:
            print_json({"problem": problem.text, "place": problem.place, "line": problem.line})
    elif arguments.name:
        for row in rows:
            _print_workflow(row)
    else:
        print_table(_HEADERS, [_cells(row) for row in rows])
    _print_problems(found)
    return BROKEN if found.problems else 0


def find_repository(directory: str) -> str | None:
    """Return the checkout around `directory`. None: there is none, and only built-in workflows and the user's own
    exist."""
    from holdfast.intake import repository

    try:
        return repository.locate_repository(os.path.abspath(directory))[0]
    except UsageError:
        if directory != ".":
            raise
        return None


def _print_problems(found: Workflows) -> None:
    for problem in found.problems:
        print(f"{paint('mistake', 'red', sys.stderr)}  {clean_text(problem)}", file=sys.stderr)
    for warning in found.warnings:
        print(f"{paint('warning', 'yellow', sys.stderr)}  {clean_text(warning)}", file=sys.stderr)


def _cells(row: WorkflowRow) -> list[str]:
    stages = " → ".join(_short(stage) for stage in row["stages"])
    return [row["name"], row["origin"], one_line(stages, 60), one_line(clean_text(row["about"]), 70)]


def _short(stage: JsonObject) -> str:
    name = f"{stage['name']} ×{len(stage['members'])}" if stage["members"] else str(stage["name"])
    marks = "".join(mark for key, mark in (("gate", "+gate"), ("approval", "+approval")) if stage[key])
    return f"{name}{marks}{' ↺ ' + stage['back_to'] if stage['back_to'] else ''}"


# -- one workflow
# --------------------------------------------------------------------------------------------------------


def _print_workflow(row: WorkflowRow) -> None:
    place = f", {row['place']}" if row["place"] else ""
    print(f"{paint(row['name'], 'bold')}  ({clean_text(row['origin'] + place)})")
    if row["about"]:
        print(clean_text(row["about"]))
    if row["wants_range"]:
        print("This workflow is about a range of commits: --base BASE, or --ref REF --base BASE.")
    if row["keep_workspace"]:
        print("The workspaces of its tasks are preserved, whatever the outcome.")
    elif row["preserve_on_failure"] is not None:
        print(f"The workspace of a failed task is {'preserved' if row['preserve_on_failure'] else 'removed'}.")
    if row["prompt"]:
        print(f"A task without a prompt of its own gets this prompt: {one_line(row['prompt'], 200)}")
    for number, stage in enumerate(row["stages"], start=1):
        print(f"\n{number}. {paint(stage['name'], 'bold')}")
        for fact in _facts(stage):
            print(f"   {clean_text(fact)}")
        if not all(member["prompt"] for member in stage["members"]) or not stage["members"]:
            _quote(stage["prompt"])
        for member in stage["members"]:
            print(f"   · {paint(member['name'], 'bold')}: {clean_text(_agent(member, 'that of the stage'))}")
            if member["prompt"]:
                _quote(member["prompt"])


def _facts(stage: JsonObject) -> list[str]:
    facts = [f"agent: {_agent(stage, 'that of the task')}"]
    if stage["timeout"] is not None:
        facts.append(f"at most {show_duration(stage['timeout'])}")
    if stage["budget_usd"] is not None:
        facts.append(f"at most {format_dollars(stage['budget_usd'])}")
    if stage["budget_tokens"] is not None:
        facts.append(f"at most {stage['budget_tokens']} tokens")
    if stage["retry"]:
        facts.append(f"up to {stage['retry']} more {'try' if stage['retry'] == 1 else 'tries'} if it fails")
    if stage["gate"] is not None:
        command = "the command of `gate.command`" if stage["gate"] is True else f"`{stage['gate']}`"
        facts.append(f"gate: {command} has to pass, within {show_duration(stage['gate_timeout'])}")
    if stage["members"]:
        where = "each in a workspace of its own" if stage["apart"] else "all in the task's workspace"
        cap = f", {stage['at_once']} at a time" if stage["at_once"] else ""
        facts.append(
            f"{len(stage['members'])} members at the same time, {where}{cap}; {stage['least']} have to complete"
        )
    if stage["reviews"]:
        facts.append(f"reviews: may send back to '{stage['back_to']}', at most {stage['max_turns']} times")
    if stage["approval"]:
        facts.append("then a person has to approve it: `holdfast approve ID`")
    if stage["on_failure"] != "fail":
        facts.append(f"if it fails in the end: {_AFTER[stage['on_failure']].format(**stage)}")
    return facts


def _agent(chosen: JsonObject, otherwise: str) -> str:
    words = [chosen["agent"] or otherwise]
    words += [f"{key} {chosen[key]}" for key in ("model", "account") if chosen[key]]
    if chosen["permission"]:
        words.append({"read": "may only read", "edit": "may edit", "full": "may do everything"}[chosen["permission"]])
    if chosen["command"]:
        words.append(" ".join(chosen["command"]))
    return ", ".join(words)


def _quote(prompt: str) -> None:
    for line in clean_text(prompt).rstrip().splitlines():
        print(f"   {paint('│', 'dim')} {line}".rstrip())
