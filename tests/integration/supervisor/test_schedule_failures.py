"""Schedules where things go wrong around them: what one of them meets troubles no other work; nothing is lost."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from tests.integration.supervisor.test_schedules import (
    DONE,
    EVERY_SECOND,
    HOUR,
    HOURLY,
    Clockwork,
    a,
    at_once,
    hour,
    live,
)

from holdfast.base.errors import LeaseLost, Unavailable
from holdfast.base.ids import new_id
from holdfast.core.model import Repo
from holdfast.core.schedules import cron as occurrences
from holdfast.core.schedules import due
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule
from holdfast.core.tasks.requests import RequestAnswer, RequestResult
from holdfast.store.port.transaction import Host
from holdfast.supervisor.ports import ReadSchedules
from holdfast.supervisor.services import schedules

__all__ = ["at_once"]


def skipped(world: Clockwork) -> list[float]:
    return [json.loads(one["data"])["fire_time"] for one in world.told("schedule.skipped")]


def by_hand(world: Clockwork, schedule: Schedule = HOURLY) -> str:
    task = world.add()
    world.write(lambda tx: tx.schedules.fire_by_hand(schedule.key, task, "ada", world.now))
    return task


class TestNoOtherWorkIsHeldUp:
    def test_what_cannot_be_reached_for_a_fire_is_told_of_that_fire(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """R-CRON-03: the record of trust cannot be read, say: the fire is refused, all other tasks are claimed."""

        async def play(world: Clockwork) -> None:
            async def resolve_task(*_: object) -> None:
                raise Unavailable("The record of trust cannot be read.")

            with monkeypatch.context() as broken:
                broken.setattr(world.board, "resolve_task", resolve_task)
                other = world.add()
                await world.at(hour(1))
                assert world.row(other)["state"] == "running"
                assert world.alerts == ["schedule:/repo:hourly"]
            await world.at(hour(1) + 10)
            assert world.fires == [hour(1)]

        live(play, HOURLY)

    def test_a_preparation_that_hangs_holds_up_its_own_fire_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """R-CRON-03: git on a disk that does not answer. Cancels, claims and other schedules continue; what was due
        then fires when it is prepared, though more has come meanwhile."""

        async def play(world: Clockwork) -> None:
            monkeypatch.setattr(schedules, "PREPARE_WAIT", 0.0)
            answers, prepare = asyncio.Event(), world.board.resolve_task

            async def resolve_task(schedule: Schedule, fire_time: float, by: str) -> Any:
                if schedule.name == EVERY_SECOND.name:
                    await answers.wait()
                return await prepare(schedule, fire_time, by)

            monkeypatch.setattr(world.board, "resolve_task", resolve_task)
            start = world.wall()
            other = world.add()
            async with asyncio.timeout(60):
                await world.at(start + 1)
                await world.at(start + 2)
                assert world.row(other)["state"] == "running"
                assert world.fires == []
                assert world.supervisor is not None
                assert world.supervisor._scheduling.busy, "not the time to leave"
                answers.set()
                while not world.fires:  # its preparation ends when the loop comes to it
                    await world.look()
            assert world.fires == [start + 1]
            answers.clear()
            await world.end_all()
            await world.at(start + 5)
            assert world.supervisor._scheduling.busy
            world.write(lambda tx: tx.schedules.disable(EVERY_SECOND.key, "ada", world.now))
            await world.look()
            assert not world.supervisor._scheduling.busy, "nobody wants it any more"

        live(play, EVERY_SECOND)

    def test_a_definition_that_cannot_be_stored_changes_nothing(self) -> None:
        """R-CRON-01: it is told, those of before hold, and the supervisor does all else."""

        async def play(world: Clockwork) -> None:
            world.board.write(HOURLY, a(HOURLY, name="odd", repo="/\udcff"))
            other = world.add()
            await world.at(hour(1))
            assert world.row(other)["state"] == "running"
            assert world.fires == [hour(1)]

        live(play, HOURLY)

    def test_looks_do_not_compute_what_cannot_have_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A supervisor looks many times a second; a hundred schedules must not cost a core."""
        computed: list[str] = []

        def counting(real: Callable[..., Any]) -> Callable[..., Any]:
            def count(cron: str, *rest: Any) -> Any:
                computed.append(cron)
                return real(cron, *rest)

            return count

        monkeypatch.setattr(due, "first_occurrence", counting(occurrences.first_occurrence))
        monkeypatch.setattr(due, "last_occurrence", counting(occurrences.last_occurrence))

        async def play(world: Clockwork) -> None:
            await world.at(hour(1))
            await world.end_all()
            await world.look()
            computed.clear()
            await world.look()
            await world.at(hour(1) + 60)
            assert computed == []
            world.set_clock(-120.0)
            await world.look()
            assert computed != [], "a clock that was set back is looked at again"
            await world.at(hour(2))
            assert world.fires == [hour(1), hour(2)]

        live(play, HOURLY, a(HOURLY, name="later", cron="0 0 29 2 *", zone="Europe/Berlin", jitter=60.0))


