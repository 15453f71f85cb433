"""`holdfast top`: the fleet on one screen."""

from __future__ import annotations

import argparse
import sys

from holdfast import config
from holdfast.api.queries import Queries
from holdfast.errors import UsageError
from holdfast.home import home_directory
from holdfast.interfaces.cli.render import is_terminal


def configure_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bell", action="store_true", help="ring the terminal's bell once per critical alert")


def run_top(arguments: argparse.Namespace) -> int:
    home = home_directory()
    Queries(home)  # what is wrong with the store is said here, in one line, before the screen is taken
    if not all(is_terminal(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("`top` needs a terminal; in a script use `holdfast ps --json`.")
    from holdfast.interfaces.tui.app import Top

    app = Top(home, bell=arguments.bell or bool(config.best_effort()["top.bell"]))
    app.leaving.catch()
    app.run()
    return app.return_code or 0
