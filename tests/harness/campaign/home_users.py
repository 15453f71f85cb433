"""People and their tools beside Holdfast: garbage collection under an agent's stash, a purge that is killed, a home
that another user finds, names that are not UTF-8 under locale C.

A case is `what/how`: `stash/detached`, `purge/120` (milliseconds), `other-user/add`, `locale/diff`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.harness.campaign.family import Run, Scope
from tests.harness.campaign.limited_process import (
    TRACEBACK,
    Ordeal,
    add,
    command,
    holdfast,
    let_go_on,
    rest,
    said,
    supervise,
    tasks,
)
from tests.harness.campaign.limits import FIRST_USER, become_user
from tests.harness.matrix.steps import COMMIT, task_id, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries
from holdfast.checker import fingerprint

WORDS, FAILS = "work beside people", "fail beside people"
STAY = 10.0
ASK = f"{sys.executable} -m holdfast agent checkpoint; until [ -e $WORLD/go-on ]; do sleep 0.02; done\n"
HIDE = write("hidden.txt", "hidden") + "git add hidden.txt; "
STASHES = {
    "branch": HIDE + "git stash -q\n",
    "message": HIDE + "git stash push -q -m kept\n",
    "detached": "git checkout -q --detach; " + HIDE + "git stash -q; git switch -q -\n",
    "other": "git switch -q -c other; " + HIDE + "git stash -q; git switch -q -\n",
    "stored": HIDE + "git stash store -m kept $(git stash create); git reset -q --hard\n",
}
COLLECT = (("reflog", "expire", "--expire=now", "--expire-unreachable=now", "--all"), ("gc", "-q", "--prune=now"))
OTHERS = {
    "add": ("add", WORDS, "--", "true"),
    "up": ("up", "--idle-exit", "0s"),
    "sweep": ("sweep",),
    "purge": ("purge", "--yes", "--discard-work"),
}
ODD = "printf x > \"$(printf 'n\\377m.txt')\"; "
LOOKS = {
    "show": ("show", "{id}"),
    "why": ("why", "{id}"),
    "diff": ("diff", "{id}"),
    "logs": ("logs", "{id}"),
    "ps": ("ps", "--all"),
    "doctor": ("doctor",),
    "report": ("report", "{id}"),
}


class Users(Ordeal):
    name = "users"
    about = "the user's gc under an agent's stash, a killed purge, another user's commands, odd names under locale C"
    USUAL = 16

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        every = [
            *(f"stash/{how}" for how in STASHES),
            *(f"locale/{look}" for look in LOOKS),
            *(f"purge/{late}" for late in range(0, 400, 10)),
            *(f"other-user/{what}" for what in OTHERS if os.geteuid() == 0),
        ]
        return chance.sample(every, min(scope.amount(self.USUAL, len(every)), len(every)))

    def undergo(self, world: World, case: str) -> tuple[list[str], str]:
        what, _, how = case.partition("/")
        play = {"stash": _stash, "purge": _purge, "other-user": _other_user, "locale": _locale}[what]
        return play(world, how), ""


def _stash(world: World, how: str) -> list[str]:
    """The user's `reflog expire` and `gc` destroy what only the shared list of stashes held."""
    found = add(world, WORDS, STASHES[how] + ASK + write("after.txt", "after"))
    supervise(world, "up")
    queries = Queries(str(world.home))
    has_one = lambda: queries.task(task_id(world, WORDS))["checkpoints"]  # noqa: E731 - a fact
    world.wait_until(has_one, "the agent's checkpoint is kept", while_running="up")
    for words in (("stash", "clear"), *COLLECT):
        subprocess.run(["git", *words], cwd=world.repo, check=True, capture_output=True)
    (world.root / "go-on").touch()
    return [*found, *let_go_on(world, "up", STAY), *rest(world, [WORDS])]


def _purge(world: World, late: str) -> list[str]:
    """Killed half way, and asked once more: home and entries are gone, branches stay, saved work was exported."""
    found = add(world, WORDS, write("done.txt", "done") + COMMIT)
    found += add(world, FAILS, write("kept.txt", "kept") + "exit 3\n", role="add-2")
    world.up("up")
    before = _git(world, "branch", "--list", "holdfast/*")
    export = str(world.root / "export")
    world.begin("purge", lambda: holdfast("purge", "--yes", "--export", f"{export}-first"))
    time.sleep(int(late) / 1000)
    world.kill("purge")
    code, told = 0, ""
    for tries, _moment in enumerate(world.moments("the killed purge's own git has ended, so its lock is free")):
        if not world.home.exists():
            break
        code, told = command(world, f"again-{tries}", "purge", "--yes", "--export", f"{export}-{tries}")
        if "already running" not in told:
            break
    if code != 0:
        found.append(f"loops: a purge that was killed cannot be done again ({code}): {told.strip()[:200]}")
    if world.home.exists():
        found.append("leaked: the home is still there")
    if len(_git(world, "worktree", "list").splitlines()) != 1:
        found.append("leaked: an entry of a worktree")
    if _git(world, "branch", "--list", "holdfast/*") != before:
        found.append("lost: a branch with work")
    if not any(path.is_file() for path in world.root.glob("export-*/**/*")):
        found.append("lost: the saved work was not exported")
    return found


def _other_user(world: World, what: str) -> list[str]:
    """Who is not its owner changes nothing in a home, and is told so."""
    found = add(world, WORDS, write("done.txt", "done") + "true\n")
    before = fingerprint(str(world.home))
    world.burden = lambda role: become_user(FIRST_USER + os.getpid()) if role == "other" else None
    code, told = command(world, "other", *OTHERS[what])
    if code == 0 or "holdfast: " not in told:
        found.append(f"silent: another user's `{what}` ended with {code}: {told.strip()[:200]}")
    after = fingerprint(str(world.home))
    found += [f"lost: another user changed {part}" for part in before if before[part] != after.get(part)]
    return [*found, *rest(world, [WORDS])]


def _locale(world: World, look: str) -> list[str]:
    """A new interpreter without any UTF-8 shows what an agent named in bytes."""
    found = add(world, WORDS, ODD + write("done.txt", "done") + COMMIT)
    world.up("up")
    [row] = tasks(world)
    words = [word.replace("{id}", str(row["id"])) for word in LOOKS[look]]

    def start() -> None:
        os.environ.update(LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
        os.execv(sys.executable, [*world.mutation.command, *words])

    world.client("look", start)
    code = world.wait("look")
    if code != 0 and not (look == "doctor" and code == 1):
        found.append(f"silent: `{look}` ended with {code} under locale C: {said(world)[-300:]}")
    if TRACEBACK in said(world):
        found.append(f"silent: `{look}` ended with a traceback under locale C")
    asked = ["git", "ls-tree", "-z", "--name-only", f"holdfast/{row['id']}"]
    listed = subprocess.run(asked, cwd=world.repo, capture_output=True, check=False).stdout
    if b"n\xffm.txt" not in listed.split(b"\0"):
        found.append("lost: a file whose name is not UTF-8")
    return [*found, *rest(world, [WORDS])]


def _git(world: World, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=world.repo, capture_output=True, text=True, check=True).stdout
