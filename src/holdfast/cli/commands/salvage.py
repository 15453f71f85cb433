"""The command `salvage`: work that was saved before its workspace was removed."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.base.units import show_duration
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import (
    clean_text,
    format_age,
    indent_text,
    is_terminal,
    one_line,
    print_json,
    print_table,
    size,
)

if TYPE_CHECKING:
    from holdfast.api.work.models import SalvageRow

_ACTIONS = ("list", "show", "restore", "prune")
_STATUS = {"A": "new", "M": "changed", "D": "deleted", "T": "another type"}
_SHOWN = 200  # files that `show` prints for people


def configure_salvage(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=_ACTIONS, default="list", help="what to do (list)")
    parser.add_argument(
        "id", nargs="?", help="the id of a salvage, or of a task (its newest salvage); the first letters are enough"
    )
    parser.add_argument("--branch", metavar="NAME", help="restore: make this new branch of the repository")
    parser.add_argument("--to", metavar="DIR", help="restore: write the files to this new or empty directory")
    parser.add_argument(
        "--staged", action="store_true", help="show --patch, restore: the staged content instead of the files"
    )
    parser.add_argument("--patch", action="store_true", help="show: print a patch that `git apply` accepts")
    parser.add_argument("--task", metavar="ID", help="list, prune: all salvages of this task")
    parser.add_argument("--yes", action="store_true", help="prune: delete without a question")
    parser.add_argument("--dry-run", action="store_true", help="prune: only show what would be deleted")
    add_json_option(parser)


def run_salvage(arguments: argparse.Namespace) -> int:
    _refuse_misplaced(arguments)
    queries = Queries(home_directory())
    run = {"list": _list, "show": _show, "restore": _restore, "prune": _prune}[arguments.action]
    return run(queries, arguments)


def _refuse_misplaced(arguments: argparse.Namespace) -> None:
    meant = {
        "branch": ("restore",),
        "to": ("restore",),
        "staged": ("show", "restore"),
        "patch": ("show",),
        "task": ("list", "prune"),
        "yes": ("prune",),
        "dry_run": ("prune",),
    }
    for name, actions in meant.items():
        if getattr(arguments, name) not in (None, False) and arguments.action not in actions:
            raise UsageError(f"--{name.replace('_', '-')} is for `salvage {'` and `salvage '.join(actions)}`.")
    if arguments.id is not None and arguments.task is not None:
        raise UsageError("Give either an id or --task, not both.")


def _list(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.work.salvage import list_salvages

    wanted = arguments.task if arguments.id is None else arguments.id
    rows = list_salvages(queries, None if wanted is None else queries.resolve(wanted))
    if arguments.json:
        for row in rows:
            print_json(row)
    elif not rows:
        print("Nothing was salvaged.")
    else:
        print_table(
            ("ID", "TASK", "AGE", "FILES", "SIZE", "EXPIRES", "WHY"),
            [
                [
                    row["id"],
                    row["task"],
                    format_age(row["created_at"]),
                    str(row["files"]),
                    "-" if row["size"] is None else size(row["size"]),
                    _expiry(row),
                    one_line(row["reason"] + (" (partial)" if row["partial"] else ""), 60),
                ]
                for row in rows
            ],
        )
    return 0


def _expiry(row: SalvageRow) -> str:
    if row["expires_at"] is None:
        return "never"
    left = row["expires_at"] - time.time()
    return f"in {show_duration(max(60.0, left // 60 * 60))}" if left > 0 else "now"


def _show(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.work.salvage import find_salvage, list_files, render_patch

    row = find_salvage(queries, _required_id(arguments, "show ID"))
    if arguments.patch:
        text = render_patch(queries.home, row, staged=arguments.staged)
        if arguments.json:
            print_json({**row, "patch": text.encode(errors="surrogateescape").decode(errors="replace")})
        elif is_terminal():
            print(clean_text(text), end="")
        else:
            sys.stdout.flush()
            # exact bytes, so that the patch can be applied
            sys.stdout.buffer.write(text.encode(errors="surrogateescape"))
        return 0
    if arguments.staged:
        raise UsageError("--staged needs --patch here: `holdfast salvage show ID --patch --staged`.")
    changed = list_files(queries.home, row)
    if arguments.json:
        named = [
            {**one, "path": one["path"].encode(errors="surrogateescape").decode(errors="replace")} for one in changed
        ]
        print_json({**row, "changed": named})
        return 0
    for line in _facts(row):
        print(indent_text(line))
    for one in changed[:_SHOWN]:
        print(f"  {_STATUS.get(one['status'], one['status']):<12}  {one_line(one['path'], 200)}")
    if len(changed) > _SHOWN:
        print(f"  … and {len(changed) - _SHOWN} more")
    return 0


def _facts(row: SalvageRow) -> list[str]:
    details = row["details"]
    lines = [
        f"salvage {row['id']} of task {row['task']}, saved {format_age(row['created_at'])} ago: {row['reason']}",
        f"  repository  {row['repo']}",
        f"  commit      {row['commit']}, based on {row['base'] or 'nothing'}",
        f"  expires     {_expiry(row)}",
    ]
    if row["size"] is not None:
        lines.append(f"  size        {size(row['size'])} in {row['files']} file(s)")
    words = {
        "operation": "a {} was under way; its state is saved",
        "unmerged": "{} file(s) in conflict, saved with every side",
        "commits": "{} commit(s) that no branch held",
    }
    lines += [f"  also        {text.format(details[name])}" for name, text in words.items() if details.get(name)]
    if details.get("index") == "saved":
        lines.append(f"  also        staged content that differs: `holdfast salvage show {row['id']} --patch --staged`")
    if row["partial"]:
        missing = ", ".join(str(name) for name in details.get("not_saved", []))
        lines.append(f"  PARTIAL     could not be read: {one_line(missing, 200)}; its workspace was preserved")
    return lines


def _restore(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.work.salvage import find_salvage, restore_branch, restore_to

    if (arguments.branch is None) == (arguments.to is None):
        raise UsageError("Name the destination: `holdfast salvage restore ID --branch NAME`, or `--to DIR`.")
    row = find_salvage(queries, _required_id(arguments, "restore ID --branch NAME"))
    if arguments.branch is not None:
        restore_branch(queries.home, row, arguments.branch, staged=arguments.staged)
        done = f"The saved work of {row['task']} is now branch {arguments.branch} of {row['repo']}."
    else:
        path = restore_to(queries.home, row, arguments.to, staged=arguments.staged)
        done = f"The saved work of {row['task']} is now in {path}."
    if arguments.json:
        print_json({"salvage": row["id"], "task": row["task"], "branch": arguments.branch, "to": arguments.to})
    else:
        print(done)
        if row["partial"]:
            print("The salvage is partial: `holdfast salvage show` lists what could not be read.", file=sys.stderr)
    return 0


def _prune(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.work.salvage import drop_salvages, expired, find_salvage, list_salvages

    if arguments.id is not None:
        rows = [find_salvage(queries, arguments.id)]
    elif arguments.task is not None:
        rows = list_salvages(queries, queries.resolve(arguments.task))
    else:
        rows = expired(queries)
    is_named = arguments.id is not None or arguments.task is not None
    if is_named and rows and not arguments.yes and not arguments.dry_run:
        raise UsageError(
            f"{len(rows)} salvage(s) would be deleted for good ({', '.join(row['id'] for row in rows[:5])}). "
            "Add --yes to do it, --dry-run to look."
        )
    given_back = True if arguments.dry_run or not rows else drop_salvages(queries.home, rows)
    if arguments.json:
        for row in rows:
            print_json({**row, "dropped": not arguments.dry_run})
        return 0
    word = "would be" if arguments.dry_run else "were"
    print(f"{len(rows)} salvage(s) {word} dropped." if rows else "Nothing to drop.")
    if not given_back:
        print("The supervisor frees their disk space within the hour.", file=sys.stderr)
    return 0


def _required_id(arguments: argparse.Namespace, usage: str) -> str:
    if arguments.id is None:
        raise UsageError(f"Name the salvage: `holdfast salvage {usage}`.")
    return str(arguments.id)
