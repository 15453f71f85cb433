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
        "Shows the fleet live on one screen: what runs, what waits and why, what broke and what was done about it. `?` "
        "shows the keys of each screen. 1 to 5 go to another screen, Enter opens a task, Ctrl+P finds all by name.",
        (
            ("watch, and act by keys", "holdfast top"),
            ("with the terminal's bell at a critical alert", "holdfast top --bell"),
            ("once, as plain text", "holdfast top --once"),
            ("for a script, finished tasks too", "holdfast top --once --all --json"),
        ),
        (0, 2, 69),
        ("ps", "alerts", "worker"),
    ),
    "pause": ManualPage(
        "Pauses a task until you resume it, or for a time. A waiting task is paused at once. The agent of a running "
        "task is ended with its usual grace. The task continues later in the same workspace and session. The pause "
        "spends none of its budgets. A cancel at the same moment wins.",
        (
            ("until you resume it", 'holdfast pause 7f3a --why "deploy first"'),
            ("for two hours", "holdfast pause 7f3a --for 2h"),
            ("within two seconds", "holdfast pause 7f3a --force"),
            ("all of one label, without a question", "holdfast pause --label area=docs --yes"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("resume", "cancel", "why"),
    ),
    "resume": ManualPage(
        "Continues a paused task now. This counts as one of its resumes (`resume.max_attempts`), unless you paused the "
        "task yourself. Without a resume left it is refused and changes nothing; --force goes beyond, and is recorded. "
        "It is also refused while the task's budget of money or tokens is spent. Raise that with the same command.",
        (
            ("do not wait for the reset", "holdfast resume 7f3a"),
            ("raise its spending cap to 8 dollars in all", "holdfast resume 7f3a --budget-usd 8"),
            ("once more, whatever the limit", "holdfast resume 7f3a --force"),
            ("with other words, in its session", 'holdfast resume 7f3a --append "skip the slow tests"'),
            ("give it more resumes", "holdfast resume 7f3a --max-resumes 10"),
            ("all that are paused", "holdfast resume --all"),
            ("from an earlier state of its tree and session", "holdfast resume 7f3a --checkpoint 3"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("pause", "why", "retry"),
    ),
    "send": ManualPage(
        "Tells a task what to do next. A task that has ended or is paused is queued again under the same id, on the "
        "same branch and in the same session. A running task gets the message at the end of its turn. The message is "
        "on disk when the command returns, and is given to the agent of one run. Retry budgets start afresh, and the "
        "task's budget of money or tokens stays.",
        (
            ("go on with a finished task", 'holdfast send 7f3a "now also add tests"'),
            ("a long message, from a file or an editor", "holdfast send 7f3a --file review.md"),
            ("what another command prints", "make test 2>&1 | holdfast send 7f3a -"),
            ("solve the conflicts with the target branch", "holdfast send 7f3a --rebase"),
            ("several tasks: the last word is the message", 'holdfast send 7f3a 8c21 "mind the tests"'),
        ),
        (0, 1, 2, 3, 4, 69),
        ("why", "logs", "retry", "approve"),
    ),
    "set": ManualPage(
        "Changes a task that does not run. The keys are names of options of `add`: prompt, priority, agent, model, "
        "account, permission, max-turns, timeout, max-resumes, budget-usd, budget-tokens, memory, processes, "
        "cpu-weight, max-output, stuck-after, startup-timeout, on-stuck, gate, tries. `preserve` is always, "
        "on-failure or never. `label.NAME=VALUE` sets a label, and an empty value removes it. All is changed at once "
        "or not at all. `permission` reads `permissions.allow` again. A changed prompt reaches the agent of the next "
        "run, also in a session that goes on. A running task is refused: pause it first, or use `send`.",
        (
            ("let it start first", "holdfast set 7f3a priority=10"),
            ("another prompt for its next run", 'holdfast set 7f3a prompt="fix the lexer, not the parser"'),
            ("more resumes and another model", "holdfast set 7f3a max-resumes=10 model=opus"),
            ("a check, and a label", 'holdfast set 7f3a gate="make test" label.area=core'),
            ("every task that waits, without a question", "holdfast set --state queued --yes priority=1"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("send", "retry", "resume", "show"),
    ),
    "wait": ManualPage(
        "Waits until all tasks are at rest: they have ended, are paused, or wait for a person. It starts a supervisor "
        "where none runs. Then it prints one line for each task. The exit code is the worst: 1 if one failed or was "
        "cancelled, 75 if one is paused or waits for a person, 0 if all completed. With --timeout, 75 too.",
        (
            ("both of them", "holdfast wait 7f3a 8c21"),
            ("the first one of three", "holdfast wait 7f3a 8c21 9d40 --any"),
            ("every task with a label, also those that ended before", "holdfast wait --label night=1"),
            ("half an hour at most, for a script", "holdfast wait 7f3a --timeout 30m --json"),
        ),
        (0, 1, 2, 3, 69, 75),
        ("run", "ps", "why"),
    ),
    "approve": ManualPage(
        "Approves the work of a stage that needs your approval (`approval = true`), or that failed and was left to you "
        '(`on_failure = "pause"`). The next stage begins. With --changes, your text goes to a stage in its own '
        "session: to the `back_to` of the stage that waits, with what that stage said, else to the stage that waits. "
        "--stage chooses another. It costs the task none of its resumes.",
        (
            ("approve", "holdfast approve 7f3a"),
            ("request changes", 'holdfast approve 7f3a --changes "keep the old name"'),
            ("request changes of the plan", 'holdfast approve 7f3a --stage plan --changes "no new tables"'),
        ),
        (0, 1, 2, 3, 4, 69),
        ("why", "diff", "cancel"),
    ),
    "worker": ManualPage(
        "Named workers (`[[worker]]` in your own settings) take matching tasks one at a time. A stopped worker "
        "finishes its present task first. A worker that crashed too often is benched until it was quiet for "
        "`crash.window`, or is restarted. Your request is recorded, and takes effect with and without a running "
        "supervisor.",
        (
            ("what each does, and why one does not", "holdfast worker list"),
            ("no more tasks for a worker, and end its agent now", "holdfast worker stop web --now"),
            ("start again after crashes", "holdfast worker restart web"),
        ),
        (*READS, 4),
        ("up", "ps", "alerts"),
    ),
    "workflows": ManualPage(
        "Tasks in several stages: the built-in workflows, yours (`[workflow.NAME]` in your settings) and the "
        "repository's, whose commands need trust. All of them are checked. With a mistake anywhere, the exit code is "
        "1. A task gets one by `add --workflow NAME`, as it is at that moment. More: `holdfast help workflows`.",
        (
            ("all workflows, and the mistakes in them", "holdfast workflows"),
            ("its stages, gates and prompts", "holdfast workflows plan-build-review"),
            ("for scripts", "holdfast workflows --json"),
        ),
        (*READS, 1),
        ("add", "run", "config", "trust"),
    ),
    "diff": ManualPage(
        "Shows what a task changed against its base, committed or not, new files too: in its workspace, in its saved "
        "work, or on its branch. With --checkpoint N it shows the content of that checkpoint (`holdfast show` lists "
        "them). Piped output is exact and can be applied.",
        (
            ("all of it", "holdfast diff 7f3a"),
            ("only which files", "holdfast diff 7f3a --stat"),
            ("as it was at checkpoint 3", "holdfast diff 7f3a --checkpoint 3"),
        ),
        (*READS, 1, 4),
        ("show", "salvage"),
    ),
    "report": ManualPage(
        "Prints a task as Markdown that can be pasted into a pull request: the prompt, its stages with their outcomes "
        "and gates, each answer, the changed files, the cost. Text of agents and gates is quoted or fenced, and cannot "
        "break out of that.",
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
        "computed first, without changing anything. A checkout of the target is moved along. Your uncommitted changes "
        "stay, and the merge is refused only if it changes the same files. After a conflict nothing has changed.",
        (
            ("into the branch it started from", "holdfast merge 7f3a"),
            ("as one commit with a message of yours", 'holdfast merge 7f3a --squash -m "Export as JSON"'),
            ("always with a merge commit, elsewhere", "holdfast merge 7f3a --into release --no-ff"),
            ("several, without a question", "holdfast merge --label night=1 --yes"),
        ),
        (*READS, 1, 4),
        ("diff", "pr", "branches", "send"),
    ),
    "pr": ManualPage(
        "Pushes the branch of an ended task and opens a pull request with `gh`. Without `gh` it prints the "
        "page of GitHub or GitLab on which you open it, else the branch on the remote.",
        (
            ("for review", "holdfast pr 7f3a --draft"),
            ("to a fork", "holdfast pr 7f3a --remote fork"),
            ("without `gh`", "holdfast pr 7f3a --push-only"),
        ),
        (*READS, 1, 4),
        ("merge", "diff"),
    ),
    "branches": ManualPage(
        "Lists the branches of our tasks. `prune` deletes branches of ended tasks whose commits another branch has. "
        "With --all-ended it also deletes unmerged ones, whose commits are saved first (`holdfast salvage`). It never "
        "deletes a branch of a task that has not ended, that is checked out, or that is not ours.",
        (
            ("what is there", "holdfast branches"),
            ("what would be deleted", "holdfast branches prune --dry-run"),
            ("delete what is merged", "holdfast branches prune --merged"),
        ),
        (0, 2, 69),
        ("merge", "salvage"),
    ),
    "tracker": ManualPage(
        'Lists the status of outside trackers (`tracker.kind = "beads"`), and the issues that this home has, with '
        "their tasks. `sync` looks at every tracker now, also at one that failed and waits. More: "
        "`holdfast help trackers`.",
        (("what is there", "holdfast tracker"), ("sync now", "holdfast tracker sync")),
        (0, 2, 69),
        ("why", "alerts"),
    ),
    "schedule": ManualPage(
        "Schedules (`[[schedule]]` in your own settings, or in a repository's once it is trusted) add tasks by the "
        "clock. `list` shows in words when each fires, its last task and what is wrong. `show` lists the next five "
        "times and the last ten. `fire` adds a task now and leaves the times as they are. `enable` and `disable` are "
        "recorded, and last until the file changes that. More: `holdfast help schedules`.",
        (
            ("last and next times", "holdfast schedule list"),
            ("one schedule, with its last times and tasks", "holdfast schedule show nightly"),
            ("now, by hand", "holdfast schedule fire nightly"),
            ("stop it for now", "holdfast schedule disable nightly"),
            ("where two repositories have a `nightly`", "holdfast schedule show app:nightly"),
        ),
        (*READS, 1, 4),
        ("up", "trust", "alerts"),
    ),
    "workspaces": ManualPage(
        "Lists workspaces that are on disk, with their sizes, ages and when they will be removed. `clean` drops "
        "preserved ones. Their work is salvaged first.",
        (
            ("what is there, and how large", "holdfast workspaces"),
            ("drop one", "holdfast workspaces clean 7f3a"),
            ("drop all that are preserved", "holdfast workspaces clean --all-preserved --yes"),
        ),
        (*READS, 1, 4),
        ("keep", "salvage", "purge"),
    ),
    "shell": ManualPage(
        "Opens your $SHELL in a task's workspace, also while its agent works, or in the container that belongs to it. "
        "While the shell is open, the workspace is not removed, even if the task ends. The exit code is the shell's.",
        (("look around", "holdfast shell 7f3a"), ("one command", "holdfast shell 7f3a -c 'git status'")),
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
        "Lists what needs a person, each with a remedy. There is one open alert per episode. It closes by itself when "
        "its cause is over (a retry, a completion, room on the disk). `ack` marks it as seen, and records who and "
        "why. `test` sends a test to every target of `notify.*` and prints what each answered.",
        (
            ("what is open", "holdfast alerts"),
            ("only critical ones", "holdfast alerts --level critical"),
            ("seen and dealt with", 'holdfast alerts ack 3 --why "disk replaced"'),
            ("all of them", "holdfast alerts ack --all"),
            ("test the delivery", "holdfast alerts test"),
        ),
        (*READS, 1),
        ("crashes", "why", "doctor"),
    ),
    "crashes": ManualPage(
        "Lists agents that died unexpectedly: when, how, their last output, whether the claim was released and what "
        "was decided. A stop of ours, a limit, and a failure that the agent reports itself are not crashes. Records "
        "are kept for `retention.crashes` (180 d), longer than runs and tasks.",
        (
            ("all recorded crashes", "holdfast crashes"),
            ("of one task", "holdfast crashes 7f3a"),
            ("of today, for scripts", "holdfast crashes --since 24h --json"),
        ),
        READS,
        ("alerts", "why", "stats"),
    ),
}
