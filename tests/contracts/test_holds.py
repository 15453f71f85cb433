"""What a store must do for dispatch that is held back (store/port/dispatch.py)."""

from __future__ import annotations

from dataclasses import replace

from tests.contracts.store_contract import COMPLETE, FAIL, Scene, ended_with, scene
from tests.contracts.test_sqlite_store import bench

from holdfast.core.dispatch.holds import Hold, Scope
from holdfast.core.dispatch.terms import ClaimTerms
from holdfast.core.runs.outcome import Outcome
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.runs.retry_budgets import Budget
from holdfast.core.states import TaskState
from holdfast.store.port.transaction import Transaction

__all__ = ["bench", "scene"]
CRASH = Decision(action=PolicyAction.REQUEUE, reason="killed", spends=(Budget.CRASH, Budget.RUNS))


def a_hold(scene: Scene, **changes: object) -> Hold:
    hold = Hold(
        scope=Scope.PROVIDER,
        name="acme",
        since=scene.now,
        until=scene.now.wall + 30,
        decided=scene.now.wall,
        reason="529",
        failures=2,
        rounds=1,
    )
    return replace(hold, **changes)  # type: ignore[arg-type]


def keep(scene: Scene, hold: Hold) -> None:
    scene.write(lambda tx: tx.holds.keep(hold, scene.now))


def held(scene: Scene) -> list[Hold]:
    return list(scene.write(lambda tx: tx.holds.all()))


class TestHolds:
    def test_a_hold_survives_everything_and_is_told_once_per_round(self, scene: Scene) -> None:
        hold = a_hold(scene)
        keep(scene, replace(hold, until=None, failures=1, rounds=0))
        assert "dispatch.held" not in scene.kinds(), "failures that are only counted are no news"
        keep(scene, hold)
        keep(scene, replace(hold, failures=3))
        scene.reopen()
        assert held(scene) == [replace(hold, failures=3)]
        assert scene.kinds().count("dispatch.held") == 1
        keep(scene, replace(hold, rounds=2))
        assert scene.kinds().count("dispatch.held") == 2

    def test_a_probe_is_what_its_task_is(self, scene: Scene) -> None:
        """Its place frees itself: no crash, cancel or freeze can leave it taken."""
        ownership = scene.running()
        keep(scene, a_hold(scene).with_probe(ownership.task_id, scene.now))
        assert held(scene)[0].has_running_probe()
        assert scene.kinds().count("dispatch.probing") == 1
        scene.settle(ownership, COMPLETE, scene.ended_run(ownership))
        (hold,) = held(scene)
        assert hold.probe is not None
        assert hold.probe.state is TaskState.COMPLETED
        assert not hold.has_running_probe()
        keep(scene, hold.with_probe("nobody", scene.now))
        (gone,) = held(scene)
        assert gone.probe is not None
        assert gone.probe.state is None
        scene.write(lambda tx: tx.holds.free("nobody"))
        assert held(scene)[0].probe is None

    def test_release_tells_and_closes_its_alert(self, scene: Scene) -> None:
        keep(scene, a_hold(scene))
        scene.write(lambda tx: tx.events.raise_alert("provider:acme", "m", "r", scene.now))
        assert scene.write(lambda tx: tx.holds.release(Scope.PROVIDER, "acme", "it answered", scene.now))
        assert held(scene) == []
        assert {"dispatch.released", "alert.acknowledged"} <= set(scene.kinds())
        assert not scene.write(lambda tx: tx.holds.release(Scope.PROVIDER, "acme", "again", scene.now))
        keep(scene, a_hold(scene, scope=Scope.ACCOUNT, name="claude/work"))
        after = scene.last_seq()
        scene.write(lambda tx: tx.holds.release(Scope.ACCOUNT, "claude/work", "shut", scene.now, tell=False))
        assert scene.kinds(after=after) == []

    def test_only_who_waits_for_the_provider_alone_is_paused(self, scene: Scene) -> None:
        first = scene.add(provider="acme", not_before=scene.now.wall + 99)
        needing = scene.add(provider="acme", needs=(first.id,))
        other = scene.add(provider="other")
        paused = scene.write(lambda tx: tx.holds.pause_waiting("acme", "it stayed away", scene.now))
        assert paused == [first.id]
        assert [scene.state(t.id) for t in (first, needing, other)] == ["paused", "queued", "queued"]
        assert scene.row(first.id)["pause_reason"] == "outage"
        assert scene.write(lambda tx: tx.holds.paused_by_outage("acme")) == [first.id]
        assert scene.write(lambda tx: tx.holds.paused_by_outage("other")) == []

    def test_a_crowd_is_who_began_after_the_warning(self, scene: Scene) -> None:
        host = scene.open_host()
        early, late = (scene.running(host, agent="claude") for _ in range(2))
        scene.write(lambda tx: tx.runs.intend(early, "r1", scene.now, None, "work"))
        since = scene.tick(10)
        scene.tick()
        assert scene.write(lambda tx: tx.holds.count_agents_since("claude/work", since)) == 0
        scene.write(lambda tx: tx.runs.intend(late, "r2", scene.now, None, "work"))
        assert scene.write(lambda tx: tx.holds.count_agents_since("claude/work", since)) == 1
        assert scene.write(lambda tx: tx.holds.count_agents_since("claude/default", since)) == 0
        assert scene.write(lambda tx: tx.holds.account_of(late.task_id)) == "work"
        assert scene.write(lambda tx: tx.runs.account_of_run("r2")) == ("claude", "work")

    def test_held_tasks_are_passed_over(self, scene: Scene) -> None:
        host, down = scene.open_host(), ClaimTerms(providers_down=frozenset({"acme"}))
        scene.add(provider="acme", priority=9)
        free = scene.add()
        claimed = scene.write(lambda tx: tx.tasks.claim(host, scene.now, down))
        assert claimed is not None
        assert claimed.id == free.id
        assert not scene.write(lambda tx: tx.tasks.has_claimable_task(scene.now, down))


