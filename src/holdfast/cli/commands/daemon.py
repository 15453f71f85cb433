"""Commands about the whole installation: up, down, doctor, rehearse, service."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from holdfast.api.outcome import NoSupervisor
from holdfast.base.errors import Conflict, Unavailable, UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, indent_text, number, paint, print_json

if TYPE_CHECKING:
    from holdfast.api.home.models import StartedRow, StoppedRow

DOWN_PATIENCE = 120.0


def configure_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--agents", type=number(0), metavar="N", help="how many agents run at once (4), in addition to named workers"
    )
    parser.add_argument("--detach", "-d", action="store_true", help="in the background")
    parser.add_argument("--idle-exit", metavar="T", help="stop after this long without work, e.g. 60s")
    add_json_option(parser)
    parser.epilog = (
        "The first Ctrl-C or SIGTERM stops in good order: agents get their grace, and their tasks stay queued. The "
        "second ends agents fast. The third ends the supervisor like a crash."
    )


def run_up(arguments: argparse.Namespace) -> int:
    from holdfast.api.format import parse_duration_option
    from holdfast.api.home.daemon import log_file, run_here, start_detached, take_over

    home = home_directory()
    idle = parse_duration_option("--idle-exit", arguments.idle_exit)
    if arguments.json and not arguments.detach:
        raise UsageError("--json needs --detach: `holdfast up` in the foreground has no result. Nothing was started.")
    taken_over = take_over(home, agents=arguments.agents, idle_exit=idle)
    if taken_over is None:
        try:
            if not arguments.detach:
                _print_holds(home)
                run_here(home, agents=arguments.agents, idle_exit=idle)
                return 0
            pid = start_detached(home, agents=arguments.agents, idle_exit=arguments.idle_exit)
        except Conflict:  # another one was started at the same moment
            taken_over = take_over(home, agents=arguments.agents, idle_exit=idle)
            if taken_over is None:
                raise
    if arguments.json:
        return _print_started(home, taken_over)
    print(f"Supervisor started, pid {pid}; its log: {log_file(home)}" if taken_over is None else taken_over)
    _print_workers()
    _print_holds(home)
    return 0


def _print_started(home: str, taken_over: str | None) -> int:
    from holdfast.api.fleet.dispatch import list_holds
    from holdfast.api.home.daemon import log_file
    from holdfast.api.queries import Queries

    queries = Queries(home)
    running = queries.supervisor()
    started: StartedRow = {
        "pid": None if running is None else running["pid"],
        "started": taken_over is None,
        "note": taken_over,
        "log": log_file(home),
        "workers": _worker_names(),
        "holds": [row["hold"] for row in list_holds(queries)],
    }
    print_json(started)
    return 0


def _worker_names() -> list[str]:
    from holdfast.config import load_valid_values

    return [worker.name for worker in load_valid_values().workers]


def _print_workers() -> None:
    names = _worker_names()
    if names:
        print(f"Named workers: {', '.join(names)}; `holdfast worker list` shows what each does.")


def _print_holds(home: str) -> None:
    """Print the holds, so that the user knows why the supervisor starts nothing."""
    from holdfast.api.fleet.dispatch import describe_hold_row, list_holds
    from holdfast.api.queries import Queries
    from holdfast.base.errors import Unavailable

    try:
        found = list_holds(Queries(home))
    except Unavailable:  # the store does not exist yet, or has to be migrated first
        return
    for row in found:
        print(
            clean_text(
                f"Held back: {describe_hold_row(row)}. `holdfast dispatch release {row['hold']}` lets it start."
            ),
            flush=True,
        )


def configure_down(parser: argparse.ArgumentParser) -> None:
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--now",
        action="store_true",
        help="end agents at once (each within 2 s)",
    )
    how.add_argument("--keep-agents", action="store_true", help="leave agents running; the next `up` adopts them")
    add_json_option(parser)


def run_down(arguments: argparse.Namespace) -> int:
    from holdfast.api.commands import Commands
    from holdfast.api.queries import Queries

    home = home_directory()
    queries = Queries(home)
    running = queries.supervisor()
    mode = "now" if arguments.now else "keep-agents" if arguments.keep_agents else "graceful"
    if running is None:
        if arguments.json:
            nothing: StoppedRow = {"stopped": False, "pid": None, "mode": mode}
            print_json(nothing)
        else:
            print(f"{NoSupervisor.IN_STATUS.capitalize()}.")
        return 0
    Commands(home, create=False).down(mode)
    deadline = time.monotonic() + DOWN_PATIENCE
    while time.monotonic() < deadline:
        now_running = queries.supervisor()
        if now_running is None or now_running["id"] != running["id"]:
            queries.wait_gone(running, deadline)
            if arguments.json:
                stopped: StoppedRow = {"stopped": True, "pid": running["pid"], "mode": mode}
                print_json(stopped)
                return 0
            kept = "Stopped. Agents continue under their keepers, for `health.orphan_grace` (2 m) at most."
            print(kept if mode == "keep-agents" else "Stopped.")
            return 0
        time.sleep(0.02)
    raise Unavailable(f"The supervisor (pid {running['pid']}) has not stopped yet, but the request is recorded.")


def configure_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--invariants", action="store_true", help="let the independent checker verify the five promises"
    )
    parser.add_argument(
        "--at-rest",
        action="store_true",
        help="with --invariants: also require that every task has ended and nothing is in progress",
    )
    parser.add_argument(
        "--witness",
        metavar="FILE",
        help="with --invariants: a file of outside observations (format: `holdfast help faults`)",
    )
    parser.add_argument("--fix", action="store_true", help="first remove leftovers, as `holdfast sweep` does")
    add_json_option(parser)


def run_doctor(arguments: argparse.Namespace) -> int:
    if arguments.invariants:
        if arguments.fix:
            raise UsageError("--fix cannot be combined with --invariants: the independent checker changes nothing.")
        return _check_promises(arguments)
    if arguments.fix:
        from holdfast.api.home.sweep import sweep
        from holdfast.base.platform import refuse_unsupported

        refuse_unsupported("`holdfast doctor --fix`")
        sweep(home_directory())
    if arguments.at_rest or arguments.witness:
        raise UsageError("--at-rest and --witness belong to `holdfast doctor --invariants`.")
    from holdfast.api.home.doctor import run_doctor_checks

    findings = run_doctor_checks(home_directory())
    problems = sum(1 for finding in findings if finding.level == "problem")
    for finding in findings:
        if arguments.json:
            print_json({"level": finding.level, "what": finding.what, "text": finding.text, "data": finding.data})
        else:
            colour = {"ok": "green", "note": "yellow", "problem": "red"}[finding.level]
            print(f"{paint(finding.level.ljust(8), colour)} {finding.what.ljust(12)} {clean_text(finding.text)}")
    if not arguments.json:
        print("All well." if problems == 0 else f"{problems} problem(s).")
    return 0 if problems == 0 else 1


def _check_promises(arguments: argparse.Namespace) -> int:
    from holdfast.api.home.doctor import check_promises

    found = check_promises(home_directory(), at_rest=arguments.at_rest, witness=arguments.witness)
    for violation in found:
        if arguments.json:
            print_json({"promise": violation.promise, "rule": violation.rule, "text": violation.text})
        else:
            print(f"{paint(violation.promise.ljust(8), 'red')} {violation.rule.ljust(14)} {clean_text(violation.text)}")
    if not arguments.json:
        print("The five promises hold." if not found else f"{len(found)} violation(s).")
    return 0 if not found else 1


def configure_rehearse(parser: argparse.ArgumentParser) -> None:
    from holdfast.api.rehearse import STUB_SCENARIOS

    parser.add_argument("file", nargs="?", help="a scenario file; `holdfast help scripted-agent` explains the format")
    parser.add_argument(
        "--agent", metavar="NAME", help="rehearse with this installed CLI, against a stub of its provider"
    )
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        help=f"what the provider stub does (default: tool): {', '.join(STUB_SCENARIOS)}; `holdfast help stub-llm`",
    )
    parser.add_argument("--timeout", metavar="T", help="end a run after this long, e.g. 5s")
    add_json_option(parser)


def run_rehearse(arguments: argparse.Namespace) -> int:
    if arguments.agent is not None and arguments.file is None:
        return _rehearse_agent(arguments)
    if arguments.file is None or arguments.agent is not None or arguments.scenario is not None:
        raise UsageError(
            "Give either a scenario file, or --agent NAME and perhaps --scenario NAME: `holdfast help rehearse`."
        )
    from holdfast.api.format import parse_duration_option
    from holdfast.api.rehearse import rehearse
    from holdfast.api.tasks.explain import state_lines

    task, left = rehearse(arguments.file, timeout=parse_duration_option("--timeout", arguments.timeout))
    if arguments.json:
        print_json({"id": task["id"], "state": task["state"], "outcome": task["outcome"], "left_behind": left})
    else:
        print(f"The task ended {paint(task['state'], 'bold')} after {len(task['runs'])} run(s).")
        print(indent_text(state_lines(task)[0]))
        print("Nothing was left behind." if not left else "Left behind:\n  " + "\n  ".join(left))
    sys.stdout.flush()
    return 0 if task["state"] == "completed" and not left else 75 if task["state"] == "paused" else 1


def _rehearse_agent(arguments: argparse.Namespace) -> int:
    from holdfast.api.format import parse_duration_option
    from holdfast.api.rehearse import rehearse_agent, thresholds

    scenario = arguments.scenario or "tool"
    seen = rehearse_agent(arguments.agent, scenario, timeout=parse_duration_option("--timeout", arguments.timeout))
    if arguments.json:
        print_json(
            {
                "id": seen.task["id"],
                "state": seen.state,
                "outcome": seen.outcome,
                "seconds": round(seen.seconds, 3),
                "reason": seen.reason,
                "next": seen.then,
                "requests": seen.requests,
                "left_behind": list(seen.left),
            }
        )
    else:
        print(
            f"{clean_text(arguments.agent)}, {clean_text(scenario)}: {paint(seen.outcome, 'bold')}"
            f" after {seen.seconds:.1f} s."
        )
        print(f"Why: {clean_text(seen.reason)}.")
        print(f"What Holdfast does next: {seen.then}")
        print(f"The agent asked its model {seen.requests} time(s).")
        print("Nothing was left behind." if not seen.left else "Left behind:\n  " + "\n  ".join(seen.left))
        small = ", ".join(f"health.{key} = {value}" for key, value in thresholds(arguments.agent).items())
        print(f"A rehearsal uses short timeouts ({small}) and full permissions, not your settings.")
    sys.stdout.flush()
    return 1 if seen.left else {"completed": 0, "paused": 75, "queued": 75}.get(seen.state, 1)


def configure_service(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("install", "show", "uninstall"), help="what to do")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--user", action="store_true", help="a service of your user manager (default unless you are root)"
    )
    scope.add_argument("--system", action="store_true", help="a system service, with root's clean-up before each start")
    parser.add_argument(
        "--run-as",
        metavar="USER",
        help="with --system: the user who owns the agents (default: the user who called sudo)",
    )
    parser.add_argument("--name", default="holdfast", help="the unit's name (default: holdfast)")
    parser.add_argument("--root", metavar="DIR", help="use this directory instead of /, like systemctl --root")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    parser.add_argument(
        "--force", action="store_true", help="replace a file that Holdfast did not write; `uninstall` restores it"
    )
    add_json_option(parser)


def run_service(arguments: argparse.Namespace) -> int:
    from holdfast.api.home import service

    system = arguments.system or (not arguments.user and os.geteuid() == 0)
    wanted = service.resolve_service(system=system, name=arguments.name, run_as=arguments.run_as, root=arguments.root)
    if arguments.action == "show":
        path, state = wanted.path(wanted.unit_file), wanted.state()
        if arguments.json:
            print_json({"path": path, "state": state, "system": system, "text": wanted.text})
            return 0
        print(wanted.text, end="")
        print(f"{path}: {_UNIT_STATES[state]}", file=sys.stderr)
        return 0
    act = service.install if arguments.action == "install" else service.uninstall
    lines = act(wanted, dry_run=arguments.dry_run, force=arguments.force)
    if arguments.json:
        print_json({"path": wanted.path(wanted.unit_file), "did": lines, "dry_run": arguments.dry_run})
        return 0
    for line in lines or [f"{wanted.path(wanted.unit_file)} is already in place."]:
        print(line)
    if arguments.action == "install" and not arguments.dry_run:
        print(f"Then: `{wanted.systemctl} enable --now {wanted.unit.name}` starts it, now and after every boot;")
        print(f"      `{wanted.systemctl} status {wanted.unit.name}` shows it, with the line of `holdfast-cleanup`.")
        if not system:
            print("      `loginctl enable-linger` lets the service run while you are not logged in.")
    return 0


_UNIT_STATES = {
    "absent": "not installed; `holdfast service install` writes it",
    "same": "installed, exactly this",
    "older": "installed by another version of Holdfast; `holdfast service install` updates it",
    "other": "the service of another home; choose another --name",
    "changed": "installed, and changed by hand since",
    "foreign": "not ours",
}
