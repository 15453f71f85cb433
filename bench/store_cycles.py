"""Enqueue → claim → complete with many concurrent callers: ours, plain sqlite3, DBOS; with and without history."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import time
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any

from bench.figures import Figure, Scale, median
from bench.history import fill
from bench.plain_store import PlainStore
from bench.plain_store import cycle as plain_cycle

from holdfast.base import clock
from holdfast.base.ids import new_id
from holdfast.core.model import TaskSpec
from holdfast.core.runs.outcome import Outcome, Verdict
from holdfast.core.runs.policy import decide
from holdfast.core.runs.preserve import resolve_disposition
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.states import TaskState
from holdfast.store.port.transaction import Host, Ownership
from holdfast.store.sqlite.engine.group_commit import GroupWriter
from holdfast.store.sqlite.engine.store import SqliteStore
from holdfast.store.sqlite.rows import encode_settings

OWNER = "bench"
DONE = Verdict(outcome=Outcome.COMPLETED, reason="the command exited with code 0")
COMPLETE = decide(DONE, (), RetryLimits(), clock.now())  # it spends a run, as every completion does
DBOS_PATIENCE = 120
ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"

Sample = tuple[float, float]  # cycles per second, CPU seconds per cycle


def specs(repo: str, count: int) -> list[TaskSpec]:
    return [TaskSpec(id=new_id(), repo_id=repo, prompt="fix the flaky test", agent="command") for _ in range(count)]


async def timed(callers: Iterable[Coroutine[Any, Any, None]], cycles: int) -> Sample:
    """All callers at once, until the last one has what it wanted."""
    cpu, began = time.process_time(), time.perf_counter()
    await asyncio.gather(*callers)
    return cycles / (time.perf_counter() - began), (time.process_time() - cpu) / cycles


class Ours:
    """Our store as the supervisor uses it: the group writer, events, leases, fences."""

    def __init__(self, home: Path, history: int) -> None:
        home.mkdir()
        self._home = str(home)
        store = SqliteStore(self._home)
        now = clock.now()
        host = Host(id=OWNER, boot_id=now.boot_id, pid=1, start_ticks=1, version="bench", agents=1)
        store.write(lambda tx: tx.hosts.open(host, 36_000, now))
        self._repo = store.write(lambda tx: tx.workspaces.register_repo("/bench", "/bench/.git", now)).id
        store.close()
        if history:
            fill(store.path, self._repo, encode_settings(specs(self._repo, 1)[0]), history, now.wall)

    def round(self, callers: int, cycles: int) -> Sample:
        work = [specs(self._repo, cycles) for _ in range(callers)]

        async def run() -> Sample:
            writer = GroupWriter(self._home)
            sample = await timed((self._caller(writer, todo) for todo in work), callers * cycles)
            writer.close()
            return sample

        return asyncio.run(run())

    async def _caller(self, writer: GroupWriter, todo: list[TaskSpec]) -> None:
        """Each step is durable before the next begins, as in `add`, the claim and the settlement."""
        for spec in todo:
            await self._cycle(writer, spec)

    async def _cycle(self, writer: GroupWriter, spec: TaskSpec) -> None:
        await writer.write(lambda tx: tx.tasks.add(spec, clock.now()))
        task = await writer.write(lambda tx: tx.tasks.claim(OWNER, clock.now()))
        assert task is not None
        grip = Ownership(task_id=task.id, fence=task.fence, owner=OWNER)
        fate = resolve_disposition(task.spec, TaskState.COMPLETED)
        await writer.write(lambda tx: tx.tasks.settle(grip, None, DONE, COMPLETE, fate, clock.now()))


class Plain:
    def __init__(self, folder: Path, history: int) -> None:
        folder.mkdir()
        path = str(folder / "plain.db")
        self._store = PlainStore(path, "repo1")
        if history:
            fill(path, "repo1", encode_settings(specs("repo1", 1)[0]), history, time.time())

    def round(self, callers: int, cycles: int) -> Sample:
        todo = iter(specs("repo1", cycles))
        work = [list(itertools.islice(todo, max(1, cycles // callers))) for _ in range(callers)]

        async def run() -> Sample:
            return await timed((plain_cycle(self._store, some) for some in work), sum(len(some) for some in work))

        return asyncio.run(run())

    def close(self) -> None:
        self._store.close()


def dbos_round(path: Path, workflows: int, journal: str) -> dict[str, Any]:
    done = subprocess.run(
        [str(VENV / "bin" / "python"), str(ROOT / "bench" / "dbos_side.py"), str(path), str(workflows), journal],
        capture_output=True,
        text=True,
        timeout=DBOS_PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise DbosProblem(f"it ended with code {done.returncode}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


class DbosProblem(Exception):
    pass


def dbos_missing() -> str | None:
    """Why DBOS cannot be compared with, or None."""
    if not (VENV / "bin" / "python").exists():
        return f"there is no {VENV.name} (`make bench` makes it)"
    if (VENV / "skipped").exists():
        return f"it could not be installed: {(VENV / 'skipped').read_text().strip()}"
    return None


def run(scale: Scale, folder: Path) -> list[Figure]:
    names = {"fresh": 0, "history": scale.history}
    ours = {name: Ours(folder / f"ours-{name}", history) for name, history in names.items()}
    plain = {name: Plain(folder / f"plain-{name}", history) for name, history in names.items()}
    dbos = _Dbos(folder, scale)
    samples: dict[str, list[Sample]] = {f"{who}-{name}": [] for who in ("ours", "plain") for name in names}
    for number in range(scale.store_rounds + 1):
        for name in names:
            found = plain[name].round(min(scale.callers, scale.plain_cycles), scale.plain_cycles)
            mine = ours[name].round(scale.callers, scale.cycles_per_caller)
            if number:  # the first round warms caches and files
                samples[f"plain-{name}"].append(found)
                samples[f"ours-{name}"].append(mine)
        dbos.round(number)
    for store in plain.values():
        store.close()
    return [*_against_plain(samples, names, scale), *_against_dbos(samples, names, dbos)]


def _against_plain(samples: dict[str, list[Sample]], names: dict[str, int], scale: Scale) -> list[Figure]:
    """Ratios within each round, then their median: both sides of a ratio saw the same moment of the machine."""
    figures = []
    for name, history in names.items():
        pairs = list(zip(samples[f"ours-{name}"], samples[f"plain-{name}"], strict=True))
        figures.append(
            Figure(
                name=f"store.plain.{name}",
                value=median(ours[0] / plain[0] for ours, plain in pairs),
                unit="×",
                goal=10.0,
                at_least=True,
                detail={
                    "finished tasks": history,
                    "callers": scale.callers,
                    "ours cycles/s": round(median(ours[0] for ours, _ in pairs)),
                    "plain cycles/s": round(median(plain[0] for _, plain in pairs)),
                    "ours CPU µs per cycle": round(median(ours[1] for ours, _ in pairs) * 1e6, 1),
                    "plain CPU µs per cycle": round(median(plain[1] for _, plain in pairs) * 1e6, 1),
                },
            )
        )
    return figures


def _against_dbos(samples: dict[str, list[Sample]], names: dict[str, int], dbos: _Dbos) -> list[Figure]:
    figures = []
    for journal, goal in (("delete", 50.0), ("wal", None)):
        for name, history in names.items():
            title = f"store.dbos{'' if journal == 'delete' else '-wal'}.{name}"
            if dbos.problem is not None:
                figures.append(Figure(name=title, value=None, unit="×", goal=goal, at_least=True, skipped=dbos.problem))
                continue
            mine = median(sample[0] for sample in samples[f"ours-{name}"])
            theirs = median(dbos.rates[journal])
            figures.append(
                Figure(
                    name=title,
                    value=mine / theirs,
                    unit="×",
                    goal=goal,
                    at_least=True,
                    detail={
                        "finished tasks": history,
                        "ours cycles/s": round(mine),
                        "DBOS workflows/s": round(theirs, 1),
                        "DBOS CPU ms per workflow": round(median(dbos.cpu[journal]) * 1e3, 2),
                        "DBOS": dbos.version,
                    },
                )
            )
    return figures


class _Dbos:
    """Its rounds, interleaved with ours; a problem is kept and told, not raised."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self._folder = folder
        self._workflows = scale.dbos_workflows
        self.problem = dbos_missing() if scale.dbos_workflows else "not part of this run"
        self.rates: dict[str, list[float]] = {"delete": [], "wal": []}
        self.cpu: dict[str, list[float]] = {"delete": [], "wal": []}
        self.version = ""

    def round(self, number: int) -> None:
        for journal in ("delete", "wal"):
            if self.problem is not None:
                return
            path = self._folder / f"dbos-{journal}-{number}.db"
            try:
                found = dbos_round(path, self._workflows, journal)
            except (DbosProblem, subprocess.TimeoutExpired, ValueError) as error:
                self.problem = str(error)
                return
            finally:
                for suffix in ("", "-wal", "-shm", "-journal"):
                    if os.path.exists(f"{path}{suffix}"):
                        os.unlink(f"{path}{suffix}")
            self.rates[journal].append(self._workflows / found["seconds"])
            self.cpu[journal].append(found["cpu_seconds"] / self._workflows)
            self.version = str(found["version"])
