#!/usr/bin/env python3
"""A stand-in for `br`, the command line of beads_rust: strict about its arguments, its state in a file behind a lock.

Like the real one, its claim is not atomic (it looks, then writes), `update` prints what it changed from and to and
reopens a closed issue, and a part of an id finds an issue. `.beads/standin.json` has the issues and how it behaves:
shape (array | object | envelope), huge (bytes more per issue), slow (seconds), broken (exit code), garbage (printed
instead), no_actor and plain_ready (an old tool), lies (exit 0 for a refused claim, like `bd`), gates ({"update
--claim": a file that it waits for}), before ({"look" | "claim" | "update" | "close": [{"id": …, field: …}]}): what
somebody else does just before this one looks or writes, each once. Each call is a line in `calls`.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # this has to start in a moment
    from collections.abc import Mapping
    from typing import Any, NoReturn

FOLDER = ".beads"
STATUSES = ("open", "in_progress", "closed", "blocked", "deferred")
TAKES = {  # command → (options and how many words each takes, positional words)
    "ready": ({"--json": 0, "--label": 1, "--unassigned": 0, "--limit": 1, "--actor": 1}, 0),
    "show": ({"--format": 1}, 1),
    "update": ({"--claim": 0, "--assignee": 1, "--status": 1, "--actor": 1}, 1),
    "close": ({"--reason": 1, "--actor": 1}, 1),
    "comments": ({"--actor": 1}, 3),
}


def main(argv: list[str], where: str, environ: Mapping[str, str]) -> None:
    while not os.path.isdir(os.path.join(where, FOLDER)):
        if where == "/":
            fail("no beads workspace found", "NOT_INITIALIZED", 2)
        where = os.path.dirname(where)
    path = os.path.join(where, FOLDER, "standin.json")
    with open(os.path.join(where, FOLDER, "calls"), "a") as calls:
        calls.write(json.dumps(argv) + "\n")
    with Locked(path) as state:
        how = state.data["how"]
    gate = how.get("gates", {}).get(" ".join(argv[:1] + [word for word in argv if word == "--claim"]))
    while gate and not os.path.exists(gate):
        time.sleep(0.01)
    time.sleep(how.get("slow", 0))
    if how.get("broken"):
        fail("the database is locked", "DATABASE_LOCKED", how["broken"])
    if how.get("garbage") is not None:
        sys.stdout.write(how["garbage"])
        return
    command, options, words = parsed(argv, how)
    actor = options.get("--actor") or environ.get("BEADS_ACTOR") or "nobody-said-who"
    if command == "ready":
        ready(path, options)
    elif command == "show":
        with Locked(path) as state:
            print(shaped(pick(state.data, words[0]), how))
    elif command == "update":
        update(path, words[0], options, actor, how)
    elif command == "close":
        close(path, words[0], options["--reason"], actor)
    else:
        with Locked(path) as state:
            pick(state.data, words[1]).setdefault("comments", []).append({"author": actor, "text": words[2]})
            state.save()


def ready(path: str, options: dict[str, str]) -> None:
    """Older tools list what is in progress, too."""
    with Locked(path) as state:
        found = [issue for issue in state.data["issues"] if issue["status"] in ("open", "in_progress")]
    found = [issue for issue in found if not issue.get("blocked")]
    if "--label" in options:
        found = [issue for issue in found if options["--label"] in issue.get("labels", [])]
    if "--unassigned" in options:
        found = [issue for issue in found if not issue.get("assignee")]
    print(json.dumps(found))


def update(path: str, part: str, options: dict[str, str], actor: str, how: dict[str, Any]) -> None:
    """Looks, then writes: between the two, others may write as well."""
    meddle(path, "look", part)
    with Locked(path) as state:
        seen = dict(pick(state.data, part))
    if "--claim" in options and seen.get("assignee") not in (None, actor):
        if how.get("lies"):
            sys.stderr.write(f"Error claiming {part}\n")
            return
        fail("issue already assigned to " + seen["assignee"], "VALIDATION_FAILED", 4)
    meddle(path, "claim" if "--claim" in options else "update", part)
    with Locked(path) as state:
        issue = pick(state.data, part)
        before = dict(issue)
        if "--claim" in options:
            issue.update(assignee=actor, status="in_progress")
        if "--status" in options:
            issue["status"] = options["--status"]
        if "--assignee" in options:
            issue["assignee"] = options["--assignee"] or None
        state.save()
    print(f"Updated {issue['id']}: {issue['title']}")
    for field in ("status", "assignee"):
        was, now = before.get(field) or "(none)", issue.get(field) or "(none)"
        if was != now:
            print(f"  {field}: {was} → {now}")


def close(path: str, part: str, reason: str, actor: str) -> None:
    meddle(path, "close", part)
    with Locked(path) as state:
        issue = pick(state.data, part)
        if issue["status"] == "closed":
            fail("already closed", "ALREADY_CLOSED", 3)
        issue.update(status="closed", close_reason=reason, closed_by=actor)
        state.save()


def meddle(path: str, moment: str, part: str) -> None:
    """Somebody else, just now."""
    with Locked(path) as state:
        waiting = state.data["how"].get("before", {}).get(moment, [])
        mine = [change for change in waiting if change["id"] == part]
        if mine:
            waiting.remove(mine[0])
            pick(state.data, part).update(mine[0])
            state.save()


def parsed(argv: list[str], how: dict[str, Any]) -> tuple[str, dict[str, str], list[str]]:
    """Exactly what `br` takes of what we use; anything else is refused as clap does it."""
    if not argv or argv[0] not in TAKES:
        usage(f"unrecognized subcommand {argv[:1]}")
    takes, positional = TAKES[argv[0]]
    old = ({"--actor"} if how.get("no_actor") else set()) | (
        {"--unassigned", "--limit"} if how.get("plain_ready") else set()
    )
    options: dict[str, str] = {}
    words, rest = [], list(argv[1:])
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            words.append(word)
        elif word not in takes or word in old or (takes[word] and not rest):
            usage(f"unexpected argument '{word}' found")
        else:
            options[word] = rest.pop(0) if takes[word] else ""
    check(argv[0], options, words, positional)
    return argv[0], options, words


def check(command: str, options: dict[str, str], words: list[str], positional: int) -> None:
    if len(words) != positional or (command == "comments" and words[0] != "add"):
        usage("wrong number of arguments")
    if command == "ready" and "--json" not in options:
        usage("this stand-in prints JSON only")
    if command == "show" and options.get("--format") != "json":
        usage("this stand-in prints JSON only")
    if command == "update" and not options.keys() & {"--claim", "--assignee", "--status"}:
        usage("nothing to update")
    if command == "close" and "--reason" not in options:
        usage("a reason is required here")
    if options.get("--status", "open") not in STATUSES:
        usage("invalid status")


def pick(data: dict[str, Any], part: str) -> dict[str, Any]:
    exact = [issue for issue in data["issues"] if issue["id"] == part]
    found: list[dict[str, Any]] = exact or [issue for issue in data["issues"] if part in issue["id"]]
    if len(found) != 1:
        fail("Issue not found: " + part, "ISSUE_NOT_FOUND", 3)
    return found[0]


def shaped(issue: dict[str, Any], how: dict[str, Any]) -> str:
    found = {key: value for key, value in issue.items() if value is not None}
    if how.get("huge"):
        found["design"] = "x" * how["huge"]
    shapes = {"array": [found], "object": found, "envelope": {"schema_version": 1, "data": [found]}}
    return json.dumps(shapes[how.get("shape", "array")])


class Locked:
    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> Locked:
        self.fd = os.open(self.path + ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(self.fd, fcntl.LOCK_EX)
        with open(self.path) as file:
            self.data: dict[str, Any] = json.load(file)
        return self

    def save(self) -> None:
        with open(self.path + ".new", "w") as file:
            json.dump(self.data, file)
        os.replace(self.path + ".new", self.path)

    def __exit__(self, *_error: object) -> None:
        os.close(self.fd)


def fail(message: str, code: str, status: int) -> NoReturn:
    sys.stderr.write(json.dumps({"error": {"code": code, "message": message, "retryable": False}}) + "\n")
    raise SystemExit(status)


def usage(message: str) -> NoReturn:
    sys.stderr.write(f"error: {message}\n\nUsage: br [OPTIONS] <COMMAND>\n")
    raise SystemExit(2)


if __name__ == "__main__":
    main(sys.argv[1:], os.getcwd(), os.environ)
