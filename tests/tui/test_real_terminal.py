"""In a real terminal (tmux): what a person sees and presses, over a plain line, and how the terminal is left."""

from __future__ import annotations

import os
import re
import signal

from tests.acceptance.config.test_config import user_file
from tests.acceptance.dispatch.test_workers import WEB, Crew
from tests.fleet import Fleet, lives, wait_until
from tests.tui.terminal import Terminal, is_sane, needs_tmux, terminal

pytestmark = needs_tmux
COLOUR = re.compile(r"\x1b\[(?:[\d;]*;)?(?:3[0-8]|4[0-8]|9\d|10\d)[;m]")  # 39 and 49 are the terminal's own


def test_a_worker_crashes_out_and_is_restarted_by_a_key(fleet: Fleet) -> None:
    """R-CRASH-10, R-CRASH-04, R-CRASH-06: at 80×24 and 16 colours a person sees the agent that was killed three times,
    the alert on every screen, why the worker is benched, and restarts it with one key."""
    crew = Crew(fleet)
    user_file(fleet, f"agents = 0\n{WEB}restart = true\n")
    tasks = [crew.queue(area="web") for _ in range(3)]
    fleet.up()
    with terminal(fleet) as seen:
        seen.top()
        seen.until_seen(*tasks, "running")
        for _ in range(3):
            crew.kill(wait_until(lambda: crew.worker("web")["task"], "the worker has a task"))
        seen.until_seen("CRITICAL", "Worker web is benched", "PROMPT")
        seen.press("3")
        seen.until_line("LEVEL")
        seen.until_line("critical .*Worker web")
        seen.press("2")
        seen.until_line("web +benched .*3")
        assert "CRITICAL" in seen.text()
        crew.open(*tasks)
        seen.press("r")
        for task in tasks:
            fleet.wait_state(task, "completed")
        seen.until_line("web +waiting")
        seen.press("q")
        seen.until_seen("ended: 0")
        assert is_sane(seen)


def test_sizes_a_stop_and_a_kill_leave_the_terminal_as_it_was(fleet: Fleet) -> None:
    """R-CRASH-10: narrow, wide, stopped and continued, told to end: readable, and the shell gets its terminal back."""
    task = fleet.add("write a poem", command=("sleep", "100"))
    with terminal(fleet) as seen:
        assert is_sane(seen)
        pid = seen.top()
        seen.until_seen(task, "queued", "Quit")
        seen.resize(40, 12)
        _fits(seen, 40, "write a poem", "queued")
        seen.resize(200, 50)
        _fits(seen, 200, task, "queued", "write a poem")
        seen.resize(80, 24)
        _fits(seen, 80, task, "queued")
        seen.press("C-z")
        wait_until(lambda: is_sane(seen), "the terminal is the shell's while it is stopped")
        seen.type("fg; echo ended: $?")
        seen.until_seen(task, "queued", "Quit")
        os.kill(pid, signal.SIGTERM)
        seen.until_seen("ended: 143")
        assert is_sane(seen)
        seen.top()
        seen.until_seen(task, "Quit")
        seen.press("C-c")
        seen.until_seen("ended: 130")
        assert is_sane(seen)


def test_without_colours_and_when_the_terminal_goes_away(fleet: Fleet) -> None:
    """R-CRASH-10: NO_COLOR means none, and the cursor is still seen; a closed terminal leaves no process of ours. The
    terminal's own size counts, not what a shell exported once; letters that it has not are one question mark each."""
    task = fleet.add("write a poem " * 20, command=("sleep", "100"))
    odd = {"NO_COLOR": "1", "COLUMNS": "30", "LINES": "9", "PYTHONIOENCODING": "latin-1"}
    with terminal(fleet, term="xterm-256color", env=odd) as seen:
        pid = seen.top()
        seen.until_seen(task, "queued", "Quit")
        wait_until(
            lambda: re.search(rf"\x1b\[[\d;]*7m[^\n]*{task}", seen.text(colours=True)),
            "the cursor's line is in reverse",
        )
        drawn = seen.text(colours=True)
        assert not COLOUR.search(drawn), drawn
        assert "\\u20" not in drawn, drawn
        _fits(seen, 80, task, "write a poem ")
    wait_until(lambda: not lives(pid), "nothing is left when the terminal is gone")


def test_it_ends_when_told_to_while_the_terminal_is_another_s(fleet: Fleet) -> None:
    """R-CRASH-10: `kill` ends it after Ctrl+Z, and while a shell that it opened has the terminal; it is not stopped by
    touching that from the background."""
    task = fleet.queue("exec sleep 1000")
    fleet.up("--agents", 1)
    fleet.wait_started(task)
    with terminal(fleet, env={"SHELL": "/bin/sh"}) as seen:
        pid = seen.top()
        seen.until_seen(task, "Shell")
        seen.press("w")
        seen.until_seen("is kept while you are in it")
        seen.type("echo in: ${PWD##*/} by $$")
        shell = int(seen.until_line(f"^in: {task} by ").split()[-1])
        os.kill(pid, signal.SIGTERM)
        seen.until_seen("ended: 143")
        os.kill(shell, signal.SIGKILL)  # it would take the next line
        wait_until(lambda: not lives(shell), "the shell has ended")
        pid = seen.top()
        seen.until_seen(task, "Shell")
        seen.press("C-z")
        wait_until(lambda: is_sane(seen), "the terminal is the shell's while it is stopped")
        os.kill(pid, signal.SIGTERM)  # and as shells do it:
        os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not lives(pid), "it has ended")
        assert is_sane(seen)


def _fits(seen: Terminal, columns: int, *words: str) -> None:
    """The words are there, and the keys are on the last line: nothing of another size is left over."""

    def fits() -> bool:
        lines = seen.text().rstrip("\n").split("\n")
        return (
            all(word in "\n".join(lines) for word in words)
            and "Help" in lines[-1]
            and max(map(len, lines)) <= columns
            and seen.size() == (columns, len(lines))
        )

    wait_until(fits, f"it is drawn for {columns} columns:\n{seen.text()}")
