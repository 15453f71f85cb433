"""`holdfast top`: the fleet on one screen."""

from __future__ import annotations

import argparse
import io
import os
import sys

from holdfast import config
from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.render import is_terminal


def configure_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bell", action="store_true", help="ring the terminal's bell once per critical alert")
    parser.add_argument("--once", action="store_true", help="print what there is to see, as plain text, and end")
    parser.add_argument("--all", "-a", action="store_true", help="with --once: finished tasks too (on screen: key e)")
    parser.add_argument("--json", action="store_true", help="with --once: one object (stable, documented)")


def run_top(arguments: argparse.Namespace) -> int:
    home = home_directory()
    if arguments.once:
        from holdfast.cli.commands.top import snapshot

        return snapshot(home, everything=arguments.all, as_object=arguments.json)
    if arguments.all or arguments.json:
        raise UsageError("`--all` and `--json` go with `--once`; on screen the key e shows finished tasks too.")
    Queries(home)  # what is wrong with the store is said here, in one line, before the screen is taken
    if not all(is_terminal(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("`top` needs a terminal; in a script use `holdfast top --once` (or with `--json`).")
    _prepare_terminal()
    from holdfast.tui.app import Top

    app = Top(home, bell=arguments.bell or bool(config.best_effort()["top.bell"]))
    app.leaving.catch()
    app.run()
    if not app.errands.finish():
        print("holdfast: what was asked for last has not ended; `holdfast events` tells.", file=sys.stderr)
    return app.return_code or 0


def _prepare_terminal() -> None:
    """Its own size counts: what a shell exported once is wrong after the next change of it. And what its character set
    does not have is one question mark, not six letters that push the rest of the line aside."""
    if all(os.get_terminal_size(1)):
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)
    screen = sys.__stderr__  # Textual's choice
    if isinstance(screen, io.TextIOWrapper) and screen.encoding.lower() != "utf-8":
        screen.reconfigure(errors="replace")
