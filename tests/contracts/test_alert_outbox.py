"""What every store must do for notices, and the service that sends them: at least once, in order, not for ever."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contracts.store_contract import Scene
from tests.contracts.test_sqlite_store import SqliteBench

from holdfast.alerts.port import AlertTarget, SendResult
from holdfast.base.errors import Conflict
from holdfast.core.model import Level
from holdfast.core.runs.retry_budgets import RetryLimits
from holdfast.core.tasks.alerts import AlertChange, Delivery, DeliveryPlan, DeliveryRules
from holdfast.store.port.transaction import Transaction
from holdfast.supervisor.context import Context, Ports
from holdfast.supervisor.services.alerts import DeliveryService
from holdfast.supervisor.settings import SupervisorSettings

BOTH = DeliveryPlan(targets=("command", "webhook"))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    bench = SqliteBench(tmp_path)
    yield Scene(bench)
    bench.close_all()


def alert(scene: Scene, key: str = "disk", level: Level = Level.CRITICAL) -> None:
    scene.write(lambda tx: tx.events.raise_alert(key, "Full.", "Free it.", scene.tick(), level=level))


def plan_all(scene: Scene, plan: DeliveryPlan = BOTH) -> None:
    def work(tx: Transaction) -> None:
        for notice in tx.deliveries.find_unplanned(100):
            tx.deliveries.plan(notice, plan)

    scene.write(work)


def heads(scene: Scene) -> dict[str, Delivery]:
    return {delivery.target: delivery for delivery in scene.write(lambda tx: tx.deliveries.next_deliveries())}


def waiting(scene: Scene) -> int:
    return scene.write(lambda tx: tx.deliveries.waiting())


class TestOutbox:
    def test_a_notice_is_written_with_what_it_tells_of_or_not_at_all(self, scene: Scene) -> None:
        """R-CRASH-06: raised, acknowledged, closed: one each, with all that is known; of a second raise none;
        and a transaction that dies takes the notice with the alert."""
        alert(scene)
        alert(scene)
        scene.write(lambda tx: tx.events.ack_alert(1, "ann", scene.tick(), "seen"))
        alert(scene)
        scene.write(lambda tx: tx.events.close_alert("disk", "room", scene.tick()))

        def raise_and_die(tx: Transaction) -> None:
            tx.events.raise_alert("other", "m", "r", scene.now)
            raise RuntimeError("killed before the commit")

        with pytest.raises(RuntimeError):
            scene.write(raise_and_die)
        scene.reopen()
        notices = scene.write(lambda tx: tx.deliveries.find_unplanned(100))
        assert [str(notice.transition) for notice in notices] == ["raised", "acknowledged", "raised", "resolved"]
        assert len({notice.key for notice in notices}) == 4
        bodies = [json.loads(notice.body) for notice in notices]
        assert [body["key"] for body in bodies] == [notice.key for notice in notices]
        first, seen, second, over = (body["alert"]["id"] for body in bodies)
        assert (first == seen, second == over, first == second) == (True, True, False)
        assert (bodies[1]["by"], bodies[1]["why"], bodies[3]["by"]) == ("ann", "seen", "room")
        assert bodies[0]["alert"]["message"] == "Full."

    def test_each_target_gets_them_in_order_and_waits_for_nobody_else(self, scene: Scene) -> None:
        for key in ("one", "two"):
            alert(scene, key)
        plan_all(scene)
        first = heads(scene)
        assert {target: delivery.notice.id for target, delivery in first.items()} == {"command": 1, "webhook": 1}
        scene.write(
            lambda tx: tx.deliveries.record_sent(tx.deliveries.begin(first["command"], 2.0, scene.now), "ok", scene.now)
        )
        now = heads(scene)
        assert {target: delivery.notice.id for target, delivery in now.items()} == {"command": 2, "webhook": 1}
        assert waiting(scene) == 3

    def test_two_senders_cannot_both_have_an_attempt(self, scene: Scene) -> None:
        """R-CRASH-03's fence, for notices: whoever comes second is refused, and nothing is written."""
        alert(scene)
        plan_all(scene)
        seen = heads(scene)["command"]
        begun = scene.write(lambda tx: tx.deliveries.begin(seen, 2.0, scene.now))
        assert (begun.attempts, begun.last) == (1, scene.now)
        with pytest.raises(Conflict):
            scene.write(lambda tx: tx.deliveries.begin(seen, 2.0, scene.now))
        scene.write(lambda tx: tx.deliveries.give_up(begun, "enough", scene.now))
        for late in (
            lambda tx: tx.deliveries.record_sent(begun, "ok", scene.now),
            lambda tx: tx.deliveries.failed(begun, "no", 1.0, scene.now),
            lambda tx: tx.deliveries.give_up(begun, "no", scene.now),
        ):
            with pytest.raises(Conflict):
                scene.write(late)
        assert scene.kinds() == ["alert.raised", "notice.given-up"]

    def test_what_is_done_with_is_forgotten_and_nothing_else(self, scene: Scene) -> None:
        for key in ("told", "nobody", "waits", "new"):
            alert(scene, key)
        notices = scene.write(lambda tx: tx.deliveries.find_unplanned(3))
        for notice, plan in zip(
            notices, (DeliveryPlan(targets=("command",)), DeliveryPlan(targets=(), why="off"), BOTH), strict=True
        ):
            scene.write(lambda tx, n=notice, p=plan: tx.deliveries.plan(n, p))  # type: ignore[misc]  # defaults, not parameters
        told = heads(scene)["command"]
        scene.write(lambda tx: tx.deliveries.record_sent(tx.deliveries.begin(told, 1.0, scene.now), "ok", scene.now))
        assert scene.write(lambda tx: tx.deliveries.forget(scene.now.wall + 1, 1)) == 1, "a bounded piece"
        assert scene.write(lambda tx: tx.deliveries.forget(scene.now.wall + 1, 10)) == 1
        assert waiting(scene) == 3