class TestWhoFires:
    def test_an_incarnation_that_was_declared_lost_fires_nothing(self) -> None:
        """R-CRON-02: it was stopped in the middle of a fire, and continues when another has taken over."""

        async def play(world: Clockwork) -> None:
            def taken_over() -> None:
                host = Host(id=new_id(), boot_id=world.now.boot_id, pid=2, start_ticks=1, version="0", agents=1)
                world.store.write(lambda tx: tx.hosts.open(host, 30.0, world.now))

            world.board.meanwhile = taken_over
            assert world.supervisor is not None
            world.pass_time(hour(1) - world.wall())
            with pytest.raises(LeaseLost):
                await world.supervisor._scheduling.tick()
            world.board.write()  # what it reads now is not to be written either
            with pytest.raises(LeaseLost):
                await world.supervisor._scheduling.tick()
            assert world.fires == []
            assert world.record().cursor < hour(1), "it is still due"
            world.board.write(HOURLY)
            world.board.meanwhile = lambda: None
            await world.start()
            assert world.fires == [hour(1)]

        live(play, HOURLY)

    def test_one_that_runs_beside_a_fire_by_hand_still_counts(self) -> None:
        """R-CRON-01, R-CRON-04: the next one waits for both, whichever ends first; over a restart."""

        async def play(world: Clockwork) -> None:
            await world.at(hour(1))
            [first] = world.unfrozen
            by_hand(world)
            await world.look()
            [second] = set(world.unfrozen) - {first}
            await world.end(second, DONE)
            await world.at(hour(2))
            assert world.fires[0] == hour(1)
            assert skipped(world) == [hour(2)], "its task of an hour ago has not ended"
            await world.down_for(60)
            await world.at(hour(3))
            assert skipped(world) == [hour(2), hour(3)]
            await world.end(first, DONE)
            await world.at(hour(4))
            assert world.fires[-1] == hour(4)

        live(play, HOURLY)

    def test_one_that_could_not_be_replaced_is_asked_again_by_the_next(self) -> None:
        """R-CRON-01: it was frozen, so its end was refused; asked once per occurrence, not while one is pending."""

        async def play(world: Clockwork) -> None:
            await world.at(hour(1))
            assert world.supervisor is not None
            world.pass_time(hour(2) - world.wall())
            await world.supervisor._scheduling.tick()
            world.pass_time(HOUR)
            await world.supervisor._scheduling.tick()
            [request] = world.write(lambda tx: tx.requests.pending())
            world.write(lambda tx: tx.requests.answer(request.id, RequestAnswer(RequestResult.FROZEN), world.now))
            await world.look()
            assert world.states == ["running"]
            await world.at(hour(4))
            assert world.states == ["cancelled", "running"]
            assert world.fires == [hour(1), hour(4)]

        live(play, a(HOURLY, overlap=Overlap.REPLACE))


