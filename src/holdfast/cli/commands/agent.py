"""The command `agent`, which agents call about their own run. Imports very little, because agents call it often."""

from __future__ import annotations

import argparse
import os

from holdfast.base.errors import UsageError

ACTIONS = ("heartbeat", "progress", "checkpoint", "complete", "fail")
_NEED_A_MESSAGE = ("progress", "fail")


def configure_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="what to report")
    parser.add_argument("message", nargs="*", help="free text on one line, at most 900 characters")
    parser.add_argument("--note", metavar="TEXT", help="checkpoint: its purpose")
    parser.add_argument("--percent", metavar="N", type=_percent, help="progress: percentage, 0 to 100")


def run_agent(arguments: argparse.Namespace) -> int:
    from holdfast.api.agent_reports import ReportWriter

    action, message = arguments.action, " ".join(arguments.message).strip()
    if action in _NEED_A_MESSAGE and not message:
        raise UsageError(f'A text is required: `holdfast agent {action} "…"`.')
    if action == "heartbeat" and message:
        raise UsageError("A heartbeat has no message; `holdfast agent progress` has one.")
    if arguments.percent is not None and action != "progress":
        raise UsageError("--percent is only for `holdfast agent progress`.")
    if arguments.note is not None and action != "checkpoint":
        raise UsageError("--note is only for `holdfast agent checkpoint`.")
    if action == "checkpoint" and message:
        raise UsageError('Give the checkpoint\'s purpose with --note: `holdfast agent checkpoint --note "…"`.')
    reporter = ReportWriter(os.environ)
    if action == "heartbeat":
        reporter.heartbeat()
    else:
        reporter.report(action, message or arguments.note or "", arguments.percent)
    return 0


def _percent(word: str) -> float:
    try:
        value = float(word.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError("a percentage is a number from 0 to 100")
    return value
