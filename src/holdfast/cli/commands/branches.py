"""Commands that bring a task's work into the user's branches: diff, merge, pr, branches."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.api.queries import Queries
from holdfast.base.errors import UsageError
from holdfast.base.home import home_directory
from holdfast.cli.output.options import add_json_option, add_task_id
from holdfast.cli.output.render import clean_text, is_terminal, number, paint, print_json, print_table
from holdfast.cli.output.selection import add_selection, choose_tasks, print_results

if TYPE_CHECKING:
    from holdfast.api.tasks.batches import TaskResult
    from holdfast.api.tasks.models import TaskDetails
    from holdfast.api.work.merge import MergeResult
    from holdfast.api.work.models import MergedRow, PullRequestRow


def configure_merge(parser: argparse.ArgumentParser) -> None:
    add_selection(parser)
    parser.add_argument("--into", metavar="BRANCH", help="the target branch (default: the task's base)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--no-ff", action="store_true", help="always make a merge commit")
    how.add_argument("--squash", action="store_true", help="make one commit with all changes")
    parser.add_argument("--message", "-m", metavar="TEXT", help="message of the new commit (default: from the prompt)")
    add_json_option(parser)


def _merge(queries: Queries, task: TaskDetails, arguments: argparse.Namespace) -> MergeResult:
    from holdfast.api.work.merge import merge

    return merge(
        queries.home,
        task,
        arguments.into,
        no_ff=arguments.no_ff,
        squash=arguments.squash,
        message=arguments.message,
    )


def _has_work(task_id: str, arguments: argparse.Namespace) -> bool:
    """True if a task that a filter finds has something to merge."""
    from holdfast.api.work.merge import has_unmerged_work

    queries = Queries(home_directory())
    return has_unmerged_work(queries, queries.task(task_id), arguments.into)


def _merge_many(queries: Queries, ids: list[str], arguments: argparse.Namespace) -> int:
    """Merge one task after the other: each merge starts from the result of the one before."""
    from holdfast.api.tasks.batches import REFUSALS, TaskResult, refused

    def results() -> Iterator[TaskResult]:
        for task_id in ids:
            try:
                done = _merge(queries, queries.task(task_id), arguments)
            except REFUSALS as error:
                yield refused(task_id, error)
            else:
                yield TaskResult(task_id, _describe_merge(done))

    return print_results(queries, results(), as_json=arguments.json)


def _describe_merge(done: MergeResult) -> str:
    if done.how == "already there":
        return f"{done.target} has all of {done.source} already."
    where = f" {done.checkout} has it checked out." if done.checkout else ""
    return f"{done.source} is merged into {done.target} ({done.how}, {done.commit[:12]}).{where}"


def run_merge(arguments: argparse.Namespace) -> int:
    queries = Queries(home_directory())
    chosen = choose_tasks(queries, arguments, "merge", keep=lambda _queries, task_id: _has_work(task_id, arguments))
    if chosen.is_many:
        return _merge_many(queries, chosen.ids, arguments)
    task = queries.task(chosen.ids[0])
    done = _merge(queries, task, arguments)
    if arguments.json:
        merged: MergedRow = {
            "task": task["id"],
            "branch": done.source,
            "into": done.target,
            "commit": done.commit,
            "how": done.how,
        }
        print_json(merged)
        return 0
    print(_describe_merge(done))
    if done.how != "already there":
        print("`holdfast branches prune` deletes branches that are merged.")
    return 0


def configure_pr(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument(
        "--base", metavar="BRANCH", help="the target branch of the pull request (default: the task's base)"
    )
    parser.add_argument("--remote", metavar="NAME", help="where to push (default: origin)")
    parser.add_argument("--draft", action="store_true", help="open the pull request as a draft")
    parser.add_argument(
        "--push-only", action="store_true", help="push the branch and print where to open the pull request"
    )
    add_json_option(parser)


def run_pr(arguments: argparse.Namespace) -> int:
    from holdfast.api.work.pull_request import (
        build_pull_request,
        find_gh,
        open_pull_request,
        push_branch,
        refuse_after_changes,
    )

    queries = Queries(home_directory())
    task = queries.task(queries.resolve(arguments.id))
    refuse_after_changes(queries, task)
    proposal = build_pull_request(task, remote=arguments.remote, base=arguments.base)
    gh = None if arguments.push_only else find_gh()
    print(f"Pushing {proposal.branch} to {clean_text(', '.join(proposal.urls))}", file=sys.stderr, flush=True)
    if gh is not None:
        page: str | None = open_pull_request(proposal, gh, draft=arguments.draft)
    else:
        push_branch(proposal)
        page = proposal.compare_page
    if arguments.json:
        opened: PullRequestRow = {
            "task": task["id"],
            "branch": proposal.branch,
            "base": proposal.base,
            "remote": proposal.remote,
            "urls": proposal.urls,
            "opened": gh is not None,
            "page": page or None,
        }
        print_json(opened)
        return 0
    if gh is not None:
        print(clean_text(page or ""))
        return 0
    draft = ", as a draft" if arguments.draft else ""
    print(f"Pushed. {f'Open the pull request here{draft}' if page else 'The branch on the remote'}:", file=sys.stderr)
    print(clean_text(page or f"{proposal.remote}/{proposal.branch}"))
    return 0


def configure_branches(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=["list", "prune"], help="delete branches whose work is safe elsewhere"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--merged", action="store_true", help="prune: branches that another branch contains (default)")
    which.add_argument(
        "--all-ended",
        action="store_true",
        help="prune: also unmerged branches of ended tasks; their commits are saved first",
    )
    parser.add_argument("--dry-run", action="store_true", help="prune: only show what would be deleted")
    add_json_option(parser)


def run_branches(arguments: argparse.Namespace) -> int:
    from holdfast.api.work.branches import list_branches

    queries = Queries(home_directory())
    if arguments.action == "prune":
        return _prune(queries, arguments)
    if arguments.merged or arguments.all_ended or arguments.dry_run:
        raise UsageError("These options belong to `holdfast branches prune`.")
    found = list_branches(queries)
    if arguments.json:
        for branch in found:
            print_json(branch.as_row())
        return 0
    if not found:
        print("No task has a branch.")
        return 0
    print_table(
        ("BRANCH", "TASK", "COMMIT", "MERGED INTO", "STAYS BECAUSE", "REPO"),
        [
            [
                branch.name,
                branch.task_state or "-",
                branch.tip[:12],
                branch.merged_into or "-",
                branch.stays or "-",
                branch.repo.path,
            ]
            for branch in found
        ],
    )
    return 0


def _prune(queries: Queries, arguments: argparse.Namespace) -> int:
    from holdfast.api.work.branches import list_branches, remove_branch, select_removable

    found = list_branches(queries)
    going = select_removable(found, unmerged=arguments.all_ended)
    for branch in going:
        gone = arguments.dry_run or remove_branch(queries.home, branch)
        if arguments.json:
            print_json({**branch.as_row(), "deleted": gone and not arguments.dry_run})
            continue
        why = f"merged into {branch.merged_into}" if branch.merged_into else "unmerged; its commits are saved"
        verb = "would be deleted" if arguments.dry_run else "deleted" if gone else "kept, because it changed meanwhile"
        print(f"{branch.name} of {branch.repo.path}: {verb} ({why}).")
    unmerged = len([branch for branch in found if not branch.stays and branch not in going])
    if not going and not arguments.json:
        print("No branch can be deleted.")
    if unmerged and not arguments.json:
        print(
            f"{unmerged} of ended tasks are not merged; --all-ended saves their commits and deletes them.",
            file=sys.stderr,
        )
    return 0


_DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def configure_diff(parser: argparse.ArgumentParser) -> None:
    add_task_id(parser)
    parser.add_argument("--stat", action="store_true", help="only a summary by file")
    parser.add_argument("--checkpoint", type=number(1), metavar="N", help="show checkpoint N instead")


def run_diff(arguments: argparse.Namespace) -> int:
    from holdfast.api.work.diff import diff

    queries = Queries(home_directory())
    text = diff(queries, queries.resolve(arguments.id), stat=arguments.stat, checkpoint=arguments.checkpoint)
    if is_terminal():
        for line in clean_text(text).splitlines():
            print(paint(line, _DIFF_COLOURS.get(line[:1], "dim")) if line[:1] in _DIFF_COLOURS else line)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(errors="surrogateescape"))  # exact bytes, so that the diff can be applied
    if not text:
        print("No changes.", file=sys.stderr)
    return 0