class TestNothingIsLost:
    def test_what_waits_does_not_make_room_for_what_is_skipped(self) -> None:
        """R-CRON-03: a refused one waits; while a fire by hand runs, the next one is left out, not both."""

        async def play(world: Clockwork) -> None:
            world.board.refuses = "there is no agent 'gone'"
            await world.at(hour(1))
            world.board.refuses = None
            by_hand(world)
            await world.at(hour(2))
            assert skipped(world) == [hour(2)]
            assert world.record().waiting == (hour(1),)
            await world.end_all()
            assert world.fires[-1] == hour(1)

        live(play, HOURLY)

    def test_a_wait_that_ends_in_the_middle_of_a_look_is_no_refusal(self) -> None:
        """R-CRON-03: nothing was prepared for it: the next look does that."""

        async def play(world: Clockwork) -> None:
            start = world.wall()
            world.board.refuses = "there is no agent 'gone'"
            await world.at(start + 1)
            refused = world.record()
            assert refused.failures == 1
            assert refused.next_try is not None
            world.board.refuses = None
            world.pass_time(refused.next_try - 0.2 - world.wall())

            def slow() -> Any:
                now = world.now
                world.pass_time(0.3)
                return now

            assert world.supervisor is not None
            clock, world.context.clock = world.context.clock, slow
            await world.supervisor._scheduling.tick()
            world.context.clock = clock
            assert world.record().failures <= 1
            await world.look()
            assert len(world.fires) == 1
            assert len(world.told("schedule.refused")) == 1

        live(play, EVERY_SECOND)

    def test_a_repository_that_is_not_there_for_a_while_keeps_its_schedules(self) -> None:
        """R-CRON-03: a disk that is not mounted: what is due stays due, and is told of by the refused fire."""

        async def play(world: Clockwork) -> None:
            known = world.board.read

            def absent(_repos: list[Repo]) -> ReadSchedules:
                return ReadSchedules(schedules={}, absent=["/config.toml"])

            world.board.read = absent  # type: ignore[method-assign,assignment]
            world.board.refuses = "There is no directory /repo."
            world.board.write(HOURLY)
            await world.at(hour(1))
            assert world.alerts == ["schedule:/repo:hourly"]
            world.board.refuses = None
            world.board.read = known  # type: ignore[method-assign]
            world.board.write(HOURLY)
            await world.at(hour(1) + 400)
            assert world.fires == [hour(1)]

        live(play, HOURLY)

    def test_occurrences_that_are_left_out_do_not_pile_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """R-CRON-02: its task waits for an operator, and every second one is skipped: little is kept of them."""
        monkeypatch.setattr(schedules, "KEPT", 5)

        async def play(world: Clockwork) -> None:
            for _ in range(30):
                await world.at(world.wall() + 1)
            assert len(world.fires) == 1
            rows = world.store.view("fires", repo="/repo", schedule="tick", most=1000)
            assert len(rows) < 15

        live(play, EVERY_SECOND)


@pytest.mark.parametrize("overlap", list(Overlap))
def test_policies_together_neither_loop_nor_grow(overlap: Overlap) -> None:
    """R-CRON-01, R-CRON-03: every second, a slow task, `misfire` all: what waits is bounded, and looks come to rest."""

    async def play(world: Clockwork) -> None:
        for _ in range(10):
            await world.at(world.wall() + 7)
            assert len(world.record().waiting) <= 3
            assert world.supervisor is not None
            await world.look()
            left = await world.supervisor._scheduling.next_wake()
            assert 0.01 < left < math.inf, "nothing is left to do at this moment"
        assert len(world.unfrozen) == 1
        assert len(set(world.fires)) == len(world.fires)

    live(play, a(EVERY_SECOND, overlap=overlap, misfire=Misfire.ALL, most=3))
