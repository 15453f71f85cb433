"""Plays a scenario as the agent process. Run as `python -I -S player.py`, the script as JSON on standard input.

Standard library only, so that it starts fast and behaves like a foreign program: it knows nothing of Holdfast but the
environment variables that every agent gets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time


def tell(event: str, /, **fields: object) -> None:
    """An event for the adapter, one JSON line."""
    say(json.dumps({"holdfast": event, **fields}))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def do_print(text: str) -> None:
    say(text)


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
    """Until a file exists: how tests hold an agent at a known point."""
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


def do_limit(what: dict[str, object]) -> None:
    wait = what.get("for")
    tell("limit", kind=what["kind"], until=time.time() + float(str(wait)) if wait is not None else None)
    do_exit(1)


def do_heartbeat(_flag: bool) -> None:
    path = os.path.join(os.environ["HOLDFAST_CHANNEL"], "heartbeat")
    do_touch(path)
    os.utime(path)


def do_spawn(what: dict[str, object]) -> None:
    """A child that does not want to die with us. Returns when it exists and (if asked) has written its pid."""
    seconds = float(str(what.get("lives", 3600)))
    note = os.path.abspath(str(what["write"])) if "write" in what else None  # a daemon leaves our directory
    ready_r, ready_w = os.pipe()
    if os.fork() == 0:
        os.close(ready_r)
        become(str(what["kind"]))
        if note is not None:
            with open(note, "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        os.close(ready_w)
        time.sleep(seconds)
        os._exit(0)
    os.close(ready_w)
    os.read(ready_r, 1)
    os.close(ready_r)


def become(kind: str) -> None:
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


def main() -> None:
    script = json.load(sys.stdin)
    tell("session", id=script["session"] or f"scripted-{os.environ.get('HOLDFAST_RUN_ID', os.getpid())}")
    for step in script["steps"]:
        if step["run"] in (None, script["run"]):
            globals()[f"do_{step['do']}"](step["with"])
    tell("result", status="success")


if __name__ == "__main__":
    main()
