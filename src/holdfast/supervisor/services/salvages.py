"""Saved work that is older than `salvage.keep`: marked in the store first, then its commits go, then the rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.store.port.salvaging import Dropped
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context, SalvageReclaimer

PIECE = 100
PAUSE = 0.02


async def expire_salvages(context: Context) -> int:
    """How many were dropped. What an earlier pass, or `holdfast salvage prune`, left half done is finished too."""
    count = 0
    while True:
        before = context.timekeeper.ago(context.settings.keeping.salvages, context.clock())

        def mark(tx: Transaction, before: float = before) -> int:
            return tx.salvages.expire(before, PIECE, context.clock())

        marked = await context.writer.write(mark)
        count += marked
        if marked < PIECE:
            break
        await asyncio.sleep(PAUSE)
    await _finish(context)
    return count


async def _finish(context: Context) -> None:
    if context.reclaimer is None:
        return
    by_repo: dict[str, list[Dropped]] = {}
    for one in await context.writer.write(lambda tx: tx.salvages.dropped()):
        by_repo.setdefault(one.repo_id, []).append(one)
    for repo_id, gone in by_repo.items():
        await _reclaim(context, context.reclaimer, repo_id, gone)
        await asyncio.sleep(PAUSE)


async def _reclaim(context: Context, reclaimer: SalvageReclaimer, repo_id: str, gone: Sequence[Dropped]) -> None:
    """Rows go last: a reclaiming that was killed, or could not be done now, is found again by them."""
    repo = await context.writer.write(lambda tx: tx.workspaces.repo(repo_id))
    if await reclaimer.reclaim(repo, {one.ref: one.commit for one in gone}):
        await context.writer.write(lambda tx: tx.salvages.forget(gone))
