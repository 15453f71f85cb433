"""Commands that start tasks: add and run."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.api.commands import BIGGEST_PROMPT, Commands, NewTask
from holdfast.api.outcome import no_supervisor
from holdfast.api.queries import Queries, follow_events
from holdfast.base.errors import Conflict, UsageError
from holdfast.base.home import home_directory
from holdfast.base.text import is_text
from holdfast.cli.commands import task_lists
from holdfast.cli.output.live import LiveEvents, StatePrinter, StatusLine
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, indent_text, number, one_line, paint, print_json
from holdfast.intake.repository import absolute_path

if TYPE_CHECKING:
    from holdfast.api.tasks.models import TaskDetails
    from holdfast.core.model import Task

EXIT_OF_STATE = {"completed": 0, "failed": 1, "cancelled": 1, "paused": 75}
CLEANUP_PATIENCE = 5.0
MOST_ANSWER_LINES = 200  # of the last answer of a workflow


def _task_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="what the agent should do; `-` reads standard input"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="read the prompt from a file (`-`: standard input); with `add`, the file may be a list",
    )
    parser.add_argument(
        "--workflow", metavar="WORKFLOW", help="run the task in the stages of this workflow (`holdfast workflows`)"
    )
    gate = parser.add_mutually_exclusive_group()
    gate.add_argument("--gate", metavar="COMMAND", help="done only if this command passes (gate.command)")
    gate.add_argument("--no-gate", dest="gate", action="store_const", const="", help="ignore the gate of the settings")
    parser.add_argument("--tries", type=number(1), metavar="N", help="tries until the gate passes (gate.tries)")
    parser.add_argument("--repo", default=".", metavar="DIR", help="the repository (this directory)")
    parser.add_argument("--agent", help="the agent that works on the task")
    parser.add_argument("--account", metavar="NAME", help="the account of the agent (`holdfast help accounts`)")
    parser.add_argument("--model", metavar="NAME", help="the agent's model")
    parser.add_argument(
        "--permission", choices=["read", "edit", "full"], help="what the agent may do without asking (permissions.mode)"
    )
    parser.add_argument(
        "--budget-usd", type=float, metavar="X", help="pause the task when its runs have cost this many dollars"
    )
    parser.add_argument(
        "--budget-tokens", type=number(1), metavar="N", help="pause the task when its runs have used this many tokens"
    )
    parser.add_argument(
        "--max-turns", type=number(1), metavar="N", help="end a run after this many turns, if the agent supports it"
    )
    parser.add_argument("--scenario", metavar="FILE", help="a scenario for the scripted agent")
    parser.add_argument(
        "--base",
        metavar="REF",
        help="start from this branch or commit (default: the current branch, or the parent's branch)",
    )
    parser.add_argument("--ref", metavar="REF", help="start from this commit; the task is then about BASE..REF")
    parser.add_argument(
        "--workspace", metavar="KIND", help="worktree, clone, container, directory, directory:copy or none"
    )
    parser.add_argument("--timeout", metavar="T", help="end a run after this long, e.g. 30m")
    parser.add_argument(
        "--stuck-after", metavar="T", help="a run without a sign of life is stuck after this long; `off`: never"
    )
    parser.add_argument(
        "--startup-timeout",
        metavar="T",
        help="end a run that shows no sign of life for this long after its start; `off`: never",
    )
    parser.add_argument(
        "--on-stuck", choices=["kill", "notify"], help="end a stuck or looping run, or only raise an alert"
    )
    parser.add_argument("--memory", metavar="SIZE", help="memory limit of a run's whole process tree, e.g. 4GB")
    parser.add_argument(
        "--processes", type=number(1), metavar="N", help="how many processes and threads a run may have"
    )
    parser.add_argument("--cpu-weight", type=number(1, 10000), metavar="N", help="share of the CPU, 1 to 10000 (100)")
    parser.add_argument("--max-output", metavar="SIZE", help="a run that writes more than this is ended")
    parser.add_argument("--delay", metavar="T", help="start this long from now at the earliest")
    parser.add_argument(
        "--max-resumes", type=number(0), metavar="N", help="how often the task may be resumed after a pause"
    )
    parser.add_argument("--priority", type=number(), default=0, metavar="N", help="higher first (0)")
    parser.add_argument("--label", action="append", default=[], metavar="K=V", help="a label; may be repeated")
    parser.add_argument(
        "--parent",
        metavar="ID",
        help="the parent task; `none`: no parent (not allowed inside a run)",
    )
    parser.add_argument(
        "--after", action="append", default=[], metavar="ID", help="start after this task has completed"
    )
    parser.add_argument(
        "--preserve-on-failure",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="keep the workspace if the task fails",
    )
    parser.add_argument("--keep-workspace", action="store_true", help="keep the workspace whatever the outcome")
    add_json_option(parser)
    parser.usage = f"{parser.prog} PROMPT [options] [-- COMMAND…]"


def _load_scenario(path: str) -> list[dict[str, Any]]:
    from holdfast.rehearsal.scenario import load  # few tasks have a scenario

    return load(path)


def _new_task(arguments: argparse.Namespace) -> NewTask:
    from holdfast.api.format import parse_duration_option, parse_timeout_option
    from holdfast.api.tasks.subtasks import resolve_parent

    queries: Queries | None = None
    ids: dict[str, str] = {}
    for wanted in arguments.after:
        queries = queries or Queries(home_directory())
        ids[wanted] = queries.resolve(wanted)
    return NewTask(
        prompt=_prompt(arguments),
        directory=absolute_path(arguments.repo),
        agent=arguments.agent,
        command=arguments.command,
        scenario=_load_scenario(arguments.scenario) if arguments.scenario else None,
        account=arguments.account,
        model=arguments.model,
        permission=arguments.permission,
        budget_usd=arguments.budget_usd,
        budget_tokens=arguments.budget_tokens,
        max_turns=arguments.max_turns,
        base=arguments.base,
        ref=arguments.ref,
        workflow=arguments.workflow,
        gate=arguments.gate,
        tries=arguments.tries,
        workspace=arguments.workspace,
        priority=arguments.priority,
        labels=_labels(arguments.label),
        parent=resolve_parent(home_directory(), arguments.parent),
        after=[ids[wanted] for wanted in arguments.after],
        delay=parse_duration_option("--delay", arguments.delay),
        timeout=parse_duration_option("--timeout", arguments.timeout, "health.max_runtime"),
        stuck_after=parse_timeout_option("--stuck-after", arguments.stuck_after, "health.stuck_after"),
        startup_timeout=parse_timeout_option("--startup-timeout", arguments.startup_timeout, "health.startup_timeout"),
        on_stuck=arguments.on_stuck,
        limits=_limits(arguments),
        max_resumes=arguments.max_resumes,
        preserve_on_failure=arguments.preserve_on_failure,
        keep_workspace=arguments.keep_workspace,
    )


def _limits(arguments: argparse.Namespace) -> dict[str, int]:
    from holdfast.api.format import parse_size_option

    given = {
        "memory": parse_size_option("--memory", arguments.memory, "limits.memory"),
        "processes": arguments.processes,
        "cpu_weight": arguments.cpu_weight,
        "output": parse_size_option("--max-output", arguments.max_output, "limits.output"),
    }
    return {name: value for name, value in given.items() if value is not None}


def _prompt(arguments: argparse.Namespace) -> str:
    if arguments.source is not None:
        if arguments.prompt is not None:
            raise UsageError("Give the prompt itself or --from FILE, not both.")
        return read_prompt(arguments.source)
    if arguments.prompt == "-":
        return read_prompt("-")
    if arguments.prompt is not None:
        return str(arguments.prompt)
    if arguments.command:
        return " ".join(arguments.command)
    if arguments.scenario:
        return f"play {os.path.basename(arguments.scenario)}"
    if arguments.workflow:  # some workflows need no prompt
        return ""
    raise UsageError("Say what the agent should do: holdfast run PROMPT [-- COMMAND…].")


def read_prompt(source: str) -> str:
    """Read a prompt from a file or from standard input. Read at most one byte more than the limit, because the source
    may be endless."""
    try:
        with open(0 if source == "-" else source, "rb", closefd=source != "-") as file:
            content = file.read(BIGGEST_PROMPT + 1)
    except OSError as error:
        name = "standard input" if source == "-" else source
        raise UsageError(f"The prompt cannot be read from {name}: {error.strerror}.") from error
    return content.decode(errors="surrogateescape")


def _labels(pairs: list[str]) -> dict[str, str]:
    labels = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise UsageError(f"A label is written KEY=VALUE, not '{pair}'.")
        if not is_text(pair):
            raise UsageError("A label is not text (it has NUL or undecodable bytes).")
        labels[key] = value
    return labels


# -- add ---------------------------------------------------------------------------------------------------------------


def configure_add(parser: argparse.ArgumentParser) -> None:
    _task_options(parser)
    task_lists.configure(parser)


def run_add(arguments: argparse.Namespace) -> int:
    home = home_directory()
    commands = Commands(home)
    if task_lists.is_list(arguments):
        return task_lists.add_list(commands, _new_task(task_lists.without_source(arguments)), arguments)
    task = commands.add(_new_task(arguments))
    _print_notes(commands)
    running = Queries(home).supervisor()
    if arguments.json:
        found = {"id": task.id, "state": str(task.state), "supervisor": running is not None}
        print_json(found | {"parent_id": task.spec.parent_id})
        return 0
    print(task.id)
    if task.spec.parent_id is not None and arguments.parent is None:
        print(f"It is a subtask of {task.spec.parent_id}, whose agent adds it.", file=sys.stderr)
    _print_waits(home, task.id)
    if running is None:
        print(f"Queued. {no_supervisor()}", file=sys.stderr)
    return 0


# -- run ---------------------------------------------------------------------------------------------------------------


def configure_run(parser: argparse.ArgumentParser) -> None:
    _task_options(parser)
    parser.add_argument("--verbose", "-v", action="store_true", help="print every event of the task")
    parser.epilog = "Ctrl-C cancels the task. A second Ctrl-C returns at once, without waiting for the task's end."


def run_run(arguments: argparse.Namespace) -> int:
    home = home_directory()
    new = _new_task(arguments)
    _refuse_waiting(home, new.parent)
    commands = Commands(home)
    task = commands.add(new)
    _print_notes(commands)
    queries = Queries(home)
    if queries.supervisor() is None:
        _ensure_supervisor(queries)
    print(f"Task {task.id}: {one_line(task.spec.prompt, 70)}", file=sys.stderr)
    _print_unseen(queries, task)
    words, news = LiveEvents(queries, task.id), StatePrinter(task.id, verbose=arguments.verbose)
    with StatusLine(words) as bottom:
        final = _watch_task(commands, queries, task.id, bottom, words, news)
        words.go_on(final=True)
        if arguments.json:
            news.flush()
    if arguments.json:
        print_json(final)
    else:
        _print_end(queries, final)
    if final["state"] == "queued":  # it waits until a person resumes its account, or starts its worker
        _print_waits(home, task.id)
        return EXIT_OF_STATE["paused"]
    return EXIT_OF_STATE.get(final["state"], 130)


def _refuse_waiting(home: str, parent: str | None) -> None:
    from holdfast.api.tasks.subtasks import refuse_endless_wait

    refuse_endless_wait(home, parent)


def _print_notes(commands: Commands) -> None:
    for note in commands.notes:
        print(clean_text(note), file=sys.stderr)


def _print_waits(home: str, task_id: str) -> None:
    """Print why a queued task does not start soon, and what to type."""
    from holdfast.api.tasks.why.read import is_announced, read_waits
    from holdfast.api.tasks.why.text import sentences

    for reason in read_waits(Queries(home), task_id, in_line=False):
        if is_announced(reason):
            for line in sentences(reason, task_id):
                print(clean_text(line), file=sys.stderr)


def _ensure_supervisor(queries: Queries) -> None:
    from holdfast.api.home.daemon import ensure_supervisor

    pid = ensure_supervisor(queries)
    if pid is not None:
        print(f"Started a supervisor (pid {pid}); it ends after 60 s without work.", file=sys.stderr)


def _watch_task(
    commands: Commands, queries: Queries, task_id: str, bottom: StatusLine, words: LiveEvents, news: StatePrinter
) -> TaskDetails:
    """Show the agent and the task's states until the task ends, pauses or waits for a person. The first Ctrl-C cancels
    the task, the second detaches."""
    from holdfast.api.fleet.accounts import resumes_within_seconds
    from holdfast.api.home.daemon import refuse_another_start
    from holdfast.api.tasks.why.read import build_person_test

    interrupts = seen = starts = 0
    since = queries.last_seq()
    waits_for_person = build_person_test(queries)
    watching = follow_events(queries, after=0, task_id=task_id)
    while True:
        try:
            for events in watching:
                words.go_on()  # the agent's output first: the event of its end must follow its last line
                for event in events:
                    if event["kind"] == "run.ended":
                        words.finish(event["run"])  # what it took, before the states that follow
                    news.tell(event)
                    seen, starts = event["seq"], 0
                state = queries.state(task_id)
                bottom.update(state)
                if state["state"] in EXIT_OF_STATE and not events and not resumes_within_seconds(queries, state):
                    return _after_cleanup(queries, task_id)
                if not events and state["state"] == "queued" and waits_for_person(task_id):
                    return queries.task(task_id)
                if not events and queries.supervisor() is None and state["state"] in ("queued", "running"):
                    starts += 1
                    refuse_another_start(queries, task_id, starts, since)
                    _ensure_supervisor(queries)
        except KeyboardInterrupt:
            interrupts += 1
            watching = follow_events(queries, after=seen, task_id=task_id)  # the interrupted generator cannot continue
            if interrupts > 1:
                print(f"\nDetached. Task {task_id} is being cancelled: `holdfast why {task_id}`.", file=sys.stderr)
                return queries.task(task_id)
            print("\nCancelling (Ctrl-C again returns at once) …", file=sys.stderr)
            with contextlib.suppress(Conflict):  # the task ended at the same moment: its own end is shown
                commands.cancel(task_id, "Ctrl-C")


def _after_cleanup(queries: Queries, task_id: str) -> TaskDetails:
    """Return the task after its workspace was removed or preserved, so that its branch is final. Waits a few seconds at
    most."""
    deadline = time.monotonic() + CLEANUP_PATIENCE
    while True:
        task = queries.task(task_id)
        is_away = task["state"] == "paused" or task["workspace"]["state"] in (None, "trashed", "gone", "preserved")
        if is_away or time.monotonic() > deadline or queries.supervisor() is None:
            return task
        time.sleep(0.02)


def _print_end(queries: Queries, task: TaskDetails) -> None:
    from holdfast.api.tasks.explain import complete, explain_state, list_wait_reasons
    from holdfast.api.tasks.why.outcome import state_words
    from holdfast.api.tasks.why.read import is_announced

    complete(queries, task)  # the command that raises a spent budget depends on the budgets
    waits = list_wait_reasons(queries, task)
    if task["state"] == "queued":
        # the announced ones are printed on standard error
        waits = [reason for reason in waits if not is_announced(reason)]
    colour = {"completed": "green", "paused": "yellow"}.get(task["state"], "red")
    print(f"{paint(state_words(task), colour)} {task['id']}")
    for line in explain_state(task, waits):
        print(indent_text(line))
    if task["stage"] is not None and task["state"] in ("completed", "paused"):
        _print_last_answer(queries, task["id"])


def _print_last_answer(queries: Queries, task_id: str) -> None:
    """Print the answer of a workflow's last stage, which is the workflow's result."""
    from holdfast.api.tasks.results import read_results, stage_headings

    stages = read_results(queries, task_id)["stages"]
    told = [pair for pair in zip(stage_headings(stages), stages, strict=True) if pair[1]["text"].strip()]
    if not told:
        return
    name, last = told[-1]
    lines = clean_text(last["text"]).strip().splitlines()
    print(f"\nThe answer of {clean_text(name)}:")
    for line in lines[-MOST_ANSWER_LINES:]:
        print(f"  {line}".rstrip())
    more = len(lines) - MOST_ANSWER_LINES
    cut = f" ({more} lines before are not shown)" if more > 0 else ""
    print(f"\nAll answers{cut}: `holdfast report {task_id}`.")


def _print_unseen(queries: Queries, task: Task) -> None:
    """Print that the agent does not get the uncommitted changes of the checkout."""
    from holdfast.intake.repository import count_uncommitted

    if task.spec.strategy not in ("worktree", "clone", "container"):
        return
    count = count_uncommitted(queries.task(task.id)["repo"])
    if count:
        changes = "1 uncommitted change" if count == 1 else f"{count} uncommitted changes"
        print(
            clean_text(f"The agent does not see {changes} of your checkout: it starts from {task.spec.base_ref}. ")
            + "More: `holdfast help what-an-agent-sees`.",
            file=sys.stderr,
        )
