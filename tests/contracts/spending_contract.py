"""What every store must do for money and tokens (store/port/dispatch.py). Against the port alone."""

from __future__ import annotations

import pytest
from tests.contracts.store_contract import COMPLETE, PAUSE, START, Scene, ended_with

from holdfast.base.errors import Conflict, NotFound
from holdfast.core.dispatch.spending_caps import SharedCap, SpendingCap, UsedSpending
from holdfast.core.model import PauseReason, Task
from holdfast.core.runs.outcome import Outcome, RunUsage
from holdfast.core.runs.policy import Decision, PolicyAction
from holdfast.core.task_settings import BudgetRules
from holdfast.store.port.dispatch import allowances_of
from holdfast.store.port.transaction import Transaction

DAY = SharedCap(key="day", cap=SpendingCap(usd=5.0))
OVER = Decision(action=PolicyAction.PAUSE, reason="its budget is spent", pause=PauseReason.BUDGET)


def took(scene: Scene, task: Task, usage: RunUsage, session: str | None = None, run: str = "") -> bool:
    run_id = run or f"run-{scene.now.wall}-{usage.input}-{usage.output}"
    return scene.write(lambda tx: tx.spending.record(task, run_id, usage, session, scene.tick()))


def used(scene: Scene, task: Task) -> UsedSpending:
    return scene.write(lambda tx: tx.spending.of_task(task))