class TestDeaths:
    def test_what_one_of_many_cost_is_given_back_once(self, scene: Scene) -> None:
        """R-CRASH-07: spends nobody's budget, even of those that died first."""
        killed = ended_with(Outcome.EXTERNAL_KILL)
        ownership = scene.running()
        run = scene.ended_run(ownership, killed)
        scene.write(lambda tx: tx.holds.record_death(run, ownership.task_id, scene.now.wall, scene.now))
        scene.settle(ownership, CRASH, run, killed)
        assert scene.spends(ownership.task_id) == ["crash", "runs"]
        other = scene.running(priority=2000)
        failed = scene.ended_run(other)
        scene.settle(other, FAIL, failed)
        scene.write(lambda tx: tx.holds.mark_mass_death([run], scene.now))
        assert scene.spends(ownership.task_id) == []
        assert scene.spends(other.task_id) == ["runs"]
        found = scene.write(lambda tx: tx.holds.death(run))
        assert found is not None
        assert (found[0].is_mass, found[1]) == (True, scene.now)

    def test_deaths_are_found_by_their_time_and_forgotten_after_a_day(self, scene: Scene) -> None:
        def die(tx: Transaction) -> None:
            for number, at in enumerate((0.0, 10.0, 40.0, 200.0)):
                tx.holds.record_death(f"r{number}", "t", scene.now.wall + at, scene.now)

        scene.write(die)
        near = scene.write(lambda tx: tx.holds.deaths_around(scene.now.wall + 30, 30))
        assert [death.run_id for death in near] == ["r0", "r1", "r2"]
        scene.tick(90_000)
        scene.write(lambda tx: tx.holds.record_death("r9", "t", scene.now.wall, scene.now))
        assert scene.write(lambda tx: tx.holds.death("r0")) is None

    def test_who_ran(self, scene: Scene) -> None:
        host = scene.open_host()
        alive = scene.running(host)
        scene.started_run(alive)
        ownership = scene.running(host)
        scene.settle(ownership, COMPLETE, scene.ended_run(ownership))
        assert scene.write(lambda tx: tx.holds.ran(["scripted"], scene.now.wall - 1)) == (
            frozenset({alive.task_id}),
            frozenset({ownership.task_id}),
        )
        assert scene.write(lambda tx: tx.holds.ran(["scripted"], scene.now.wall + 1)) == (
            frozenset({alive.task_id}),
            frozenset(),
        )
