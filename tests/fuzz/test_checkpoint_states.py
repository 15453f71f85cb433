"""R-RES-11: random states of a tree are kept as a checkpoint; then the agent goes on, or its tree or all of it is lost.
Going back makes `git status`, the index, HEAD and every file what they were, byte for byte.

`HOLDFAST_CHECKPOINT_FUZZ_COUNT=500` for the campaign, `HOLDFAST_CHECKPOINT_FUZZ_ONLY=SEED` for one case again.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.fuzz.tree_states import STEPS, Agent, ignore, is_file, prune
from tests.integration.conftest import Workshop

from holdfast.core.model import Strategy
from holdfast.core.task_settings import SalvageRules
from holdfast.workspaces.names import checkpoint_ref
from holdfast.workspaces.port import CheckpointResult
from holdfast.workspaces.strategies.clone import CloneStrategy

COUNT = int(os.environ.get("HOLDFAST_CHECKPOINT_FUZZ_COUNT", "4"))
ONLY = os.environ.get("HOLDFAST_CHECKPOINT_FUZZ_ONLY")
RULES = SalvageRules()


@pytest.fixture
def shop(fleet: object) -> Workshop:
    return Workshop(fleet)  # type: ignore[arg-type]  # the fixture of tests/conftest.py


@pytest.mark.parametrize("part", range(2))
def test_going_back_brings_the_very_state(shop: Workshop, part: int) -> None:
    for seed in [int(ONLY)] if ONLY else range(1 + part, 1 + COUNT, 2):
        one_case(shop, seed)


def one_case(shop: Workshop, seed: int) -> None:
    rng = random.Random(seed)
    task = f"fuzz{seed}"
    is_clone = seed % 3 == 0
    strategy: Any = CloneStrategy(shop.home, shop.git) if is_clone else shop.worktrees
    workspace = shop.workspace(task, Strategy.CLONE if is_clone else Strategy.WORKTREE)
    shop.run(strategy.prepare(shop.repo, workspace, None))
    tree = Path(workspace.path)
    entry = tree / ".git" if is_clone else Path(shop.repo.common_dir) / "worktrees" / task
    agent = Agent(
        tree=tree,
        entry=entry,
        common=entry if is_clone else Path(shop.repo.common_dir),
        branch=f"holdfast/{task}",
        env={**shop.fleet.env, "GIT_EDITOR": "true", "GIT_CEILING_DIRECTORIES": str(tree.parent)},
        rng=rng,
    )
    for _ in range(rng.randrange(3, 20)):
        agent.act(rng.choice(STEPS))
    before = state_of(agent)
    head = agent.git("rev-parse", "HEAD").strip()

    async def keep(number: int, unless: str | None = None) -> CheckpointResult | None:
        found: CheckpointResult | None = await strategy.checkpoint(
            shop.repo, workspace, checkpoint_ref(task, number), RULES, unless
        )
        return found

    kept = shop.run(keep(1))
    said = f"seed {seed}: HOLDFAST_CHECKPOINT_FUZZ_ONLY={seed}\n  " + "\n  ".join(agent.steps)
    assert kept is not None, said
    assert not kept.partial, said
    assert state_of(agent) == before, f"the checkpoint changed something\n{said}"
    assert shop.run(keep(2, kept.key)) is None, f"the same state has another key\n{said}"
    how = rng.choice(["continues", "continues", "continues", "files are gone", "all is gone"])
    agent.steps.append(f"-- {how}")
    if how == "continues":
        for _ in range(rng.randrange(1, 12)):
            agent.act(rng.choice([step for step in STEPS if step is not ignore]))  # what is ignored then, stays
        agent.act(prune)
    else:
        if how == "all is gone" and not is_clone:
            agent.git("update-ref", "-d", f"refs/heads/{agent.branch}", cwd=agent.common)
        shutil.rmtree(tree)
        shop.run(strategy.prepare(shop.repo, workspace, None))
        if how == "all is gone":
            agent.git("reflog", "expire", "--expire=now", "--all", cwd=agent.common)
            agent.git("gc", "--quiet", "--prune=now", cwd=agent.common)
    said = f"seed {seed}: HOLDFAST_CHECKPOINT_FUZZ_ONLY={seed}\n  " + "\n  ".join(agent.steps)
    assert shop.run(strategy.readable(shop.repo, kept.commit)) is None, said
    shop.run(strategy.drop_stale_locks(shop.repo, workspace))
    for _ in range(2):  # repeating it changes nothing
        shop.run(strategy.go_back(shop.repo, workspace, kept.commit, RULES))
        after = state_of(agent)
        assert agent.git("rev-parse", "HEAD").strip() == head, said
        for name, was in before.items():
            assert plain(after[name], agent) == plain(was, agent), f"{name}\n{said}"
    shutil.rmtree(tree)


def plain(found: object, agent: Agent) -> object:
    """Where line ends are converted, what git calls unchanged comes as it checks it out."""
    if not agent.converts or not isinstance(found, dict):
        return found
    return {
        name: (value[0].replace(b"\r\n", b"\n"), value[1]) if isinstance(value, tuple) else value
        for name, value in found.items()
    }


def state_of(agent: Agent) -> dict[str, object]:
    """As git and the file system see it; looking changes nothing."""
    env = {**agent.env, "GIT_OPTIONAL_LOCKS": "0"}

    def ask(*words: str) -> bytes:
        return subprocess.run(["git", *words], cwd=agent.tree, env=env, capture_output=True, check=False).stdout

    status = ask("status", "--porcelain=v2", "-z", "--untracked-files=all", "--no-renames")
    ignored = ask("status", "--porcelain=v2", "-z", "--untracked-files=all", "--ignored=matching")
    hidden = {os.fsdecode(line[2:]).rstrip("/") for line in ignored.split(b"\0") if line[:2] == b"! "}
    files: dict[str, object] = {}
    for path in sorted(agent.tree.rglob("*")):
        name = str(path.relative_to(agent.tree))
        if (
            name.split("/")[0] == ".git"
            or not is_file(path)
            or any(name == h or name.startswith(f"{h}/") for h in hidden)
        ):
            continue
        content = b"" if path.is_symlink() else path.read_bytes()
        files[name] = os.readlink(path) if path.is_symlink() else (content, bool(path.stat().st_mode & 0o100))
    merging = {
        name: (agent.entry / name).read_bytes()
        for name in ("MERGE_HEAD", "CHERRY_PICK_HEAD", "MERGE_MSG", "rebase-merge/git-rebase-todo", "rebase-merge/onto")
        if (agent.entry / name).exists()
    }
    return {
        "status": status,
        "index": ask("ls-files", "-s", "-v", "-z"),
        "files": files,
        "operation": merging,
    }


def test_an_agents_own_git_is_never_in_the_way(shop: Workshop) -> None:
    """R-RES-11: an agent runs git in a tight loop while checkpoints are forced: none of its commands fails, no lock
    or ref of ours is in its repository, and each checkpoint can be read."""
    workspace, tree = shop.made("busy")
    common = Path(shop.repo.common_dir)
    script = (
        "i=0; while [ ! -e ../stop ]; do i=$((i+1)); echo $i > file$((i % 7)); "
        "git add -A || exit 11; git commit -qm $i || exit 12; git status --short || exit 13; "
        "[ $((i % 9)) = 0 ] && { git gc -q --prune=now || exit 14; }; done; exit 0"
    )
    agent = subprocess.Popen(["sh", "-c", script], cwd=tree, env=shop.fleet.env, stderr=subprocess.PIPE)
    refs_before = set(shop.fleet.git("for-each-ref", "--format=%(refname)").split())

    async def force() -> list[CheckpointResult]:
        made = []
        for number in range(1, 6):
            kept = await shop.worktrees.checkpoint(shop.repo, workspace, checkpoint_ref("busy", number), RULES)
            assert kept is not None
            made.append(kept)
            await asyncio.sleep(0)
        return made

    try:
        made = shop.run(force())
    finally:
        (tree.parent / "stop").touch()
        _out, err = agent.communicate(timeout=60)
    assert agent.returncode == 0, err
    assert set(shop.fleet.git("for-each-ref", "--format=%(refname)").split()) == refs_before
    assert [path.name for path in common.rglob("*.lock")] == ["holdfast.lock"]  # of its making
    assert len({kept.key for kept in made}) > 1
    for kept in made:
        assert shop.run(shop.worktrees.readable(shop.repo, kept.commit)) is None
