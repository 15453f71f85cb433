"""Checkpoints that nobody may ask for any more: their refs and commits go first, then the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.core.model import Repo
from holdfast.store.port.workspaces import Checkpoint
from holdfast.supervisor.context import Context

PAUSE = 0.02
OVER = 60.0  # seconds since a task's end: what has just ended may be looked at


async def prune_checkpoints(context: Context) -> int:
    """How many rows went. Killed anywhere, or refused because somebody saves just now, it is done the next time."""
    now, ago = context.clock(), context.timekeeper.ago
    over, old = ago(OVER, now), ago(context.settings.keeping.runs, now)
    await context.writer.write(lambda tx: tx.checkpoints.expire(over, old))
    if context.reclaimer is None:
        return 0
    by_repo: dict[str, list[Checkpoint]] = {}
    for one in await context.writer.write(lambda tx: tx.checkpoints.dropped()):
        by_repo.setdefault(one.repo_id, []).append(one)
    count = 0
    for repo in await context.writer.write(lambda tx: tx.workspaces.repos()):
        count += await _prune(context, repo, by_repo.get(repo.id, []))
    return count


async def _prune(context: Context, repo: Repo, gone: Sequence[Checkpoint]) -> int:
    """With refs that a crash left between the ref and its row, of tasks that are over."""
    assert context.reclaimer is not None
    there = context.reclaimer.checkpoint_refs(repo)
    known = {one.ref: one.commit for one in gone}
    strangers = await context.writer.write(
        lambda tx: tx.checkpoints.strangers(repo.id, sorted(set(there) - set(known)))
    )
    going = known | {ref: there[ref] for ref in strangers}
    if not going or not await context.reclaimer.reclaim(repo, going):
        return 0
    await context.writer.write(lambda tx: tx.checkpoints.forget(gone))
    await asyncio.sleep(PAUSE)
    return len(gone)
