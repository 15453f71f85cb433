"""R-TREE-13: random states of a tree. Afterwards the hash of every file that git would add, every staged blob and every
commit is found in a branch, in the salvage, or in the directory that was preserved.

`HOLDFAST_TREE_FUZZ_COUNT=1000` for the campaign (`make faults`), `HOLDFAST_TREE_FUZZ_SEED=N` to begin elsewhere; one
case again: `HOLDFAST_TREE_FUZZ_ONLY=SEED pytest tests/fuzz/test_tree_states.py`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.fuzz.tree_states import EMPTY, Agent, Expected, blob, expectation
from tests.integration.conftest import Workshop

from holdfast.base.errors import WorkspaceProblem
from holdfast.workspaces.port import SalvageResult

COUNT = int(os.environ.get("HOLDFAST_TREE_FUZZ_COUNT", "20"))
SEED = int(os.environ.get("HOLDFAST_TREE_FUZZ_SEED", "1"))
ONLY = os.environ.get("HOLDFAST_TREE_FUZZ_ONLY")
PARTS = 4 if COUNT > 50 else 2  # so that several workers share the campaign


@pytest.fixture
def shop(fleet: object) -> Workshop:
    return Workshop(fleet)  # type: ignore[arg-type]  # the fixture of tests/conftest.py


@pytest.mark.parametrize("part", range(PARTS))
def test_random_tree_states_lose_nothing(shop: Workshop, part: int) -> None:
    tally = {"saved": 0, "nothing to save": 0, "preserved": 0}
    seeds = [int(ONLY)] if ONLY else range(SEED + part, SEED + COUNT, PARTS)
    for seed in seeds:
        tally[one_case(shop, seed)] += 1
    print(tally)


def one_case(shop: Workshop, seed: int) -> str:
    rng = random.Random(seed)
    task = f"fuzz{seed}"
    workspace, tree = shop.made(task)
    agent = Agent(
        tree=tree,
        entry=Path(shop.repo.common_dir) / "worktrees" / task,
        common=Path(shop.repo.common_dir),
        branch=f"holdfast/{task}",
        env={**shop.fleet.env, "GIT_EDITOR": "true", "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        rng=rng,
    )
    agent.work()
    said = f"seed {seed}: HOLDFAST_TREE_FUZZ_ONLY={seed} pytest tests/fuzz/test_tree_states.py\n  " + "\n  ".join(
        agent.steps
    )
    shop.run(shop.worktrees.drop_stale_locks(shop.repo, workspace))
    scratch = shop.fleet.root / f"look-{seed}"
    expected = expectation(agent, scratch)
    if rng.random() < 0.3:
        shop.run(shop.worktrees.commit_leftovers(shop.repo, workspace, rng.choice(["all", "tracked"]), "leftovers"))
    before = refs(shop)
    saved: SalvageResult | None = None
    problem = ""
    try:
        saved = shop.run(shop.worktrees.salvage(shop.repo, workspace, "fuzz"))
    except WorkspaceProblem as error:
        problem = str(error)
    assert refs(shop) == before, f"the user's refs changed\n{said}"
    if problem or (saved is not None and saved.partial):
        why = problem or f"partial: {saved.details if saved else ''}"
        assert expected.nested or agent.must_stay, f"preserved without need: {why}\n{said}"
        for name, content in expected.files.items():
            path = tree / name
            there = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes()
            assert there == content, f"{name} changed\n{said}"
        put_aside(shop, agent, scratch)
        return "preserved"
    shop.run(shop.worktrees.put_away(shop.repo, workspace))
    shop.run(shop.worktrees.drop_empty_branch(shop.repo, workspace))
    shop.run(shop.worktrees.delete_trash(workspace))
    assert not tree.exists(), said
    check(shop, agent, expected, saved, said)
    put_aside(shop, agent, scratch)
    return "saved" if saved else "nothing to save"


def check(shop: Workshop, agent: Agent, expected: Expected, saved: SalvageResult | None, said: str) -> None:
    held = objects(Path(shop.repo.common_dir), "--all")
    if saved is not None:
        held |= objects(Path(shop.home) / "shadows" / f"{shop.repo.id}.git", saved.ref)
    held.add(EMPTY)
    for name, content in expected.files.items():
        ids = {blob(content)}
        if agent.converts:  # git calls it unchanged when only its line ends differ from what is committed
            ids.add(blob(content.replace(b"\r\n", b"\n")))
        assert ids & held, f"LOST: {name!r} ({len(content)} bytes)\n{said}"
    for oid, where in expected.staged.items():
        assert oid in held, f"LOST: staged {oid} ({where})\n{said}"
    for oid in expected.commits:
        assert oid in held, f"LOST: commit {oid}\n{said}"


def objects(git_dir: Path, what: str) -> set[str]:
    out = subprocess.run(
        ["git", "rev-list", "--objects", "--no-object-names", what], cwd=git_dir, capture_output=True, check=True
    ).stdout
    return set(out.decode().split())


def refs(shop: Workshop) -> str:
    return shop.fleet.git("for-each-ref")


def put_aside(shop: Workshop, agent: Agent, scratch: Path) -> None:
    """Nothing of one case is left for the next."""
    shutil.rmtree(agent.tree, ignore_errors=True)
    shutil.rmtree(agent.entry, ignore_errors=True)
    shutil.rmtree(scratch)
    git = shop.fleet.git
    git("branch", "-q", "-D", agent.branch, check=False)
    git("update-ref", "-d", "refs/stash", check=False)
