"""What a store must do for schedules (store/port/schedules.py)."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.contracts.store_contract import Scene, scene
from tests.contracts.test_sqlite_store import bench

from holdfast.base.errors import Conflict, NotFound
from holdfast.core.schedules.schedule import Misfire, Overlap, Schedule, ScheduleRecord
from holdfast.store.port.transaction import Transaction

__all__ = ["bench", "scene"]
FILE = "/repo/holdfast.toml"
NIGHTLY = Schedule(name="nightly", repo="/repo", cron="0 3 * * *", zone="Europe/Berlin", task={"prompt": "tidy up"})


def enrol(scene: Scene, *schedules: Schedule, file: str = FILE) -> None:
    scene.write(lambda tx: tx.schedules.enrol(file, schedules, scene.now))


def record(scene: Scene, schedule: Schedule = NIGHTLY) -> ScheduleRecord:
    return scene.write(lambda tx: tx.schedules.get(schedule.key))


def told(scene: Scene, kind: str) -> int:
    return sum(1 for row in scene.events() if row["kind"] == kind)


def fire(scene: Scene, of: ScheduleRecord, occurrence: float) -> str:
    """Let it in and give it a task, in one transaction."""

    def operation(tx: Transaction) -> str:
        tx.schedules.admit(of, [occurrence], occurrence, scene.now)
        task = tx.tasks.add(scene.spec(), scene.now)
        tx.schedules.fire(of, occurrence, task.id, scene.now)
        return task.id

    return scene.write(operation)


class TestDefinitions:
    def test_the_last_good_ones_outlive_a_restart_and_begin_when_they_are_seen(self, scene: Scene) -> None:
        """R-CRON-01."""
        enrol(scene, NIGHTLY, replace(NIGHTLY, name="hourly", cron="0 * * * *"))
        scene.reopen()
        found = scene.write(lambda tx: tx.schedules.all())
        assert [one.schedule.name for one in found] == ["hourly", "nightly"]
        assert found[1].schedule == NIGHTLY
        assert found[1].cursor == scene.now.wall
        enrol(scene, NIGHTLY)
        assert [one.schedule.name for one in scene.write(lambda tx: tx.schedules.all())] == ["nightly"]
        with pytest.raises(NotFound):
            scene.write(lambda tx: tx.schedules.get(replace(NIGHTLY, name="hourly").key))

    def test_what_is_new_about_a_schedule_decides_where_it_goes_on(self, scene: Scene) -> None:
        """R-CRON-01: other words change nothing about its times; a new time, or coming back, begins now."""
        enrol(scene, NIGHTLY)
        seen = scene.now.wall
        scene.tick(100)
        enrol(scene, replace(NIGHTLY, task={"prompt": "other"}))
        assert (record(scene).cursor, record(scene).schedule.task) == (seen, {"prompt": "other"})
        enrol(scene, replace(NIGHTLY, cron="0 4 * * *"))
        assert record(scene).cursor == scene.now.wall
        scene.tick(100)
        enrol(scene, replace(NIGHTLY, cron="0 4 * * *", zone="UTC"))
        assert record(scene).cursor == scene.now.wall
        enrol(scene)
        scene.tick(100)
        enrol(scene, NIGHTLY)
        assert record(scene).cursor == scene.now.wall

    def test_an_operators_word_holds_until_the_file_has_a_new_one(self, scene: Scene) -> None:
        """R-CRON-01, R-CRON-04: over restarts, other changes, and a checkout without the file."""
        enrol(scene, NIGHTLY)
        assert scene.write(lambda tx: tx.schedules.disable(NIGHTLY.key, "ada", scene.now))
        assert not scene.write(lambda tx: tx.schedules.disable(NIGHTLY.key, "ada", scene.now)), "it was"
        scene.reopen()
        enrol(scene, replace(NIGHTLY, cron="0 5 * * *"))
        enrol(scene)
        enrol(scene, NIGHTLY)
        assert (record(scene).enabled, record(scene).by) == (False, "ada")
        enrol(scene, replace(NIGHTLY, enabled=False))
        assert (record(scene).enabled, record(scene).by) == (False, None)
        scene.tick(100)
        enrol(scene, NIGHTLY)
        assert (record(scene).enabled, record(scene).cursor) == (True, scene.now.wall), "it continues from now"


class TestOccurrences:
    def test_an_occurrence_gets_one_task_in_the_transaction_that_moves_the_cursor(self, scene: Scene) -> None:
        """R-CRON-02: whoever comes second, with an old or a fresh look, or by a clock that was set back, gets none."""
        enrol(scene, NIGHTLY)
        before = record(scene)
        due = scene.tick(10).wall - 1
        task = fire(scene, before, due)
        scene.reopen()
        after = record(scene)
        assert (after.cursor, after.last_fire, after.last_task, after.waiting) == (due, due, task, ())
        assert after.is_busy
        with pytest.raises(Conflict):
            fire(scene, before, due)
        with pytest.raises(Conflict):
            fire(scene, after, due)
        scene.tick(-100)
        scene.write(lambda tx: tx.schedules.rewind(after, scene.now))
        assert record(scene).cursor == scene.now.wall
        assert scene.write(lambda tx: tx.schedules.admit(record_in(tx), [due], due, scene.now)) == []
        assert told(scene, "schedule.fired") == told(scene, "task.queued") == 1

    def test_two_hosts_that_race_make_one_task_of_each(self, scene: Scene) -> None:
        """R-CRON-02: each with its own way to the store, at the same time, for the same occurrences."""
        enrol(scene, NIGHTLY)
        moments = [scene.now.wall + number for number in range(1, 16)]
        together = threading.Barrier(2)

        def host() -> int:
            store, won = scene.bench.store(), 0
            for moment in moments:
                seen = store.write(record_in)
                together.wait(30)
                with contextlib.suppress(Conflict):
                    store.write(lambda tx, seen=seen, at=moment: made(tx, seen, at))  # type: ignore[misc]  # defaults
                    won += 1
                together.wait(30)
            return won

        def made(tx: Transaction, seen: ScheduleRecord, moment: float) -> None:
            waiting = tx.schedules.admit(seen, [moment], moment, scene.now)
            tx.schedules.fire(seen, waiting[0], tx.tasks.add(scene.spec(), scene.now).id, scene.now)

        with ThreadPoolExecutor(2) as pool:
            wins = [future.result() for future in [pool.submit(host), pool.submit(host)]]
        assert sum(wins) == told(scene, "schedule.fired") == told(scene, "task.queued") == len(moments)
        assert record(scene).cursor == moments[-1]

    def test_a_fire_that_fails_half_way_leaves_nothing(self, scene: Scene) -> None:
        """R-CRON-02."""
        enrol(scene, NIGHTLY)
        before, due = record(scene), scene.tick(10).wall

        def half(tx: Transaction) -> None:
            tx.schedules.admit(before, [due], due, scene.now)
            tx.schedules.fire(before, due, tx.tasks.add(scene.spec(), scene.now).id, scene.now)
            raise NotFound("something")

        with pytest.raises(NotFound):
            scene.write(half)
        assert record(scene) == before
        assert told(scene, "task.queued") == 0
        fire(scene, before, due)

    @pytest.mark.parametrize(("misfire", "left"), [(Misfire.LAST, 1), (Misfire.SKIP, 1), (Misfire.ALL, 3)])
    def test_what_waits_is_bounded_and_the_latest_of_it(self, scene: Scene, misfire: Misfire, left: int) -> None:
        """R-CRON-03."""
        enrol(scene, replace(NIGHTLY, misfire=misfire, most=3))
        first = scene.now.wall
        for number in range(1, 6):
            moment = first + number
            scene.write(lambda tx, at=moment: tx.schedules.admit(record_in(tx), [at], at, scene.now))  # type: ignore[misc]  # a default
        scene.reopen()
        assert record(scene).waiting == tuple(first + number for number in range(6 - left, 6))
        assert scene.write(lambda tx: tx.schedules.disable(NIGHTLY.key, "ada", scene.now))
        assert record(scene).waiting == ()

    def test_by_hand_moves_nothing_and_may_be_any_number_of_times(self, scene: Scene) -> None:
        """R-CRON-04."""
        enrol(scene, NIGHTLY)
        for _ in range(2):
            task = scene.add()
            scene.write(lambda tx, task=task: tx.schedules.fire_by_hand(NIGHTLY.key, task.id, "ada", scene.now))  # type: ignore[misc]  # a default
        found = record(scene)
        assert (found.cursor, found.last_task, found.last_fire) == (scene.now.wall, task.id, scene.now.wall)
        before = record(scene)
        fire(scene, before, scene.now.wall)
        assert told(scene, "schedule.fired") == 3

    def test_a_refused_fire_stays_due_and_is_alerted_once(self, scene: Scene) -> None:
        """R-CRON-03: until it can be made; then the alert is over."""
        enrol(scene, NIGHTLY)
        due = scene.tick(10).wall
        scene.write(lambda tx: tx.schedules.admit(record_in(tx), [due], due, scene.now))
        for _ in range(3):
            scene.write(lambda tx: tx.schedules.refused(record_in(tx), "no such agent", scene.now.wall + 5, scene.now))
        found = record(scene)
        assert (found.waiting, found.trouble, found.failures) == ((due,), "no such agent", 3)
        assert (found.tried_at, found.next_try) == (scene.now.wall, scene.now.wall + 5)
        assert told(scene, "schedule.refused") == told(scene, "alert.raised") == 1
        assert len(scene.write(lambda tx: tx.events.open_alerts())) == 1
        task = scene.add()
        scene.write(lambda tx: tx.schedules.fire(found, due, task.id, scene.now))
        assert record(scene).trouble is None
        assert scene.write(lambda tx: tx.events.open_alerts()) == []

    def test_old_occurrences_are_remembered_by_the_stretch(self, scene: Scene) -> None:
        """R-CRON-02: little is kept for long, and still nothing fires twice, nor is anything silenced until a year from
        now because the clock was there once."""
        enrol(scene, NIGHTLY)
        first, ahead = scene.now.wall, scene.now.wall + 1000 * 86400
        for moment in [*(first + 10 * number for number in range(20)), ahead, ahead + 1]:
            task = fire(scene, record(scene), moment)
            assert scene.write(lambda tx: tx.schedules.merge_old_occurrences(NIGHTLY.key, 30)) == 0
            scene.write(lambda tx, task=task: tx.tasks.cancel_waiting(task, "ada", "", scene.now))  # type: ignore[misc]  # a default
        assert scene.write(lambda tx: tx.schedules.merge_old_occurrences(NIGHTLY.key, 1)) == 21
        scene.reopen()
        decided = [first, first + 190, first + 55, ahead, ahead + 1]
        assert scene.write(lambda tx: tx.schedules.admit(record_in(tx), decided, first, scene.now)) == []
        free = ahead - 5 * 86400
        assert scene.write(lambda tx: tx.schedules.admit(record_in(tx), [free], first, scene.now)) == [free]

    def test_they_go_with_their_repository(self, scene: Scene) -> None:
        """R-CRON-01: what comes back later under the same path begins again."""
        here = replace(NIGHTLY, repo=scene.repo.path)
        enrol(scene, here, NIGHTLY)
        due = scene.tick(10).wall
        for each in (here, NIGHTLY):
            scene.write(lambda tx, key=each.key: tx.schedules.admit(tx.schedules.get(key), [due], due, scene.now))  # type: ignore[misc]  # a default
        assert scene.write(lambda tx: tx.schedules.owed()) == 2
        scene.write(lambda tx: tx.history.forget_repo(scene.repo, scene.now))
        assert [one.schedule for one in scene.write(lambda tx: tx.schedules.all())] == [NIGHTLY]
        assert scene.write(lambda tx: tx.schedules.owed()) == 1

    def test_an_operators_word_goes_with_a_repository_that_is_moved(self, scene: Scene) -> None:
        """R-CRON-04: what was disabled in the old place does not begin to fire in the new one; all else begins anew."""
        here, other = replace(NIGHTLY, repo=scene.repo.path), replace(NIGHTLY, repo=scene.repo.path, name="other")
        enrol(scene, here, other)
        assert scene.write(lambda tx: tx.schedules.disable(here.key, "ada", scene.now))
        there = "/somewhere/else"
        scene.write(lambda tx: tx.workspaces.move_repo(scene.repo.path, there, f"{there}/.git"))
        assert {one.schedule.repo for one in scene.write(lambda tx: tx.schedules.all())} == {scene.repo.path}
        scene.tick(100)
        enrol(scene, replace(here, repo=there), replace(other, repo=there))
        found = scene.write(lambda tx: tx.schedules.all())
        assert [(one.schedule.name, one.schedule.repo, one.enabled, one.cursor) for one in found] == [
            ("nightly", there, False, scene.now.wall),
            ("other", there, True, scene.now.wall),
        ]

    def test_what_waits_for_the_last_task_keeps_nobody_here(self, scene: Scene) -> None:
        """R-CRON-03: it may wait for an operator; when it has ended, the occurrence is ours to fire."""
        enrol(scene, replace(NIGHTLY, overlap=Overlap.QUEUE))
        due = scene.tick(10).wall
        task = fire(scene, record(scene), due)
        scene.write(lambda tx: tx.schedules.admit(record_in(tx), [due + 1], due + 1, scene.now))
        assert scene.write(lambda tx: tx.schedules.owed()) == 0
        scene.write(lambda tx: tx.tasks.cancel_waiting(task, "ada", "", scene.now))
        assert scene.write(lambda tx: tx.schedules.owed()) == 1


def record_in(tx: Transaction) -> ScheduleRecord:
    return tx.schedules.get(NIGHTLY.key)