class Listed:
    """A target that says what it is told to, in order; then it takes everything."""

    def __init__(self, name: str, *answers: SendResult | Exception) -> None:
        self.name = name
        self.answers = list(answers)
        self.got: list[str] = []

    async def send(self, notice: AlertChange) -> SendResult:
        self.got.append(notice.key)
        answer = self.answers.pop(0) if self.answers else SendResult(ok=True, told="ok")
        if isinstance(answer, Exception):
            raise answer
        return answer


class Outlets:
    def __init__(self, *targets: Listed, rules: DeliveryRules | None = None) -> None:
        self.held = {target.name: target for target in targets}
        self._rules = rules or DeliveryRules()

    def rules(self) -> DeliveryRules:
        return self._rules

    def names(self) -> Sequence[str]:
        return list(self.held)

    def target(self, name: str) -> AlertTarget | None:
        return self.held.get(name)


def serve(scene: Scene, outlets: Outlets, work: Callable[[DeliveryService], Awaitable[None]]) -> None:
    """With a service of its own, like after a restart."""

    async def whole() -> None:
        context = Context(
            home="/nowhere",
            host_id="h",
            clock=lambda: scene.now,
            jitter=lambda: 0.0,
            store=scene.store,
            writer=scene.bench.writer(),
            limits=RetryLimits(),
            settings=SupervisorSettings(agents=1),
            ports=Ports(
                processes=cast(Any, None),
                strategy_of=cast(Any, None),
                agents={},
                environment=cast(Any, None),
                alert_targets=outlets,
            ),
        )
        await work(DeliveryService(context))

    asyncio.run(whole())
    scene.reopen()


async def look(service: DeliveryService) -> None:
    await service.tick()
    await service.finish(20.0)


NO = SendResult(ok=False, told="HTTP 500")


