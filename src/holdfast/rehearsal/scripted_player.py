"""The scripted agent's process: plays a scenario. Run as `python -I -S scripted_player.py`, with the scenario on stdin.

The scenario is JSON. This program uses only the standard library, so that it starts fast and behaves like a foreign
program. It knows nothing of Holdfast but the environment variables that every agent gets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

FOR_EVER = 10.0**8
# Steps that an agent also takes before its model answers. After any other step a limit comes in the middle of the work.
BEFORE_ANSWER = frozenset(
    {"sleep", "wait_for", "touch", "ignore_term", "provider", "near_limit", "heartbeat", "mute", "limit", "burn"}
)
has_answered = False


def print_event(event: str, /, **fields: object) -> None:
    """Print an event for the adapter, as one JSON line."""
    print_line(json.dumps({"holdfast": event, **fields}))


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def do_print(text: str) -> None:
    print_line(text)


def do_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def do_sleep(seconds: float) -> None:
    time.sleep(seconds)


def do_write(what: dict[str, str]) -> None:
    os.makedirs(os.path.dirname(what["path"]) or ".", exist_ok=True)
    with open(what["path"], "a" if "append" in what else "w", encoding="utf-8") as file:
        file.write(what["text"])


def do_remove(path: str) -> None:
    os.unlink(path)


def do_commit(message: str) -> None:
    identity = ["-c", "user.name=Scripted Agent", "-c", "user.email=scripted@localhost"]
    subprocess.run(["git", "add", "--all"], check=True)
    subprocess.run(["git", *identity, "commit", "--quiet", "--allow-empty", "-m", message], check=True)


def do_ignore_term(_flag: bool) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def do_hang(_flag: bool) -> None:
    while True:
        signal.pause()


def do_wait_for(path: str) -> None:
    """Wait until a file exists. Tests use this to hold an agent at a known point."""
    while not os.path.exists(path):
        time.sleep(0.01)


def do_touch(path: str) -> None:
    with open(path, "a", encoding="utf-8"):
        pass


def do_crash(name: str) -> None:
    os.kill(os.getpid(), getattr(signal, name))
    signal.pause()


def do_exit(code: int) -> None:
    sys.stdout.flush()
    os._exit(code)


def do_provider(_name: str) -> None:
    """Do nothing: only the adapter needs the name of the provider."""


def do_near_limit(what: dict[str, float]) -> None:
    print_event("near_limit", used=what["used"] / 100, until=time.time() + what["for"] if "for" in what else None)


def do_limit(what: dict[str, object]) -> None:
    if "while" in what and not os.path.exists(str(what["while"])):
        return
    wait = what.get("for")
    until = time.time() + float(str(wait)) if wait is not None else None
    print_event("limit", kind=what["kind"], until=until, answered=has_answered)
    do_exit(1)


def do_usage(what: dict[str, object]) -> None:
    """Print the tokens and the cost, as agents do while they work."""
    print_event("usage", **what)


def do_heartbeat(how: bool | dict[str, float]) -> None:
    """Touch the heartbeat file once, or repeatedly and do nothing else meanwhile."""
    path = os.path.join(os.environ["HOLDFAST_CHANNEL"], "heartbeat")
    until = time.monotonic() + (how["for"] if isinstance(how, dict) else 0)
    while True:
        do_touch(path)
        os.utime(path)
        if not isinstance(how, dict) or time.monotonic() >= until:
            return
        time.sleep(how["every"])


def do_say(text: str) -> None:
    print_event("text", text=text)


def do_event(name: str) -> None:
    """Print an event that does not count as progress, however often it is repeated."""
    print_event("event", name=name)


tools_opened = 0


def do_tool(what: dict[str, object]) -> None:
    """Play a tool call: open it, work, close it. Without `for` it never ends."""
    global tools_opened
    tools_opened += 1
    print_event("tool", id=tools_opened, name=what["name"], input=what.get("input"), deadline=what.get("deadline"))
    seconds = float(str(what.get("for", FOR_EVER)))
    work = what.get("work", "sleep")
    if work == "child":
        child = os.fork()
        if child == 0:
            burn(seconds)
            os._exit(0)
        os.waitpid(child, 0)
    elif work == "burn":
        burn(seconds)
    else:
        time.sleep(seconds)
    print_event("tool", id=tools_opened, name=what["name"], closed=True)


def do_repeat(what: dict[str, object]) -> None:
    """Print the same text or event again and again. Without `times` it never ends."""
    left = float(str(what.get("times", FOR_EVER)))
    while left > 0:
        left -= 1
        if "say" in what:
            do_say(str(what["say"]))
        else:
            do_event(str(what.get("event", "tick")))
        time.sleep(float(str(what["every"])))


def do_burn(what: float | dict[str, float]) -> None:
    how = what if isinstance(what, dict) else {"for": what}
    burn(how["for"], how.get("percent", 100))


def burn(seconds: float, percent: float = 100) -> None:
    """Use `percent` of one core, in slices of a tenth of a second."""
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until:
        while time.monotonic() < now + 0.1 * percent / 100:
            pass
        time.sleep(0.1 * (1 - percent / 100))


def do_block(_flag: bool) -> None:
    """Block on a pipe that a child inherited and never closes."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.close(read)
        do_hang(True)
    os.close(write)
    os.read(read, 1)


def do_mute(_flag: bool) -> None:
    """Do nothing. As the first step it also suppresses the session event (see main)."""


def do_report(what: dict[str, object]) -> None:
    """Append a report with the plain file protocol, as any program can (docs/howto/agent-reports.md)."""
    report = {"token": os.environ["HOLDFAST_RUN_TOKEN"], "report": what["kind"], "message": what.get("message", "")}
    if "percent" in what:
        report["percent"] = what["percent"]
    fd = os.open(os.path.join(os.environ["HOLDFAST_CHANNEL"], "reports"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, (json.dumps(report) + "\n").encode())
    os.close(fd)


def do_spawn(what: dict[str, object]) -> None:
    """Start a child that tries to outlive the agent. Returns when it runs and (if asked) has written its pid."""
    seconds = float(str(what.get("lives", 3600)))
    note = os.path.abspath(str(what["write"])) if "write" in what else None  # a daemon changes its directory
    ready_r, ready_w = os.pipe()
    if os.fork() == 0:
        os.close(ready_r)
        become_kind(str(what["kind"]))
        if note is not None:
            with open(note, "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        os.close(ready_w)
        time.sleep(seconds)
        os._exit(0)
    os.close(ready_w)
    os.read(ready_r, 1)
    os.close(ready_r)


def become_kind(kind: str) -> None:
    if kind == "group":
        os.setpgid(0, 0)
    elif kind == "session":
        os.setsid()
    elif kind == "daemon":
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
    elif kind == "ignore-term":
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def print_session(script: dict[str, object]) -> None:
    print_event("session", id=script["session"] or f"scripted-{os.environ.get('HOLDFAST_RUN_ID', os.getpid())}")


def main() -> None:
    global has_answered
    script = json.load(sys.stdin)
    if not (script["steps"] and script["steps"][0]["do"] == "mute"):
        print_session(script)
    for step in script["steps"]:
        if step["run"] in (None, script["run"]):
            has_answered = has_answered or step["do"] not in BEFORE_ANSWER
            globals()[f"do_{step['do']}"](step["with"])
    print_event("result", status="success")


if __name__ == "__main__":
    main()
