"""Commands for the home itself: backup, restore, purge."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from holdfast.errors import Refused
from holdfast.home import home_directory
from holdfast.interfaces.cli.render import print_json, size


def configure_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="where to (named after the time, in the home's backups)"
    )
    parser.add_argument("--store-only", action="store_true", help="only the database, without saved work")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument("--json", action="store_true", help="machine-readable output (stable, documented)")


def run_backup(arguments: argparse.Namespace) -> int:
    from holdfast.api.backup import make_backup

    made = make_backup(home_directory(), arguments.file, store_only=arguments.store_only, force=arguments.force)
    if arguments.json:
        facts = {"path": made.path, "size": made.size, "tasks": made.tasks, "salvages": made.salvages}
        print_json({**facts, "store_only": made.store_only})
        return 0
    what = "the store only" if made.store_only else f"{made.tasks} task(s), {made.salvages} piece(s) of saved work"
    print(f"{made.path}: {size(made.size)}, {what}, verified.")
    return 0


def configure_restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help="a backup: .tar, or a bare store (.db)")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")


def run_restore(arguments: argparse.Namespace) -> int:
    from holdfast.api.restore import carry_out, prepared, refuse_without_file

    home = home_directory()
    if arguments.file is None:
        raise refuse_without_file(home)
    with prepared(home, arguments.file) as plan:
        when = "" if plan.made_at is None else time.strftime(" of %Y-%m-%d %H:%M", time.localtime(plan.made_at))
        print(f"Backup{when}: {_contents(plan.counts)}.", file=sys.stderr)
        now = "missing or damaged" if plan.present is None else _contents(plan.present)
        print(f"Present store of {home}: {now}.", file=sys.stderr)
        if not arguments.yes:
            ask("Put the backup in its place? The present store is kept aside.", "yes")
        done = carry_out(plan)
    print(f"Restored {arguments.file}.")
    if done.kept_at is not None:
        print(f"The old store is kept as {done.kept_at}.")
    for name in done.left_alone:
        print(f"{os.path.join(home, name)} was left as it is; the backup has an older one.")
    print("Then: `holdfast doctor` names what the restored store does not know (nothing was deleted);")
    print("      `holdfast up` takes tasks that were running up again.")
    return 0


def _contents(counts: Mapping[str, Any]) -> str:
    tasks = ", ".join(f"{number} {state}" for state, number in sorted(counts["tasks"].items())) or "none"
    return f"tasks: {tasks}; {counts['salvages']} salvage(s); {counts['repos']} repository(s)"


def ask(question: str, word: str) -> None:
    """Go on only when a person types `word`. Without a terminal nobody can: refused."""
    if not sys.stdin.isatty():
        raise Refused("This is asked first, and there is no terminal to ask on: add --yes if you mean it.")
    print(f"{question} Type '{word}' to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != word:
        raise Refused("Nothing was changed.")