class TestSending:
    def test_it_is_tried_again_after_its_wait_across_restarts_and_then_sent(self, scene: Scene) -> None:
        target = Listed("webhook", NO, SendResult(ok=False, told="HTTP 429", retry_after=50.0), ValueError("secret"))
        alert(scene)
        waits = []
        for _ in range(4):
            serve(scene, Outlets(target), look)
            sent = len(target.got)
            serve(scene, Outlets(target), look)
            assert len(target.got) == sent, "not before its time"
            found = heads(scene)
            waits.append(found["webhook"].delay if found else None)
            scene.tick(waits[-1] or 0.0)
        assert waits == [2.0, 50.0, 8.0, None], "the back-off, what the receiver asked for, the back-off"
        assert len(target.got) == 4
        assert len(set(target.got)) == 1, "always the same key"
        kinds = [kind for kind in scene.kinds() if kind.startswith("notice")]
        assert kinds == ["notice.failed"] * 3 + ["notice.sent"]
        assert "secret" not in json.dumps(scene.events())
        assert waiting(scene) == 0

    def test_it_is_given_up_aloud_and_the_next_one_gets_its_turn(self, scene: Scene) -> None:
        target = Listed("command", *[NO] * 3)
        for key in ("one", "two"):
            alert(scene, key)
        for _ in range(9):
            serve(scene, Outlets(target, rules=DeliveryRules(attempts=3)), look)
            scene.tick(10)
        assert [target.got.count(key) for key in dict.fromkeys(target.got)] == [3, 1]
        kinds = [kind for kind in scene.kinds() if kind.startswith("notice")]
        assert kinds == ["notice.failed", "notice.failed", "notice.given-up", "notice.sent"]

    def test_a_supervisor_that_always_dies_while_sending_does_not_send_for_ever(self, scene: Scene) -> None:
        """Nothing loops: the attempt is counted before it is made."""
        alert(scene)
        plan_all(scene, DeliveryPlan(targets=("command",)))
        for _ in range(8):
            scene.write(lambda tx: tx.deliveries.begin(heads_of(tx), 1.0, scene.now))  # … and dies
            scene.tick(2)
        target = Listed("command")
        serve(scene, Outlets(target), look)
        assert target.got == []
        assert [kind for kind in scene.kinds() if kind.startswith("notice")] == ["notice.given-up"]

    def test_a_clock_that_was_set_back_by_years_hangs_nothing(self, scene: Scene) -> None:
        target = Listed("command", NO)
        alert(scene)
        serve(scene, Outlets(target), look)
        scene.now = scene.now._replace(wall=scene.now.wall - 3e8, boottime=1.0, boot_id="boot-two")
        serve(scene, Outlets(target), look)
        assert len(target.got) == 2
        assert waiting(scene) == 0

    def test_targets_do_not_wait_for_one_another_and_one_that_is_gone_is_given_up(self, scene: Scene) -> None:
        slow, quick = Listed("command", *[NO] * 9), Listed("webhook")
        for key in ("one", "two", "three"):
            alert(scene, key)

        async def work(service: DeliveryService) -> None:
            for _ in range(4):
                await look(service)
            assert service.busy
            assert await service.next_wake() < math.inf

        serve(scene, Outlets(slow, quick), work)
        assert (len(slow.got), len(quick.got)) == (1, 3)
        scene.tick(1000)

        async def without(service: DeliveryService) -> None:
            for _ in range(4):
                await look(service)
            assert not service.busy

        serve(scene, Outlets(quick), without)
        assert waiting(scene) == 0
        assert scene.kinds().count("notice.given-up") == 3

    def test_what_nobody_wants_is_not_kept_waiting(self, scene: Scene) -> None:
        """R-CRASH-05: with notify off the alert is still there, and the record says why nobody was told."""
        target = Listed("command")
        alert(scene, "crash:task:x")
        serve(scene, Outlets(target, rules=DeliveryRules(crashes=False)), look)
        assert (target.got, waiting(scene)) == ([], 0)
        assert len(scene.store.view("alerts", all=False)) == 1
        (row,) = scene.store.view("notices")
        assert row["planned"] == "nobody: `crash.notify` is off"


def heads_of(tx: Transaction) -> Delivery:
    return tx.deliveries.next_deliveries()[0]
