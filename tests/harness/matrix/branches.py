"""Work comes home: merged into the branch that is checked out, into another one, and its branches are pruned."""

from __future__ import annotations

import subprocess

from tests.harness.matrix.scenario import Scenario
from tests.harness.matrix.steps import COMMIT, add, insist, state, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries
from holdfast.api.work.branches import list_branches, remove_branch, select_removable
from holdfast.api.work.merge import merge

FIRST, SECOND, ASIDE, KEPT = "be merged first", "be merged second", "be merged aside", "stay on its branch"
SQUASHED = "be merged as one commit"
TARGETS = {FIRST: "main", SECOND: "main", ASIDE: "aside", SQUASHED: "aside"}


MINE = "mine, uncommitted\n"


def merged(world: World) -> None:
    """Two into the checked-out branch (a fast-forward, then a merge commit), two into a branch that nobody looks at, of
    which one is squashed. The checkout has an uncommitted change of the user's."""
    git_output(world, "branch", "aside")
    for number, prompt in enumerate((*TARGETS, KEPT)):
        again = COMMIT.replace("\n", " || :\n")  # for one that is started again, and has nothing to commit
        add(world, prompt, write(_file(prompt), prompt) + again, role=f"add{number}")
    up_to_the_end(world, "up")
    (world.repo / "README.md").write_text(MINE)
    for number, (prompt, target) in enumerate(TARGETS.items()):
        if state(world, prompt) == "completed":
            insist(world, f"merge{number}", lambda p=prompt, t=target: _merge(world, p, t), lambda: False)  # type: ignore[misc]  # bound now
    insist(world, "prune", lambda: _prune(world), lambda: False)


def problems(world: World) -> list[str]:
    """Each is where it belongs, the user's checkout whole, every merge told; what is unmerged keeps its branch."""
    found = []
    events = [event for event in Queries(str(world.home)).events() if event["kind"] == "branch.merged"]
    for prompt, target in TARGETS.items():
        if state(world, prompt) != "completed":
            continue
        if git_output(world, "show", f"{target}:{_file(prompt)}") != prompt:
            found.append(f"lost: the work of '{prompt}' is not on {target}")
        told = [event for event in events if event["task"] == task_id(world, prompt)]
        if len(told) != 1:
            found.append(f"{'silent' if not told else 'twice'}: the merge of '{prompt}' was told {len(told)} times")
    if (world.repo / "README.md").read_text() != MINE:
        found.append("lost: the user's uncommitted change")
    if (changed := git_output(world, "status", "--porcelain")) != "M README.md":
        found.append(f"lost: the user's checkout is not what was merged: {changed}")
    squashed = git_output(world, "log", "--format=%B", "aside").count(f"Holdfast-Task: {task_id(world, SQUASHED)}")
    if state(world, SQUASHED) == "completed" and squashed != 1:
        found.append(f"{'twice' if squashed else 'lost'}: '{SQUASHED}' was squashed {squashed} times")
    branch = f"holdfast/{task_id(world, KEPT)}"
    if state(world, KEPT) == "completed" and git_output(world, "show", f"{branch}:{_file(KEPT)}") != KEPT:
        found.append(f"lost: {branch} was pruned, and nothing else had it")
    return found


def _merge(world: World, prompt: str, target: str) -> None:
    queries = Queries(str(world.home))
    merge(str(world.home), queries.task(task_id(world, prompt)), target, no_ff=False, squash=prompt == SQUASHED)


def _prune(world: World) -> None:
    for branch in select_removable(list_branches(Queries(str(world.home))), unmerged=False):
        remove_branch(str(world.home), branch)


def _file(prompt: str) -> str:
    return prompt.replace(" ", "-")


def git_output(world: World, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=world.repo, capture_output=True, text=True, check=False).stdout.strip()


SCENARIOS: dict[str, Scenario] = {
    "merge": Scenario(
        merged,
        dict.fromkeys((*TARGETS, KEPT), ("completed",)),
        "merged into the checked-out branch, into another, and pruned",
        is_variation=True,
        also=problems,
    )
}
