"""A hostile repository runs nothing as us: traps for git, wherever a repository or an agent can set them, and every
command of ours that touches a repository. A trap that springs leaves a witness; none may.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.campaign import traps
from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.campaign.trap_locations import BLIND, COMMIT, PLACES, by_hand
from tests.harness.campaign.traps import ATTRIBUTES, FILES, TOGETHER, TRAPS, Ground
from tests.harness.campaign.typed_text import CRASHED, on_terminal
from tests.harness.engines.newest_git import find_newest_git
from tests.harness.matrix.cases import Case
from tests.harness.matrix.steps import add, task, write
from tests.harness.matrix.world import Stuck, World

from holdfast.checker import violations

# A commit that names a blob which nobody has: git asks a promisor for it.
_MISSING = (
    "tree=$({ git ls-tree HEAD; printf '100644 blob 1111111111111111111111111111111111111111\\tmissing.txt\\n'; }"
    " | git mktree --missing) && "
    "git update-ref HEAD $(git -c user.name=A -c user.email=a@localhost commit-tree $tree -p HEAD -m missing)\n"
)


class HostileRepo(Grounds):
    name = "hostile-repo"
    about = "traps in a repository (hooks, filters, drivers, helpers, remotes, links): none springs as us"
    USUAL = 16

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._number = 0

    def prepare(self, root: Path) -> None:
        super().prepare(root)
        template = root / "template"
        (template / ".gitattributes").write_text(ATTRIBUTES)
        for name in FILES:
            (template / name).write_text("one\ntwo\nthree\n")
        for words in (["add", "."], ["commit", "-qm", "Files"]):
            subprocess.run(["git", *words], cwd=template, check=True)

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        together = [f"{place}/{TOGETHER}/{life}" for place in PLACES for life in LIVES]
        alone = [f"{place}/{trap}/{life}" for place in PLACES for trap in TRAPS for life in LIVES]
        if scope.long:
            return [*together, *alone]
        chance = random.Random(scope.start_from_head)
        places, lives = sorted(PLACES), sorted(LIVES)
        others = [*sorted(traps.ALONE), *chance.choices(TRAPS, k=self.USUAL - len(PLACES) - len(traps.ALONE))]
        some = [f"{place}/{TOGETHER}/{chance.choice(lives)}" for place in places]
        some += [f"{chance.choice(places)}/{trap}/{chance.choice(lives)}" for trap in others]
        return chance.sample(some, min(scope.amount(self.USUAL), len(some)))

    def play(self, case: str) -> Played:
        began = time.monotonic()
        self._number += 1
        world = World(
            self._root / f"{os.getpid()}-{self._number}", self._root / "template", Case("hostile"), self._broken
        )
        try:
            found = _play(world, *case.split("/"))
            log = world.log.read_text(errors="replace")[-3000:] if found and world.log.exists() else ""
            return Played(case, tuple(found), seconds=time.monotonic() - began, log=log)
        finally:
            world.close()


class HostileRepoNewestGit(HostileRepo):
    """The same with the newest git, which has hooks in its configuration (scripts/setup_git.sh)."""

    name = "newest-git"
    about = "the traps of hostile-repo, with the newest git"

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._git, self._why_not = find_newest_git()

    def absent(self) -> str:
        return "" if self._git is not None else f"the newest git: {self._why_not}"

    def play(self, case: str) -> Played:
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{self._git}:{before}"
        try:
            return super().play(case)
        finally:
            os.environ["PATH"] = before


def _play(world: World, place: str, which: str, life: str) -> list[str]:
    names = traps.names_of(which)
    asks_promisor = which.startswith("promisor")
    witness = world.root / "sprung"
    ground = Ground(world.repo / ".git", traps.make_trap(world.root / "traps", witness), world.root / "beside")
    ground.used_by_other_runs.mkdir()
    _remote(world)
    outside = _outside(world)
    script, workspace = PLACES[place](world, names, ground)
    sees_bytes = not asks_promisor and place not in BLIND
    try:
        found = _live(world, life, Plot(script, workspace, asks_promisor, sees_bytes))
    except Stuck as stuck:
        found = [f"loops: {stuck}"]
    found += [f"leaked: a trap ran as us: {line[:300]}" for line in sorted(set(traps.sprung(witness)))]
    return found + (["lost: a file outside of the repository was changed"] if _outside(world) != outside else [])


@dataclass(frozen=True, slots=True)
class Plot:
    """What the agents do, and where. `sees_bytes`: the checker can tell whether all that they wrote is kept."""

    plant: str
    workspace: str
    asks_promisor: bool
    sees_bytes: bool


def _live(world: World, life: str, plot: Plot) -> list[str]:
    """One kind of end that a task has, and the commands that touch a repository then; what was wrong."""
    work = "".join(f"echo more >> {name}\n" for name in FILES) + write("left.txt", "left")
    first = write("done.txt", "done") + f"sed -i s/two/2/ *.merge *.plain; git add -A; {COMMIT} -m work\n"
    first += _MISSING if plot.asks_promisor else ""
    script = f"{first}{plot.plant}{work}"
    if life == "crash":
        again = write("second.txt", "second")
        script = f'if ! [ -e "$WORLD/once" ]; then : > "$WORLD/once"; {script}kill -9 $$; fi\n{again}'
    elif life != "good":
        script += "exit 1"
    add(world, life, script, workspace=plot.workspace, preserve_on_failure=life == "kept")
    world.up("up")
    by_hand(world, "sed -i s/two/zwei/ file.merge && git commit -qam mine || :")
    task_id = str((task(world, life) or {}).get("id", ""))
    wrong = _give(world, LIVES[life], task_id)
    promises = violations(str(world.home), at_rest=False, witness=str(world.witness))
    seen = [str(one) for one in promises if one.promise != "leaked"]
    if not plot.sees_bytes:
        seen = [words for words in seen if not words.startswith(("lost: bytes", "lost: workspace"))]
    return [*seen, *wrong, *_give(world, ENDS, task_id)]


def _give(world: World, commands: str, task_id: str) -> list[str]:
    """Commands, one per line; ID is the task, TMP a directory."""
    crashed = []
    path = f"{world.root}/traps:{os.environ['PATH']}"
    for line in commands.split("\n"):
        words = [{"ID": task_id}.get(word, word.replace("TMP", str(world.root))) for word in line.split()]
        if words == ["up"]:
            world.up(f"up-{len(list(world.root.glob('trace-*')))}")
        elif words and on_terminal(world, *words, env={"PATH": path}).code == CRASHED:  # a pager needs one
            crashed.append(f"silent: `holdfast {line.strip()}` ended by an exception")
    return crashed


LIVES: Mapping[str, str] = {
    "good": """
        show ID
        diff ID
        report ID
        branches
        init
        trust
        config
        pr ID
        merge ID
        merge ID --no-ff --into side
    """,
    "bad": """
        diff ID --stat
        salvage show ID --patch
        salvage restore ID --branch restored
        salvage restore ID --to TMP/restored
        doctor
        retry ID --fresh
        up
        diff ID
    """,
    "kept": """
        diff ID
        workspaces
        shell ID -c true
        doctor --invariants
        sweep --dry-run
        retry ID
        up
        diff ID
    """,
    "crash": """
        diff ID
        diff ID --checkpoint 1
        doctor --fix
        sweep
    """,
}
# What takes things away, after everybody has looked.
ENDS = """
    backup TMP/backup.tar
    restore TMP/backup.tar --yes
    branches prune --all-ended
    workspaces clean --all-preserved --yes
    up
    purge --dry-run --branches
"""


def _remote(world: World) -> None:
    """Somewhere to push to, a branch to merge into, and a `gh` that looks into the repository as the real one does."""
    origin = world.root / "origin.git"
    by_hand(world, f"git clone -q --bare . {origin}; git remote add origin {origin}; git branch side")
    gh = world.root / "traps" / "gh"
    gh.write_text("#!/bin/sh\ngit status --porcelain; git log -1; git diff; git remote -v; git config --list\n")
    gh.chmod(0o755)


def _outside(world: World) -> dict[str, str]:
    """Files that are nobody's business."""
    folder = world.root / "outside"
    if not folder.exists():
        (folder / "deep").mkdir(parents=True)
        for name in ("mine.txt", "deep/mine.txt", "file.plain"):
            (folder / name).write_text("of the user\n")
    return {str(path): path.read_text() if path.is_file() else "" for path in sorted(folder.rglob("*"))}
