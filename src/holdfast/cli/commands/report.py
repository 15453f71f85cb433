"""The results of stages: `show --results` and `report`."""

from __future__ import annotations

import argparse
import os
import sys

from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.files import open_private
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option, add_task_id
from holdfast.cli.output.render import clean_text, indent_text, one_line, paint, print_json

MOST_NAMES = 20  # changed files that are named on a terminal


def show_results(queries: Queries, task_id: str, *, as_json: bool) -> int:
    from holdfast.api.format import duration
    from holdfast.api.tasks.results import (
        describe_decision,
        describe_end,
        describe_members,
        pair_decisions,
        read_results,
        stage_headings,
        why_not_passed,
    )

    found = read_results(queries, task_id)
    if as_json:
        print_json(found)
        return 0
    workflow = f"  workflow {found['workflow']}" if found["workflow"] else ""
    print(f"{paint('task', 'bold')} {task_id}  {found['state']}{clean_text(workflow)}")
    if not found["stages"]:
        print("No stage has ended yet: there is no result.")
    for name, stage, decided in zip(
        stage_headings(found["stages"]), found["stages"], pair_decisions(found), strict=True
    ):
        began, ended = stage["started_at"], stage["ended_at"]
        spent = f"  {duration(max(0.0, ended - began))}" if began is not None and ended is not None else ""
        how = paint(clean_text(describe_end(stage)), "green" if stage["passed"] else "red")
        print(f"\n{paint(clean_text(name), 'bold')}  {clean_text(stage['agent'])}  {how}{spent}")
        if not stage["passed"]:
            print(f"  It did not pass: {indent_text(why_not_passed(stage), '    ')}")
        _print_indented(stage["text"] or "(no answer)")
        if stage["gate"] is not None:
            print(f"  gate `{one_line(stage['gate']['command'])}`: {one_line(stage['gate']['how'])}")
            _print_indented(stage["gate"]["output"], "    ")
        for name in stage["files"][:MOST_NAMES]:
            print(f"  changed {one_line(name)}")
        if len(stage["files"]) > MOST_NAMES:
            print(f"  and {len(stage['files']) - MOST_NAMES} more changed file(s)")
        for one in decided:
            print(f"  {clean_text(describe_decision(one))}{':' if one['changes'] else '.'}")
            _print_indented(one["changes"] or "", "    ")
    for counted in found["members"]:
        print(f"\nmembers of {clean_text(counted['name'])}: {describe_members(counted)}")
    return 0


def _print_indented(text: str, by: str = "  ") -> None:
    for line in clean_text(text).rstrip().splitlines():
        print(f"{by}{line}".rstrip())


def configure_report(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--output", "-o", metavar="FILE", help="write to FILE, and overwrite it")
    add_json_option(parser)


def run_report(arguments: argparse.Namespace) -> int:
    from holdfast.api.tasks.report import build_report, render_markdown

    queries = Queries(home_directory())
    found = build_report(queries, queries.resolve(arguments.id))
    if arguments.output is None:
        if arguments.json:
            print_json(found)
        else:
            print(render_markdown(found), end="")
        return 0
    if arguments.json:
        import json

        text = json.dumps(found, ensure_ascii=False) + "\n"
    else:
        text = render_markdown(found)
    _write(arguments.output, text)
    print(f"The report of task {found['task']} is in {clean_text(arguments.output)}.", file=sys.stderr)
    return 0


def _write(path: str, text: str) -> None:
    """Write the whole file or nothing: an existing file stays whole until the new one is complete."""
    is_plain = not os.path.exists(path) or os.path.isfile(path)
    part = f"{path}.{os.getpid()}.part" if is_plain else path  # a pipe or a device is written to, never replaced
    try:
        try:
            with open(part, "w", encoding="utf-8", opener=open_private) as file:  # it has words of agents
                file.write(text)
            if is_plain:
                os.replace(part, path)
        except OSError:
            if is_plain and os.path.lexists(part):
                os.unlink(part)
            raise
    except OSError as error:
        raise UsageError(f"The report cannot be written to {path}: {error.strerror}.") from error
