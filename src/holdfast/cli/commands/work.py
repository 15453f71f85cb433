"""Commands about a task's work: diff."""

from __future__ import annotations

import argparse
import sys

from holdfast.api.queries import Queries
from holdfast.base.home import home_directory
from holdfast.cli.output.render import clean, is_terminal, number, paint

_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def configure_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", help="a task's id, or the beginning of it")
    parser.add_argument("--stat", action="store_true", help="only which files, and how much")
    parser.add_argument("--checkpoint", type=number(1), metavar="N", help="what checkpoint N of it holds")


def run_diff(arguments: argparse.Namespace) -> int:
    from holdfast.api.work.diff import diff

    queries = Queries(home_directory())
    text = diff(queries, queries.resolve(arguments.id), stat=arguments.stat, checkpoint=arguments.checkpoint)
    if is_terminal():
        for line in clean(text).splitlines():
            print(paint(line, _DIFF_COLOURS.get(line[:1], "dim")) if line[:1] in _DIFF_COLOURS else line)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))  # exact, so that it can be applied
    if not text:
        print("No changes.", file=sys.stderr)
    return 0
