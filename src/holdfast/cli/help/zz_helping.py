"""`holdfast help COMMAND`: the same as `holdfast COMMAND --help`."""

from __future__ import annotations

import argparse


def configure_help(parser: argparse.ArgumentParser) -> None:
    from holdfast.cli.main import COMMANDS

    parser.add_argument("topic", nargs="?", choices=list(COMMANDS), metavar="COMMAND", help="which one (all of them)")


def run_help(arguments: argparse.Namespace) -> int:
    from holdfast.cli.main import front_parser, parser_of

    (parser_of(arguments.topic) if arguments.topic else front_parser()).print_help()
    return 0