class TestSpending:
    def test_each_run_counts_once_for_task_day_and_label(self, scene: Scene) -> None:
        task, other = scene.add(labels={"team": "web", "kind": "fix"}), scene.add(labels={"team": "db"})
        assert took(scene, task, RunUsage(input=100, output=20, cost_usd=0.5), run="r1")
        assert not took(scene, task, RunUsage(input=100, output=20, cost_usd=0.5), run="r1"), "told again"
        assert took(scene, task, RunUsage(input=10), run="r2")
        took(scene, other, RunUsage(output=7, cost_usd=1.0), run="r3")
        scene.reopen()
        assert used(scene, task) == UsedSpending(usd=0.5, tokens=130, unpriced=1)
        lately = scene.write(lambda tx: tx.spending.last_day(scene.now))
        assert sum(entry.used.tokens for entry in lately) == 137
        assert {label for entry in lately for label in entry.labels} == {"team=web", "kind=fix", "team=db"}
        assert scene.write(lambda tx: tx.spending.total_of("team=web")) == UsedSpending(usd=0.5, tokens=130, unpriced=1)
        assert scene.write(lambda tx: tx.spending.total_of("team=none")) == UsedSpending()

    def test_a_session_that_tells_its_sum_counts_what_came_on_top(self, scene: Scene) -> None:
        task = scene.add()
        took(scene, task, RunUsage(input=100, output=10), session="s1", run="r1")
        took(scene, task, RunUsage(input=250, output=10), session="s1", run="r2")
        took(scene, task, RunUsage(input=50, output=5), session="s1", run="r3")  # it forgot: that adds nothing
        took(scene, task, RunUsage(input=40), session="s2", run="r4")
        assert used(scene, task).tokens == 260 + 40
        assert scene.write(lambda tx: tx.spending.of_session(task.id, "s1")) == RunUsage(input=250, output=10)

    def test_a_retry_starts_afresh_and_takes_nothing_back(self, scene: Scene) -> None:
        """R-RES-05: per generation; the day and the sum of all know the earlier ones."""
        task = scene.add()
        took(scene, task, RunUsage(input=100, cost_usd=2.0), session="s1", run="r1")
        scene.cancel(task.id)
        scene.retry(task.id)
        again = scene.get(task.id)
        assert used(scene, again) == UsedSpending()
        took(scene, again, RunUsage(input=130, cost_usd=2.5), session="s1", run="r2")  # the same session continues
        assert used(scene, again).tokens == 30
        rows = scene.store.view("usage_by_generation", id=task.id)
        assert [(row["generation"], row["tokens"]) for row in rows] == [(0, 100), (1, 30)]

    def test_the_first_task_of_a_family_pays_for_all_of_it(self, scene: Scene) -> None:
        """Otherwise as many budgets as subtasks could be used. Its retry starts afresh, theirs does not."""
        root = scene.add(budget=BudgetRules(usd=1.0))
        child = scene.add(parent_id=root.id, budget=BudgetRules(usd=1.0))
        below = scene.add(parent_id=child.id)
        took(scene, root, RunUsage(cost_usd=0.25), run="r1")
        took(scene, child, RunUsage(cost_usd=0.5), run="r2")
        took(scene, below, RunUsage(input=7, cost_usd=0.25), run="r3")
        assert [used(scene, task).usd for task in (root, child, below)] == [1.0, 0.5, 0.25]
        family = (root, child, below)
        assert scene.write(lambda tx: [tx.spending.root_of(task) for task in family]) == [root.id] * 3
        spent = scene.write(lambda tx: [[purse.spent for purse in allowances_of(tx, task)] for task in family])
        words = f"$1.00 of $1.00 of task {root.id} and its subtasks"
        assert spent == [["$1.00 of $1.00"], ["", words], [words]]
        scene.cancel(child.id)
        scene.retry(child.id)
        assert used(scene, root).usd == 1.0
        scene.write(lambda tx: tx.spending.change_cap(root.id, SpendingCap(usd=3.0), "ann", scene.now, is_root=True))
        assert scene.get(root.id).spec.budget.usd == 3.0
        scene.cancel(root.id)
        scene.retry(root.id)
        assert used(scene, scene.get(root.id)) == UsedSpending()

    def test_a_day_knows_what_forgotten_tasks_cost(self, scene: Scene) -> None:
        """Retention forgets a task; what it cost within the window still counts, and under its label for good."""
        ownership = scene.running(labels={"team": "web"})
        task = scene.get(ownership.task_id)
        run_id = scene.ended_run(ownership)
        took(scene, task, RunUsage(cost_usd=3.0), run=run_id)
        scene.settle(ownership, COMPLETE, run_id)
        old = scene.tick(100)

        def forget(tx: Transaction) -> bool:
            found, _lowest = tx.history.find_old_tasks(10**9, old.wall, 10)
            return all(tx.history.forget_task(one, old.wall) for one in found)

        assert scene.write(forget)
        with pytest.raises(NotFound):
            scene.get(task.id)
        scene.write(lambda tx: tx.history.drop_small_records(old.wall, 100))
        assert sum(entry.used.usd for entry in scene.write(lambda tx: tx.spending.last_day(scene.now))) == 3.0
        much_later = scene.tick(4 * 86400)
        took(scene, scene.add(), RunUsage(cost_usd=1.0), run="new")
        scene.write(lambda tx: tx.history.drop_small_records(much_later.wall, 100))
        assert sum(entry.used.usd for entry in scene.write(lambda tx: tx.spending.last_day(scene.now))) == 1.0
        assert scene.write(lambda tx: tx.spending.total_of("team=web")).usd == 3.0

    def test_the_window_is_of_the_boot_or_of_a_wall_that_can_be_believed(self, scene: Scene) -> None:
        task = scene.add()
        took(scene, task, RunUsage(cost_usd=1.0), run="r1")
        jumped = scene.now._replace(wall=START.wall - 10 * 365 * 86400)
        assert len(scene.write(lambda tx: tx.spending.last_day(jumped))) == 1
        rebooted = scene.now._replace(boottime=3.0, boot_id="boot-two")
        assert len(scene.write(lambda tx: tx.spending.last_day(rebooted))) == 1
        assert not scene.write(lambda tx: tx.spending.last_day(rebooted._replace(wall=START.wall - 86400)))
        assert not scene.write(lambda tx: tx.spending.last_day(rebooted._replace(wall=START.wall + 2 * 86400)))

    def test_an_episode_is_told_once(self, scene: Scene) -> None:
        spent = UsedSpending(usd=6.0)
        scene.write(lambda tx: tx.spending.begin(DAY, spent, scene.now.wall + 60, scene.now))
        scene.write(lambda tx: tx.spending.begin(DAY, spent, scene.now.wall + 90, scene.tick()))
        scene.reopen()
        (found,) = scene.write(lambda tx: tx.spending.spent())
        assert (found.key, found.label, found.until) == ("day", None, START.wall + 90)
        assert scene.kinds().count("budget.spent") == 1
        (alert,) = scene.store.view("alerts", all=False)
        assert alert["key"] == "budget:day"
        for _again in range(2):
            scene.write(lambda tx: tx.spending.end("day", "its window slid on", scene.tick()))
        assert scene.kinds().count("budget.available") == 1
        assert scene.store.view("alerts", all=False) == []
        assert scene.write(lambda tx: tx.spending.spent()) == []

    def test_what_a_run_crossed_is_kept_with_it(self, scene: Scene) -> None:
        took(scene, scene.add(), RunUsage(cost_usd=9.0), run="r1")
        scene.write(lambda tx: tx.spending.record_crossed_caps("r1", ["day", "team=web/day"]))
        assert list(scene.write(lambda tx: tx.spending.crossed("r1"))) == ["day", "team=web/day"]
        assert list(scene.write(lambda tx: tx.spending.crossed("unknown"))) == []

    def test_an_operator_gives_a_paused_task_more(self, scene: Scene) -> None:
        task_id = scene.paused(OVER, budget=BudgetRules(usd=1.0, tokens=50))
        scene.write(lambda tx: tx.spending.change_cap(task_id, SpendingCap(usd=8.0), "ann", scene.now))
        assert scene.get(task_id).spec.budget == BudgetRules(usd=8.0, tokens=50)
        (event,) = [event for event in scene.events(task_id) if event["kind"] == "budget.raised"]
        assert event["data"] == {"by": "ann", "usd": 8.0, "tokens": None}
        assert "$1.00 → $8.00" in event["message"]

    def test_only_a_paused_task_gets_more(self, scene: Scene) -> None:
        task = scene.add()
        with pytest.raises(Conflict):
            scene.write(lambda tx: tx.spending.change_cap(task.id, SpendingCap(usd=8.0), "ann", scene.now))
        with pytest.raises(NotFound):
            scene.write(lambda tx: tx.spending.change_cap("nosuchtask", SpendingCap(usd=8.0), "ann", scene.now))

    def test_usage_and_the_end_of_its_run_are_one_transaction(self, scene: Scene) -> None:
        """Nothing counted without its end, nothing ended without what it cost."""
        ownership = scene.running()
        run_id = scene.started_run(ownership)

        def half(tx: Transaction) -> None:
            tx.runs.ended(ownership, run_id, ended_with(Outcome.COMPLETED), scene.now)
            tx.spending.record(tx.tasks.get(ownership.task_id), run_id, RunUsage(input=5), None, scene.now)
            raise Conflict("the power went")

        with pytest.raises(Conflict):
            scene.write(half)
        assert used(scene, scene.get(ownership.task_id)) == UsedSpending()
        assert scene.runs(ownership.task_id)[0]["outcome"] is None
        assert PAUSE.pause is not None
