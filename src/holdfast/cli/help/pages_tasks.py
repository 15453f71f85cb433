"""Manual pages about a task's work, its place on disk and what went wrong. The other pages are in `pages`."""

from __future__ import annotations

from typing import NamedTuple

READS = (0, 2, 3, 69)


class ManualPage(NamedTuple):
    """The manual page of one command. `codes` are its exit codes, apart from those that every command may have."""

    description: str
    examples: tuple[tuple[str, str], ...]  # (what it does, the command line)
    codes: tuple[int, ...]
    see: tuple[str, ...]


WORK_PAGES: dict[str, ManualPage] = {
    "top": ManualPage(
        "Shows the fleet live on one screen: what runs, what waits and why, what failed and how Holdfast reacted. `?` "
        "shows the keys of each screen. 1 to 5 go to another screen, Enter opens a task, Ctrl+P searches all actions.",
        (
            ("watch, and act with keys", "holdfast top"),
            ("ring the terminal's bell on critical alerts", "holdfast top --bell"),
            ("once, as plain text", "holdfast top --once"),
            ("for a script, finished tasks too", "holdfast top --once --all --json"),
        ),
        (0, 2, 69),
        ("ps", "alerts", "worker"),
    ),
    "pause": ManualPage(
        "Pauses a task until you resume it, or for a given time. A waiting task is paused at once. The agent of a "
        "running task gets SIGTERM, and has `health.grace` (5 s) to exit. The task continues later in the same "
        "workspace and session. The pause "
        "spends none of its budgets. If the task is cancelled at the same moment, the cancel wins.",
        (
            ("until you resume it", 'holdfast pause 7f3a --why "deploy first"'),
            ("for two hours", "holdfast pause 7f3a --for 2h"),
            ("within two seconds", "holdfast pause 7f3a --force"),
            ("all with a label, without confirmation", "holdfast pause --label area=docs --yes"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("resume", "cancel", "why"),
    ),
    "resume": ManualPage(
        "Continues a paused task now. This counts as one of its resumes (`resume.max_attempts`), unless you paused the "
        "task yourself. If no resume is left, the command is refused and changes nothing. --force exceeds the limit "
        "and is recorded. "
        "The command is also refused while the task's money or token budget is used up. --budget-usd and "
        "--budget-tokens raise that budget.",
        (
            ("do not wait for the reset", "holdfast resume 7f3a"),
            ("raise its total spending cap to 8 dollars", "holdfast resume 7f3a --budget-usd 8"),
            ("once more, whatever the limit", "holdfast resume 7f3a --force"),
            ("with an addition to the prompt, in its session", 'holdfast resume 7f3a --append "skip the slow tests"'),
            ("give it more resumes", "holdfast resume 7f3a --max-resumes 10"),
            ("all paused tasks", "holdfast resume --all"),
            ("from an earlier state of its files and session", "holdfast resume 7f3a --checkpoint 3"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("pause", "why", "retry"),
    ),
    "send": ManualPage(
        "Tells a task what to do next. A task that has ended or is paused is queued again under the same id, on the "
        "same branch and in the same session. A running task gets the message at the end of its turn. The message is "
        "on disk when the command returns, and exactly one run's agent gets it. Retry budgets start afresh; the money "
        "and token budgets do not.",
        (
            ("continue a finished task", 'holdfast send 7f3a "now also add tests"'),
            ("a long message, from a file or an editor", "holdfast send 7f3a --file review.md"),
            ("the output of another command", "make test 2>&1 | holdfast send 7f3a -"),
            ("rebase onto the target branch and resolve conflicts", "holdfast send 7f3a --rebase"),
            ("several tasks: the last word is the message", 'holdfast send 7f3a 8c21 "mind the tests"'),
        ),
        (0, 1, 2, 3, 4, 69),
        ("why", "logs", "retry", "approve"),
    ),
    "set": ManualPage(
        "Changes a task that is not running. The keys are names of options of `add`: prompt, priority, agent, model, "
        "account, permission, max-turns, timeout, max-resumes, budget-usd, budget-tokens, memory, processes, "
        "cpu-weight, max-output, stuck-after, startup-timeout, on-stuck, gate, tries. `preserve` is always, "
        "on-failure or never. `label.NAME=VALUE` sets a label, and an empty value removes it. Either all changes are "
        "made or none. With `permission`, the task also gets the present `permissions.allow`. The next run's agent "
        "gets a changed prompt, even when its session continues. For a running task, the command is refused: pause "
        "the task first, or use `send`.",
        (
            ("make it start first", "holdfast set 7f3a priority=10"),
            ("another prompt for its next run", 'holdfast set 7f3a prompt="fix the lexer, not the parser"'),
            ("more resumes and another model", "holdfast set 7f3a max-resumes=10 model=opus"),
            ("a check, and a label", 'holdfast set 7f3a gate="make test" label.area=core'),
            ("every waiting task, without confirmation", "holdfast set --state queued --yes priority=1"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("send", "retry", "resume", "show"),
    ),
    "wait": ManualPage(
        "Waits until all tasks are at rest: they have ended, are paused, or wait for a person. It starts a supervisor "
        "if none is running. Then it prints one line for each task. The exit code is 1 if a task failed or was "
        "cancelled. Otherwise it is 75 if a task is paused or waits for a person, or if --timeout has passed. "
        "Otherwise it is 0.",
        (
            ("both of them", "holdfast wait 7f3a 8c21"),
            ("the first one of three", "holdfast wait 7f3a 8c21 9d40 --any"),
            ("every task with a label, ended ones included", "holdfast wait --label night=1"),
            ("half an hour at most, for a script", "holdfast wait 7f3a --timeout 30m --json"),
        ),
        (0, 1, 2, 3, 69, 75),
        ("run", "ps", "why"),
    ),
    "approve": ManualPage(
        "Approves the work of a stage that needs your approval (`approval = true`), or that failed and was left to you "
        '(`on_failure = "pause"`). The next stage begins. '
        "With --changes, your text sends the work back. The text goes to the stage that `back_to` of the waiting stage "
        "names, together with the answer of the waiting stage. Without a `back_to`, it goes to the waiting stage. "
        "--stage chooses another stage. `approve` uses up no resume.",
        (
            ("approve", "holdfast approve 7f3a"),
            ("request changes", 'holdfast approve 7f3a --changes "keep the old name"'),
            ("request changes to the plan", 'holdfast approve 7f3a --stage plan --changes "no new tables"'),
        ),
        (0, 1, 2, 3, 4, 69),
        ("why", "diff", "cancel"),
    ),
    "worker": ManualPage(
        "Named workers (`[[worker]]` in your own settings) take matching tasks one at a time. A stopped worker "
        "finishes its current task first. A worker that crashed too often is benched until `crash.window` passes "
        "without a crash, or until you restart it. Your request is recorded even if no supervisor is running.",
        (
            ("what each worker does, or why it is idle", "holdfast worker list"),
            ("give a worker no more tasks, and end its agent now", "holdfast worker stop web --now"),
            ("start again after crashes", "holdfast worker restart web"),
        ),
        (*READS, 4),
        ("up", "ps", "alerts"),
    ),
    "workflows": ManualPage(
        "Lists and checks workflows, which run a task in several stages: the built-in ones, yours (`[workflow.NAME]` "
        "in your settings) and the repository's, whose commands need trust. If any has a mistake, the exit code is 1. "
        "`add --workflow NAME` copies the workflow into the task as it is at that moment. More: `holdfast help "
        "workflows`.",
        (
            ("all workflows, and the mistakes in them", "holdfast workflows"),
            ("its stages, gates and prompts", "holdfast workflows plan-build-review"),
            ("for scripts", "holdfast workflows --json"),
        ),
        (*READS, 1),
        ("add", "run", "config", "trust"),
    ),
    "diff": ManualPage(
        "Shows what a task changed since its base, new and uncommitted files included. It reads the workspace, the "
        "saved work or the branch. With --checkpoint N it shows the content of that checkpoint (`holdfast show` lists "
        "them). Piped output is an exact patch for `git apply`.",
        (
            ("all of it", "holdfast diff 7f3a"),
            ("only the names of files", "holdfast diff 7f3a --stat"),
            ("as it was at checkpoint 3", "holdfast diff 7f3a --checkpoint 3"),
        ),
        (*READS, 1, 4),
        ("show", "salvage"),
    ),
    "report": ManualPage(
        "Prints a task as Markdown that can be pasted into a pull request: the prompt, its stages with their outcomes "
        "and gates, each answer, the changed files, the cost. Text from agents and gates is quoted or fenced, so it "
        "cannot act as Markdown.",
        (
            ("read it", "holdfast report 7f3a"),
            ("into a file", "holdfast report 7f3a --output review.md"),
            ("for scripts", "holdfast report 7f3a --json"),
        ),
        (*READS, 1),
        ("show", "pr", "logs"),
    ),
    "merge": ManualPage(
        "Merges the branch of an ended task into its base branch, as a fast-forward or a merge commit. The merge is "
        "computed first, without changing anything. A checkout of the target branch is updated too. Your uncommitted "
        "changes stay. The merge is refused only if it would change the same files. A conflict changes nothing.",
        (
            ("into the branch it started from", "holdfast merge 7f3a"),
            ("as one commit with your own message", 'holdfast merge 7f3a --squash -m "Export as JSON"'),
            ("into another branch, always as a merge commit", "holdfast merge 7f3a --into release --no-ff"),
            ("several, without confirmation", "holdfast merge --label night=1 --yes"),
        ),
        (*READS, 1, 4),
        ("diff", "pr", "branches", "send"),
    ),
    "pr": ManualPage(
        "Pushes the branch of an ended task and opens a pull request with `gh`. Without `gh` it prints the GitHub or "
        "GitLab page for opening it, or the name of the pushed branch.",
        (
            ("for review", "holdfast pr 7f3a --draft"),
            ("to a fork", "holdfast pr 7f3a --remote fork"),
            ("without `gh`", "holdfast pr 7f3a --push-only"),
        ),
        (*READS, 1, 4),
        ("merge", "diff"),
    ),
    "branches": ManualPage(
        "Lists the branches of tasks. `prune` deletes branches of ended tasks whose commits are on another branch. "
        "With --all-ended it also deletes unmerged branches, whose commits are saved first (`holdfast salvage`). It "
        "never deletes a branch whose task has not ended, that is checked out, or that no task made.",
        (
            ("what is there", "holdfast branches"),
            ("what would be deleted", "holdfast branches prune --dry-run"),
            ("delete merged branches", "holdfast branches prune --merged"),
        ),
        (0, 2, 69),
        ("merge", "salvage"),
    ),
    "tracker": ManualPage(
        'Lists the status of outside trackers (`tracker.kind = "beads"`), and the issues that this home has '
        "claimed, with their tasks. `sync` reads every tracker now, including one that is waiting after a failure. "
        "More: "
        "`holdfast help trackers`.",
        (("trackers and issues", "holdfast tracker"), ("sync now", "holdfast tracker sync")),
        (0, 2, 69),
        ("why", "alerts"),
    ),
    "schedule": ManualPage(
        "Schedules (`[[schedule]]` in your own settings, or in a repository's file once you trust it) run tasks at "
        "fixed times. `list` describes when each fires, its last task, and any problem. `show` lists the next five "
        "times and the last ten. `fire` adds a task now and leaves the times as they are. `enable` and `disable` are "
        "recorded, and last until the schedule changes in its file. More: `holdfast help schedules`.",
        (
            ("last and next times", "holdfast schedule list"),
            ("one schedule, with its recent times and tasks", "holdfast schedule show nightly"),
            ("fire it now, by hand", "holdfast schedule fire nightly"),
            ("stop it for now", "holdfast schedule disable nightly"),
            ("the `nightly` of one of two repositories", "holdfast schedule show app:nightly"),
        ),
        (*READS, 1, 4),
        ("up", "trust", "alerts"),
    ),
    "workspaces": ManualPage(
        "Lists the workspaces on disk, with sizes, ages and removal times. `clean` removes preserved workspaces, and "
        "salvages their work first.",
        (
            ("workspaces and their sizes", "holdfast workspaces"),
            ("remove one", "holdfast workspaces clean 7f3a"),
            ("remove all preserved workspaces", "holdfast workspaces clean --all-preserved --yes"),
        ),
        (*READS, 1, 4),
        ("keep", "salvage", "purge"),
    ),
    "shell": ManualPage(
        "Opens your $SHELL in a task's workspace, or in its container. This also works while its agent is running. "
        "While the shell is open, the workspace is not removed, even if the task ends. The exit code is the shell's.",
        (("look around", "holdfast shell 7f3a"), ("run one command", "holdfast shell 7f3a -c 'git status'")),
        (*READS, 1, 4),
        ("diff", "keep", "workspaces"),
    ),
    "keep": ManualPage(
        "Keeps a task's workspace. For a preserved workspace, the time counts from now. For a task that waits or "
        "runs, it counts from the end of the task, whatever the outcome. Without this command, a preserved workspace "
        "is removed after `workspace.preserve_ttl` (7 d). Its work is salvaged first.",
        (
            ("until you drop it", "holdfast keep 7f3a"),
            ("for another month", "holdfast keep 7f3a --for 30d"),
        ),
        (0, 2, 3, 4, 69),
        ("workspaces", "diff"),
    ),
    "alerts": ManualPage(
        "Lists problems that need a person, each with a remedy. One episode has one open alert. An alert closes by "
        "itself when its cause is gone (a retry, a completion, free disk space). `ack` marks it as seen, and records "
        "who did so and why. `test` sends a test to every target of `notify.*` and prints each answer.",
        (
            ("open alerts", "holdfast alerts"),
            ("only critical ones", "holdfast alerts --level critical"),
            ("seen and dealt with", 'holdfast alerts ack 3 --why "disk replaced"'),
            ("all of them", "holdfast alerts ack --all"),
            ("send a test to every target", "holdfast alerts test"),
        ),
        (*READS, 1),
        ("crashes", "why", "doctor"),
    ),
    "crashes": ManualPage(
        "Lists agents that died unexpectedly: when, how, their last output, whether the claim was released, and what "
        "happened to the task. A stop by Holdfast, a limit, and a failure that the agent reports itself are not "
        "crashes. Records are kept for `retention.crashes` (180 d), longer than runs and tasks.",
        (
            ("all recorded crashes", "holdfast crashes"),
            ("of one task", "holdfast crashes 7f3a"),
            ("of today, for scripts", "holdfast crashes --since 24h --json"),
        ),
        READS,
        ("alerts", "why", "stats"),
    ),
}
