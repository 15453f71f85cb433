"""The manual pages of the commands: description, examples, exit codes and related commands.

`holdfast help COMMAND` prints the same text as `holdfast COMMAND --help`. The module is imported only for help. A test
parses every example with the real parser. docs/reference/cli.md is generated from these pages.
"""

from __future__ import annotations

import argparse

from holdfast.base.errors import UsageError
from holdfast.base.text import one_line
from holdfast.cli.help.pages_tasks import READS, WORK_PAGES, ManualPage

CODES = {
    0: "done",
    1: "the task failed, or the operation was refused",
    2: "usage",
    3: "not found",
    4: "conflict: the current state does not allow this",
    69: "store or supervisor unavailable",
    70: "unexpected error",
    75: "the task is paused",
    130: "interrupted by Ctrl-C",
}
EXIT_CODES = "exit-codes"  # the topic that has them all
PAGES: dict[str, ManualPage] = WORK_PAGES | {
    "init": ManualPage(
        "Registers the repository in this home and looks for agent CLIs. On a terminal it asks at most three "
        "questions: the default agent, what agents may do without asking, and the command that runs your tests. The "
        "first two answers go to your own settings. The test command (the gate) goes to the repository's "
        "holdfast.toml. Holdfast trusts that file at once. A Makefile, package.json, pyproject.toml, Cargo.toml or "
        "go.mod is read for a proposal, never run. Without a terminal, `init` asks nothing. If it finds exactly one "
        "agent CLI, it records this CLI as the default. Every other choice needs an option. `run` and `add` register a "
        "repository by themselves.",
        (
            ("the repository you are in", "holdfast init"),
            ("take the proposals", "holdfast init --yes"),
            ("in a script, with your choices", 'holdfast init --agent claude --permission edit --gate "make test"'),
            ("another repository, without adding a file to it", "holdfast init ~/src/shop --no-file"),
        ),
        (0, 1, 2, 69),
        ("run", "trust", "config", "doctor"),
    ),
    "trust": ManualPage(
        "Shows the keys of a repository's holdfast.toml that could run commands or show secrets. They take effect "
        "once you agree. You are asked again only when one of these values changes.",
        (
            ("look and decide", "holdfast trust"),
            ("in a script, without the question", "holdfast trust ~/src/shop --yes"),
            ("end the trust", "holdfast trust --revoke"),
            ("all trusted repositories", "holdfast trust --list"),
        ),
        (0, 1, 2, 69),
        ("init", "config"),
    ),
    "config": ManualPage(
        "Shows the settings in force here, the origin of each, and every mistake in them. The layers, in this order: "
        "defaults, your file, the repository's file, the environment, flags.",
        (
            ("the settings in force, with their origin", "holdfast config show --origin"),
            ("every mistake with its line", "holdfast config check"),
            ("which files are read", "holdfast config path"),
        ),
        (0, 2, 69),
        ("init", "trust"),
    ),
    "run": ManualPage(
        "Adds a task, starts a supervisor if none is running, shows progress, and returns when the task has ended or "
        "pauses for more than ten seconds. The command after `--` is the agent. It gets the prompt on its standard "
        "input and works in its own worktree. Your checkout is not touched. Afterwards the work is on a branch.",
        (
            ("any command can be an agent", 'holdfast run "fix the flaky test" -- my-agent --headless'),
            ("done only if the tests pass", 'holdfast run "fix the flaky test" --gate "make test" --agent claude'),
            ("at most half an hour, from a release", 'holdfast run "backport it" --base v2 --timeout 30m -- my-agent'),
            ("the prompt from a file, by a pipe", "holdfast run - -- my-agent"),
            ("a rehearsal without an agent", "holdfast run --scenario success.toml"),
            ("in stages", 'holdfast run "add --since" --workflow plan-build-review --gate "make test"'),
            ("four reviewers over a branch", "holdfast run --workflow review-swarm --base main --ref feature"),
        ),
        (0, 1, 2, 69, 75),
        ("add", "why", "diff", "salvage"),
    ),
    "add": ManualPage(
        "Queues a task. When the id is printed, the task is on disk. A supervisor (`holdfast up`) runs it in its "
        "turn. All settings are resolved now and stored with the task.",
        (
            ("with a priority and a label", 'holdfast add "tidy the docs" --priority 5 --label area=docs -- my-agent'),
            ("after another task has completed", 'holdfast add "check the links" --after 7f3a -- my-agent'),
            ("tonight, and keep its workspace", 'holdfast add "long one" --delay 8h --keep-workspace -- my-agent'),
            ("every open box of a checklist, each once", "holdfast add --from tasks.md --agent claude"),
            ("for scripts", 'holdfast add "tidy" --json -- my-agent'),
        ),
        (0, 2, 3, 4, 69),
        ("run", "up", "ps"),
    ),
    "up": ManualPage(
        "Runs the supervisor of this home, one per home. It takes over the runs of an earlier supervisor. Then it "
        "claims tasks, starts and watches their agents, and cleans up. If a supervisor is already running, it keeps "
        "running and takes over `--agents`. If `run` had started it, it then no longer ends when idle.",
        (
            ("in the foreground, eight agents at once", "holdfast up --agents 8"),
            ("in the background; its log is in the home", "holdfast up --detach"),
            ("until there is nothing left to do", "holdfast up --idle-exit 60s"),
            ("change how many agents the running supervisor starts", "holdfast up --agents 12"),
        ),
        (0, 2, 4, 69),
        ("down", "ps", "doctor"),
    ),
    "down": ManualPage(
        "Stops the supervisor. Agents get SIGTERM and have `health.grace` (5 s) to exit. Their tasks stay queued. "
        "The next `up` continues them.",
        (
            ("in good order", "holdfast down"),
            ("end agents at once, each within two seconds", "holdfast down --now"),
            ("leave the agents running, for example to upgrade Holdfast", "holdfast down --keep-agents"),
        ),
        (0, 2, 69),
        ("up",),
    ),
    "ps": ManualPage(
        "Lists tasks that wait, run or are paused, and those that failed lately: one line each. WHY is what a task "
        "waits for, how it ended, or the last tool or line of its agent, with its age. A word is the first letters of "
        "an id, a filter (state:, agent:, label:, repo:, worker:, stage:, workflow:) or text; a word with `!` in "
        "front must not match. The words work as they do after `/` in `top`. Ids and ended states are found without "
        "--all. For an unknown order or column, `ps` lists the known ones.",
        (
            ("what is going on", "holdfast ps"),
            ("all tasks, finished ones too", "holdfast ps --all"),
            ("some tasks", "holdfast ps 7f3a k2m9"),
            ("what is paused in this repository", "holdfast ps state:paused repo:."),
            ("what failed, for one label", "holdfast ps --state failed --label area=docs"),
            ("the ten most expensive tasks", "holdfast ps --all --sort cost --limit 10"),
            ("your own columns, nothing cut", "holdfast ps --columns id,labels,prompt,why --wide"),
            ("refresh the list until Ctrl-C", "holdfast ps --watch"),
            ("an object per line, for scripts", "holdfast ps --all --json"),
            ("the same, and a new line for each change", "holdfast ps --json --watch"),
        ),
        READS,
        ("show", "why", "top", "events"),
    ),
    "show": ManualPage(
        "Shows everything about one task: settings, runs, workspace, budgets, saved work. The first letters of an id "
        "are enough.",
        (
            ("for people", "holdfast show 7f3a"),
            ("for scripts", "holdfast show 7f3a --json"),
            ("the prompt of its agent", "holdfast show 7f3a --prompt"),
            ("the answers of its stages", "holdfast show 7f3a --results"),
        ),
        (*READS, 4),
        ("why", "logs", "report"),
    ),
    "why": ManualPage(
        "Explains in a few sentences why a task is in its state, what happens next, and what you can do.",
        (("why it waits, or why it failed", "holdfast why 7f3a"),),
        (*READS, 4),
        ("show", "events"),
    ),
    "events": ManualPage(
        "Lists events in the order in which they were committed. Event numbers only rise. Old events of finished "
        "tasks are deleted after `retention.events`.",
        (
            ("the last fifty", "holdfast events"),
            ("one task, and new events as they happen", "holdfast events 7f3a --follow"),
            ("everything after the last event that a script has read", "holdfast events --after 4711 --json"),
        ),
        (*READS, 4),
        ("ps", "logs"),
    ),
    "logs": ManualPage(
        "Shows what an agent writes and does: text, tools, retries, limits and usage. For an agent that is a plain "
        "command, it shows the output without escape sequences. Logs are kept for `retention.runs` after the task "
        "ended.",
        (
            ("the last run", "holdfast logs 7f3a"),
            ("every run, in order", "holdfast logs 7f3a --all"),
            ("as it happens", "holdfast logs 7f3a --follow"),
            ("one event per line, for scripts", "holdfast logs 7f3a --json"),
            ("what its CLI wrote, byte for byte", "holdfast logs 7f3a --raw"),
            ("standard error of the first run", "holdfast logs 7f3a --run 1 --err"),
            ("one member of a parallel stage", "holdfast logs 7f3a --member security"),
        ),
        (*READS, 4),
        ("show", "events"),
    ),
    "agents": ManualPage(
        "Lists the agent CLIs that Holdfast can drive: which are installed here, their versions, whether a login was "
        "found, and which is the default. It contacts no provider.",
        (
            ("which agents can I use?", "holdfast agents"),
            ("for a script", "holdfast agents --json"),
        ),
        (0, 2),
        ("init", "doctor", "accounts"),
    ),
    "accounts": ManualPage(
        "Lists the logins of agents: your own, and those that your settings name. A login is `parked` until a limit "
        "ends, or `stopped` until you resume it, because login or payment failed. `resume` opens a login again. Tasks "
        "that were paused because of that login continue.",
        (
            ("which are parked or stopped, and why", "holdfast accounts"),
            ("open a login that works again", "holdfast accounts resume claude/work"),
        ),
        (0, 2, 3, 4, 69),
        ("why", "alerts", "config"),
    ),
    "dispatch": ManualPage(
        "Lists holds. A hold keeps back tasks of a provider that does not answer, of an account whose limit should be "
        "over, or all tasks after a mass death. The list shows when each hold began, when it ends, and which task "
        "starts first as a probe. `release` lets the held tasks start now. It also resumes tasks that were paused by "
        "an outage.",
        (
            ("all holds", "holdfast dispatch"),
            ("release all holds", "holdfast dispatch release"),
            ("the provider answers again", "holdfast dispatch release provider:anthropic"),
        ),
        (0, 2, 3, 69),
        ("why", "accounts", "alerts"),
    ),
    "stats": ManualPage(
        "Shows how reliable each agent is: ended runs, their outcomes and durations. It also shows the share of "
        "unwanted ends (those other than completed, cancelled or stopped), and how many runs continued an earlier "
        "run's task. Runs of deleted tasks stay in the totals. Days and hours are UTC. With --by agent, repo, model "
        "or label:KEY, `stats` counts ended tasks, and shows their success rate, tokens and cost.",
        (
            ("every agent, since the beginning", "holdfast stats"),
            ("where the money went", "holdfast stats --by repo --since 30d"),
            ("compare the values of a label", "holdfast stats --by label:area"),
            ("one agent this week, day by day", "holdfast stats --agent command --since 7d --by day"),
            ("for scripts", "holdfast stats --by hour --since 24h --json"),
        ),
        (0, 2, 69),
        ("ps", "why", "events"),
    ),
    "cancel": ManualPage(
        "Ends a task and its subtasks. The process tree of a running agent is ended, and its end is proven. The work "
        "is saved.",
        (
            ("with a reason for the record", 'holdfast cancel 7f3a --why "wrong branch"'),
            ("do not wait for its end", "holdfast cancel 7f3a --no-wait"),
            ("several", "holdfast cancel 7f3a 8c21"),
            ("all with a label, after a confirmation", "holdfast cancel --label area=docs"),
            ("a frozen task, once you know that its processes are gone", "holdfast cancel 7f3a --assume-dead"),
        ),
        (0, 2, 3, 4, 69),
        ("retry", "salvage", "why"),
    ),
    "retry": ManualPage(
        "Queues a failed or cancelled task again, with fresh budgets. The task continues where it stopped, or with "
        "--fresh from its base. --prompt replaces its prompt, and --append adds to it. The next run's agent gets the "
        "new text once, even when its session continues. Another agent or account begins a new session, with a "
        "hand-over.",
        (
            ("continue from the saved work", "holdfast retry 7f3a"),
            ("from the base", "holdfast retry 7f3a --fresh"),
            ("with another prompt", 'holdfast retry 7f3a --prompt "fix the lexer, not the parser"'),
            (
                "with an addition to the prompt and more time",
                'holdfast retry 7f3a --append "mind the tests" --timeout 2h',
            ),
            ("by another agent", "holdfast retry 7f3a --agent codex"),
            (
                "all that failed in this repository, without confirmation",
                "holdfast retry --state failed --repo . --yes",
            ),
        ),
        (0, 1, 2, 3, 4, 69),
        ("cancel", "resume"),
    ),
    "salvage": ManualPage(
        "Lists and restores saved work: files that were copied out of a workspace before its removal, because no "
        "branch held them. `restore` makes "
        "a new branch of the repository, or plain files in a new directory. Nothing is overwritten. Saved work expires "
        "after `salvage.keep`. `prune` deletes expired work, or the work that you name.",
        (
            ("what was saved", "holdfast salvage list"),
            ("what is in it", "holdfast salvage show 7f3a"),
            ("restore it as a branch", "holdfast salvage restore 7f3a --branch rescued"),
            ("as plain files", "holdfast salvage restore 7f3a --to /tmp/rescued"),
            ("delete it", "holdfast salvage prune 7f3a --yes"),
        ),
        (*READS, 1, 4),
        ("diff", "backup"),
    ),
    "doctor": ManualPage(
        "Checks this machine and compares the store with directories, git and /proc, in both directions. Looks at "
        "every agent's CLI (program, version, login) without spending anything, and prints what to do.",
        (
            ("before a long night", "holdfast doctor"),
            ("verify the five promises", "holdfast doctor --invariants"),
            ("remove leftovers", "holdfast doctor --fix"),
            ("for scripts", "holdfast doctor --json"),
        ),
        (0, 1, 2, 69),
        ("alerts", "sweep", "backup"),
    ),
    "sweep": ManualPage(
        "Compares the store with directories, markers, git entries, branches and processes, in both directions, and "
        "removes Holdfast's own leftovers. Unsaved work is saved first. Every `up` sweeps by itself. Objects that "
        "Holdfast has no record of are listed and not touched. If a supervisor is running, it does the sweep. "
        "Otherwise this command does.",
        (
            ("what would be done", "holdfast sweep --dry-run"),
            ("do it", "holdfast sweep"),
            ("for scripts", "holdfast sweep --json"),
        ),
        (0, 1, 2, 4, 69),
        ("doctor", "workspaces", "purge"),
    ),
    "backup": ManualPage(
        "Copies the store, all saved work and the home's own files into one file, while everything runs. The copy is "
        "verified before it gets its final name. Workspaces and agents' output are not in it.",
        (
            ("into the home's backups, named after the time", "holdfast backup"),
            ("to another disk", "holdfast backup /mnt/disk/holdfast.tar"),
            ("quickly, without saved work", "holdfast backup --store-only before-upgrade.db"),
        ),
        (0, 2, 4, 69),
        ("restore", "purge"),
    ),
    "restore": ManualPage(
        "Replaces the current store with a backup. The current store is kept aside. No supervisor or agent may be "
        "running. The next `up` continues tasks that were running when the backup was made. The backup's saved work "
        "is added, and no saved work is removed.",
        (
            ("restore a backup, after a confirmation", "holdfast restore holdfast.tar"),
            ("restore an automatic copy, in a script", "holdfast restore 000041-start.db --yes"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("backup", "doctor"),
    ),
    "purge": ManualPage(
        "Removes everything that Holdfast made: the home, and its worktree entries and lock files in repositories. "
        "Branches stay unless you give --branches. The command refuses while work would be lost or anything is "
        "running. If it was killed, run it again to finish.",
        (
            ("what would be removed", "holdfast purge --dry-run"),
            ("keep the saved work as git bundles", "holdfast purge --export ~/rescued"),
            ("only the records of one repository", "holdfast purge --repo ~/src/shop"),
            ("everything, without confirmation", "holdfast purge --yes --branches --discard-work"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("backup", "salvage", "workspaces"),
    ),
    "service": ManualPage(
        "Installs a systemd unit for `holdfast up`, for your user (--user) or for the machine (--system). With "
        "--system, root removes container leftovers that your user cannot delete, before each start. A unit that "
        "Holdfast did not write, or that was edited, is not overwritten. `uninstall` restores the previous state "
        "(`holdfast help service`).",
        (
            ("what is installed, and what would be", "holdfast service show --user"),
            ("a service for your user", "holdfast service install --user"),
            ("a system service, for the user ci", "holdfast service install --system --run-as ci"),
            ("remove it again", "holdfast service uninstall --system --run-as ci"),
        ),
        (0, 1, 2, 3, 4, 69),
        ("up", "doctor"),
    ),
    "agent": ManualPage(
        "For agents: reports on the agent's own run, which its environment names. `heartbeat` and `progress` are "
        "signs of life. `checkpoint` saves the current tree, and `holdfast resume --checkpoint N` can return to it "
        "later. `complete` and `fail` report a result. Only the first `complete` or `fail` counts. The agent then has "
        "`health.claim_grace` (30 s) to exit before its processes are ended. `complete` also needs exit code 0. `fail` "
        "fails the task, whatever the exit code.",
        (
            ("still working, though silent", "holdfast agent heartbeat"),
            ("shown by `ps` and `why`", 'holdfast agent progress "running the tests" --percent 40'),
            ("save the tree", 'holdfast agent checkpoint --note "before the rewrite"'),
            ("done", 'holdfast agent complete "all tests pass"'),
            ("giving up", 'holdfast agent fail "the base does not build"'),
        ),
        (0, 2, 69),
        ("why", "events"),
    ),
    "rehearse": ManualPage(
        "Plays a scenario with a real supervisor, worktree and processes, in a throw-away repository and home, and "
        "lists leftovers. With --agent, it runs an installed agent CLI once, against a local stub of its provider, "
        "with a throw-away login. Nothing is spent. The exit code is 75 if the task would wait or run again.",
        (
            ("what happens when an agent crashes", "holdfast rehearse crash.toml --timeout 5s"),
            ("what happens at a usage limit", "holdfast rehearse --agent claude --scenario usage-limit"),
        ),
        (0, 1, 2, 75),
        ("run",),
    ),
    "completion": ManualPage(
        "Prints a completion script for your shell: commands, options, their values, and ids of tasks.",
        (
            ("bash, in ~/.bashrc: source <(holdfast completion bash)", "holdfast completion bash"),
            ("zsh: into a file named _holdfast in $fpath", "holdfast completion zsh"),
            ("fish: into ~/.config/fish/completions/holdfast.fish", "holdfast completion fish"),
        ),
        (0, 2),
        ("help",),
    ),
    "help": ManualPage(
        "Explains a command, or lists them all.",
        (
            ("everyday commands", "holdfast help"),
            ("every command and every topic", "holdfast help --all"),
            ("one command", "holdfast help purge"),
            ("one topic", "holdfast help budgets"),
        ),
        (0, 2),
        ("doctor",),
    ),
}


def find_description(name: str, line: str) -> str:
    """Return the description of a command. `line` is its line in the list of commands, used if it has no page."""
    page = PAGES.get(name)
    return page.description if page is not None else f"{line[0].upper()}{line[1:]}."


def build_epilog(name: str, note: str | None) -> str | None:
    """Return the end of `--help`: note, examples, exit codes and related commands."""
    page = PAGES.get(name)
    if page is None:
        return note
    examples = "\n".join(f"  # {what}\n  {line}" for what, line in page.examples)
    codes = "\n".join(f"  {code:<4}{CODES[code]}" for code in sorted(page.codes))
    see = ", ".join(f"holdfast {other}" for other in page.see)
    topic = "agent-reports" if name == "agent" else _find_topic(name)
    more = f"more: `holdfast help {topic}`" if topic is not None else None
    parts = [note, f"examples:\n{examples}", f"exit codes:\n{codes}", f"see also: {see}", more]
    return "\n\n".join(part for part in parts if part)


def _find_topic(name: str) -> str | None:
    """Return the topic with this name, in the singular or the plural. None: there is none."""
    from holdfast.cli.help import front_page, wrong_usage

    known = front_page.topics()
    return name if name in known else wrong_usage.find_same(name, known)


def configure_help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="*", metavar="TOPIC", help="a command or a topic (everyday commands)")
    parser.add_argument("--all", action="store_true", help="list every command and every topic")
    parser.add_argument(
        "--schema", nargs="?", const="", metavar="OUTPUT", help="print the JSON Schema of `holdfast OUTPUT --json`"
    )


def run_help(arguments: argparse.Namespace) -> int:
    from holdfast.cli.help import front_page
    from holdfast.cli.help.wrong_usage import find_same
    from holdfast.cli.main import COMMANDS, build_parser

    if arguments.schema is not None:
        return _print_schema(arguments.schema)
    if not arguments.topic:
        print(front_page.all_commands(COMMANDS) if arguments.all else front_page.front_page(COMMANDS))
        return 0
    first, topic = arguments.topic[0], "-".join(arguments.topic)
    if topic == EXIT_CODES:
        print("# Exit codes\n\n" + "\n".join(f"{code:<5}{what}" for code, what in CODES.items()))
        return 0
    if topic not in COMMANDS:
        topic = _find_topic(topic) or topic
    page = front_page.read_topic(topic)
    if page is not None:
        if topic in COMMANDS:  # the page of the command goes before the page of the topic
            build_parser(topic).print_help()
            print()
        print(page, end="")
        return 0
    name = first if first in COMMANDS else find_same(first, COMMANDS)  # the words behind a command are its actions
    if name is None:
        raise UsageError(_unknown_topic(" ".join(arguments.topic)))
    build_parser(name).print_help()
    return 0


def _print_schema(name: str) -> int:
    import json

    from holdfast.cli.help.json_schema import build_schema, read_schemas

    print(json.dumps(build_schema(name) if name else read_schemas(), indent=2, ensure_ascii=False))
    return 0


def _unknown_topic(topic: str) -> str:
    """Return the answer to a word that is neither a command nor a topic."""
    import difflib

    from holdfast.cli.help import front_page
    from holdfast.cli.help.wrong_usage import unknown_command
    from holdfast.cli.main import COMMANDS

    known = [*front_page.topics(), EXIT_CODES]
    words = [name for name in known if topic in name.split("-")]
    close = words or difflib.get_close_matches(topic.replace(" ", "-"), known, n=1)
    if close:
        return f"There is no topic '{one_line(topic, 40)}'. Did you mean `holdfast help {close[0]}`?"
    if " " in topic:
        return f"There is no command '{one_line(topic, 40)}'. `holdfast help --all` lists topics and the commands."
    return unknown_command(topic, COMMANDS).replace("`holdfast help` lists", "`holdfast help --all` lists topics and")
