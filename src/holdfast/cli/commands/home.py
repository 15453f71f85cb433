"""Commands for the home itself: sweep, backup, restore, purge."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import Refused
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option
from holdfast.cli.output.render import clean_text, print_json, size
from holdfast.config import user_file_path

if TYPE_CHECKING:  # imported only in `purge`: `backup` must not pay for it
    from holdfast.api.home.models import PurgedRow, RestoredRow
    from holdfast.api.home.purge import PurgePlan


def configure_backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", metavar="FILE", help="the file (default: named after the time, in the home's backups)"
    )
    parser.add_argument("--store-only", action="store_true", help="only the database, without saved work")
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    add_json_option(parser)


def run_backup(arguments: argparse.Namespace) -> int:
    from holdfast.api.home.backup import make_backup

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
    add_json_option(parser)


def run_restore(arguments: argparse.Namespace) -> int:
    from holdfast.api.home.restore import missing_file_error, prepare_restore, restore_backup

    home = home_directory()
    if arguments.file is None:
        raise missing_file_error(home)
    with prepare_restore(home, arguments.file) as plan:
        when = "" if plan.made_at is None else time.strftime(" of %Y-%m-%d %H:%M", time.localtime(plan.made_at))
        print(f"Backup{when}: {_contents(plan.counts)}.", file=sys.stderr)
        now = "missing or damaged" if plan.present is None else _contents(plan.present)
        print(f"Current store of {home}: {now}.", file=sys.stderr)
        if not arguments.yes:
            confirm("Replace it with the backup? The current store is kept aside.", "yes")
        done = restore_backup(plan)
    if arguments.json:
        restored: RestoredRow = {
            "path": os.path.abspath(arguments.file),
            "made_at": plan.made_at,
            "tasks": plan.counts["tasks"],
            "salvages": plan.counts["salvages"],
            "kept_at": done.kept_at,
            "left_alone": [os.path.join(home, name) for name in done.left_alone],
        }
        print_json(restored)
        return 0
    print(f"Restored {arguments.file}.")
    if done.kept_at is not None:
        print(f"The old store is kept as {done.kept_at}.")
    for name in done.left_alone:
        print(f"{os.path.join(home, name)} was left as it is; the backup has an older version.")
    print("Then: `holdfast doctor` lists objects that the restored store does not know (nothing was deleted);")
    print("      `holdfast up` continues tasks that were running.")
    return 0


def _contents(counts: Mapping[str, Any]) -> str:
    tasks = ", ".join(f"{number} {state}" for state, number in sorted(counts["tasks"].items())) or "none"
    return f"tasks: {tasks}; {counts['salvages']} salvage(s); {counts['repos']} repository(s)"


def configure_purge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repo", metavar="DIR", help="only the records of this repository")
    parser.add_argument("--branches", action="store_true", help="delete the branches of Holdfast's tasks too")
    parser.add_argument("--export", metavar="DIR", help="first export work that exists only here, as git bundles")
    parser.add_argument("--discard-work", action="store_true", help="discard work that exists only here")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", "-y", action="store_true", help="do not ask")
    add_json_option(parser)


def run_purge(arguments: argparse.Namespace) -> int:
    from holdfast.api.home import purge

    home = home_directory()
    purge.refuse_both(arguments.discard_work, arguments.export)
    told: PurgedRow = {
        "home": home,
        "repo": None,
        "dry_run": arguments.dry_run,
        "found": [],
        "exported": [],
        "kept": [],
    }
    with purge.open_plan(home, arguments.repo) as plan:
        if plan is None:
            return _print_purged(told, f"There is nothing of Holdfast in {home}.", as_json=arguments.json)
        purge.refuse_unfinished(plan)
        told["repo"] = None if plan.only is None else plan.only.path
        told["found"] = purge_lines(plan, branches=arguments.branches)
        if not arguments.json:
            print("\n".join(told["found"]))
        if arguments.dry_run:
            looked = "Nothing was removed (--dry-run). Workspaces would be checked for unsaved work first."
            return _print_purged(told, looked, as_json=arguments.json)
        with purge.lock_workspaces(plan):
            plan = _salvage_first(plan, arguments)
            if not arguments.yes:
                confirm("All of this will be removed for good.", "purge")
                plan = _salvage_first(plan, arguments)  # also save what was written while we waited for the answer
            for path in purge.export_saved_work(plan, os.path.abspath(arguments.export)) if arguments.export else ():
                told["exported"].append(str(path))
                if not arguments.json:
                    print(f"Saved work: {path}")
            told["kept"] = [clean_text(line) for line in purge.purge(plan, branches=arguments.branches)]
    kept = "".join(f"\n  {line}" for line in told["kept"])
    return _print_purged(told, f"Removed, except:{kept}" if kept else "Removed.", as_json=arguments.json)


def _print_purged(told: PurgedRow, message: str, *, as_json: bool) -> int:
    if as_json:
        print_json(told)
    else:
        print(message)
    return 0


def _salvage_first(plan: PurgePlan, arguments: argparse.Namespace) -> PurgePlan:
    """Return the plan after the content of the workspaces was salvaged. Raise Refused if work would be lost."""
    from holdfast.api.home import purge

    if not arguments.discard_work:
        plan, problems = purge.save_workspaces(plan)
        purge.refuse_loss(() if arguments.export else plan.found.saved, problems)
    return plan


def purge_lines(plan: PurgePlan, *, branches: bool) -> list[str]:
    """Return the list of what a purge would remove, printed before the question."""
    from holdfast.api.work.workspaces import measure_directory

    tasks = ", ".join(f"{number} {state}" for state, number in sorted(plan.found.tasks.items())) or "none"
    if plan.only is None:
        lines = [
            f"home        {plan.home} ({size(measure_directory(plan.home))}), its backups included; tasks: {tasks}"
        ]
    else:
        lines = [f"records     of {plan.only.path} in {plan.home}; tasks: {tasks}"]
    for things in plan.found.repos:
        fate = "removed" if branches else "kept"
        names = f"; branches {fate}: {', '.join(things.branches)}" if things.branches else ""
        lines.append(f"repository  {things.repo.path}: {len(things.entries)} worktree entry(s) of Holdfast{names}")
    lines += [f"workspace   {workspace.path} ({workspace.state})" for workspace in plan.found.workspaces]
    lines += [f"workspace   {path} (made by Holdfast, but unknown to the store)" for path in plan.found.unknown]
    lines += [
        f"saved work  of task {work.task_id}: {work.files} file(s), commit {work.commit[:12]}, on no branch"
        for work in plan.found.saved
    ]
    lines += [f"left alone  {path}" for path in plan.found.foreign]
    if plan.only is None:
        lines += [f"left alone  {os.path.join(plan.home, name)}" for name in plan.strangers]
        lines.append(f"left alone {user_file_path()} and every holdfast.toml, which are yours")
    return [clean_text(line) for line in lines]


def confirm(question: str, word: str) -> None:
    """Continue only if a person types `word`. Raises Refused without a terminal."""
    if not sys.stdin.isatty():
        raise Refused("This needs a confirmation, but there is no terminal: add --yes if you are sure.")
    print(f"{question} Type '{word}' to continue: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != word:
        raise Refused("Nothing was changed.")


def configure_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="show what would be done, and change nothing")
    add_json_option(parser)


def run_sweep(arguments: argparse.Namespace) -> int:
    from holdfast.api.home.sweep import plan, sweep

    home = home_directory()
    if arguments.dry_run:
        found = plan(home)
        for row in found:
            print_json(row) if arguments.json else print(f"{row['action'].ljust(14)} {clean_text(row['text'])}")
        if not arguments.json:
            print("Nothing is left over." if not found else f"{len(found)} finding(s); nothing was changed.")
        return 0
    done = sweep(home)
    if arguments.json:
        print_json(done)
    else:
        _print_swept(done)
    return 1 if done["failed_count"] or done["root_owned_skipped"] else 0


def _print_swept(done: Mapping[str, Any]) -> None:
    print(
        f"Removed {done['swept_count']}, corrected {done['healed']}, ended {done['processes_ended']} process(es) in "
        f"{done['duration_ms'] / 1000:.1f} s; {done['preserved']} preserved, {len(done['foreign'])} foreign."
    )
    lists = (("foreign, left alone", "foreign"), ("in use", "in_use"), ("for your review", "reported"))
    for words, key in (*lists, ("skipped: no permission", "skipped"), ("failed, tried again", "failed")):
        for line in done[key]:
            print(f"  {words}: {clean_text(line)}")
