"""The lives that a task can have, each played by real processes. A scenario says what must come out of it.

Agents are shell scripts: they start in a millisecond. What they write they tell the witness, when it is written.
"""

from __future__ import annotations

from tests.harness.matrix import (
    alerts,
    branches,
    changes,
    containers,
    families,
    messages,
    pauses,
    protections,
    providers,
    schedules,
    stages,
    swarms,
    trackers,
    variations,
    workers,
)
from tests.harness.matrix.scenario import Scenario
from tests.harness.matrix.spending import budget
from tests.harness.matrix.steps import (
    COMMIT,
    add,
    commands_of,
    events_tell,
    forget_row,
    insist,
    litter,
    retry,
    state,
    task_id,
    up_to_the_end,
    write,
)
from tests.harness.matrix.world import World

from holdfast.api.commands import Commands, NewTask
from holdfast.api.home.backup import make_backup
from holdfast.api.home.restore import prepare_restore, restore_backup
from holdfast.api.work import workspaces
from holdfast.supervisor.settings import RetentionTimes


def success(world: World) -> None:
    add(world, "succeed", write("done.txt", "done") + COMMIT + write("left.txt", "left"))
    world.up("up")


def failure(world: World) -> None:
    """In a workspace that was set up, with a file of the checkout that git does not carry."""
    (world.repo / "secret.env").write_text("secret")
    settings = {
        "HOLDFAST_WORKSPACE_COPY": "*.env",
        "HOLDFAST_WORKSPACE_SETUP": "'echo set up'",
        "HOLDFAST_WORKSPACE_TEARDOWN": "'test -e secret.env'",
    }
    add(world, "fail", write("lost.txt", "not lost") + "exit 1", settings=settings)
    world.up("up")


def cancel(world: World) -> None:
    """Cancelled at work, with a child that left its session and a grandchild that is nobody's; its branch is packed."""
    hang = "git pack-refs --all; (setsid sleep 1000 &) \n touch $WORLD/working; exec sleep 1000"
    add(world, "hang", write("half.txt", "half") + hang)
    world.start("up")
    at_work = (world.root / "working").exists
    world.wait_until(at_work, "the agent works", while_running="up")

    def ask() -> None:
        commands_of(world).cancel(task_id(world, "hang"), "the matrix says so")

    insist(world, "cancel", ask, lambda: events_tell(world, "run.stopping"))
    world.wait("up")


def agent_killed(world: World) -> None:
    """The agent is killed from outside, once; a daemon of it stays behind."""
    script = (
        write("one.txt", "one")
        + "[ -e $WORLD/killed ] || { touch $WORLD/killed; (setsid sleep 1000 &); kill -9 $$; }\n"
    )
    add(world, "be killed", script + write("two.txt", "two"))
    world.up("up")


def keeper_killed(world: World) -> None:
    """The agent kills its keeper, once, and leaves a daemon: the supervisor is the outer subreaper that ends it."""
    script = (
        write("one.txt", "one")
        + "[ -e $WORLD/killed ] || { touch $WORLD/killed; (setsid sleep 1000 &); kill -9 $PPID; sleep 1000; }\n"
    )
    add(world, "kill the keeper", script + write("two.txt", "two"))
    world.up("up")


def adoption(world: World) -> None:
    """The supervisor dies while its agent works; the next one takes the agent over, and it ends well."""
    wait = "touch $WORLD/working; until [ -e $WORLD/go ]; do sleep 0.05; done\n"
    add(world, "be adopted", write("early.txt", "early") + wait + write("late.txt", "late"))
    world.start("up")
    world.wait_until((world.root / "working").exists, "the agent works", while_running="up")
    world.kill("up")
    is_left = state(world, "be adopted") == "running"  # not if the fault came before it was claimed
    world.start("up2")
    if is_left:
        taken = lambda: events_tell(world, "task.adopted") or state(world, "be adopted") != "running"  # noqa: E731 - two facts
        world.wait_until(taken, "it is adopted", while_running="up2")
    (world.root / "go").touch()
    world.wait("up2")


CLAIM = """printf '{"token":"%s","report":"complete"}\\n' "$HOLDFAST_RUN_TOKEN" >> "$HOLDFAST_CHANNEL/reports"\n"""


def claim(world: World) -> None:
    """The agent claims its result and hangs, with a daemon: it is ended after the grace, and its result counts."""
    hang = "(setsid sleep 1000 &) \n exec sleep 1000"
    script = write("done.txt", "done") + CLAIM + hang
    add(world, "claim and hang", script, settings={"HOLDFAST_HEALTH_CLAIM_GRACE": "10ms"})
    world.up("up")


def start_up(world: World) -> None:
    """What a crash storm leaves: one task half made, one half cleaned, one run that was only intended."""
    for number, point in enumerate(("worktree.added", "trash.renamed", "rundir.intent")):
        add(world, f"leave {point}", write(f"{number}.txt", point), role=f"add{number}")
        world.client(f"crash{number}", lambda at=point: _crash_at(world, at))  # type: ignore[misc]  # a default, not a parameter
    world.up("up")


def _crash_at(world: World, point: str) -> None:
    from holdfast.base import faults

    faults.arm(f"{point}:1:kill")
    world._supervise(2)


def operator(world: World) -> None:
    """A preserved workspace is retried in place and dropped; a waiting task is cancelled with what depends on it."""
    script = (
        write("kept.txt", "kept")
        + "[ -e $WORLD/second ] || { touch $WORLD/second; exit 3; }\n"
        + write("more.txt", "more")
        + "exit 4"
    )
    add(world, "be kept", script, role="add1", preserve_on_failure=True)
    add(world, "never run", "true", role="add2", delay=3600.0)
    insist(world, "add3", lambda: _add_after(world), lambda: state(world, "never run either") != "missing")
    insist(world, "cancel", lambda: commands_of(world).cancel(task_id(world, "never run"), ""), lambda: _is_over(world))
    up_to_the_end(world, "up")
    retry(world, "be kept")
    up_to_the_end(world, "up2")
    if state(world, "be kept") == "failed":
        kept = task_id(world, "be kept")
        insist(world, "clean", lambda: workspaces.clean(str(world.home), [kept]), lambda: False)
    up_to_the_end(world, "up3")


def _is_over(world: World) -> bool:
    return state(world, "never run") == "cancelled"


def _add_after(world: World) -> None:
    added = Commands(str(world.home)).add(
        NewTask(
            prompt="never run either",
            directory=str(world.repo),
            command=("true",),
            after=(task_id(world, "never run"),),
        )
    )
    world.acknowledge(added.id)


def retry_from_salvage(world: World) -> None:
    """A failed task's work is salvaged; the retry gets it back."""
    script = "[ -e saved.txt ] || {\n" + write("saved.txt", "saved") + "exit 1; }\n" + write("rest.txt", "rest")
    add(world, "be retried", script)
    up_to_the_end(world, "up")
    retry(world, "be retried")
    up_to_the_end(world, "up2")


def backup(world: World) -> None:
    """A backup of store and saved work is made, and brought back."""
    add(world, "be backed up", write("saved.txt", "saved") + "exit 1")
    up_to_the_end(world, "up")
    target = world.root / "all.tar"
    insist(
        world, "backup", lambda: make_backup(str(world.home), str(target), store_only=False, force=True), target.exists
    )
    insist(world, "restore", lambda: _restore(world, str(target)), lambda: events_tell(world, "store.restored"))
    up_to_the_end(world, "up2")


def _restore(world: World, source: str) -> None:
    with prepare_restore(str(world.home), source) as plan:
        restore_backup(plan)


def retention(world: World) -> None:
    """Everything that may be forgotten is old at once: events and run directories go, endings and saved work stay."""
    add(world, "be forgotten", write("saved.txt", "saved") + "exit 1")
    up_to_the_end(world, "up")
    old = RetentionTimes(events=0.0, runs=0.0)
    if world.up("up2", keeping=old) != 0:
        world.up("up2-again", keeping=old)


def leftovers(world: World) -> None:
    """What no row waits for: trash, a marker, a half-made git entry, an empty branch; a marker that was spoilt; and a
    workspace whose row an old backup does not have."""
    add(world, "leave things", write("saved.txt", "saved") + "exit 1", preserve_on_failure=True)
    add(world, "be lost", write("lost.txt", "lost") + "exit 1", role="add2", preserve_on_failure=True)
    up_to_the_end(world, "up")
    litter(world, task_id(world, "leave things"))
    forget_row(world, task_id(world, "be lost"))
    up_to_the_end(world, "up2")


SCENARIOS: dict[str, Scenario] = {
    "success": Scenario(success, {"succeed": ("completed",)}, "a commit and a leftover, both on the branch"),
    "failure": Scenario(failure, {"fail": ("failed",)}, "what a failed agent left is salvaged"),
    "cancel": Scenario(cancel, {"hang": ("cancelled",)}, "cancelled at work, with strays", is_attended=True),
    "agent-killed": Scenario(agent_killed, {"be killed": ("completed",)}, "killed once, requeued, done"),
    "crash-out": Scenario(
        alerts.crash_out,
        {"crash out": ("completed", "failed")},
        "recorded, alerted, told to people",
        also=alerts.told,
    ),
    "endings-told": Scenario(
        alerts.fail_and_tell,
        {"fail first": ("failed",), "fail second": ("failed",)},
        "two tasks fail: people are told of both, once",
        also=alerts.told_endings,
    ),
    "crash-out-retried": Scenario(
        alerts.crash_out_and_retry,
        {"crash out": ("completed", "failed")},
        "the same, and that it is over",
        also=alerts.told,
        is_variation=True,
    ),
    "keeper-killed": Scenario(
        keeper_killed,
        {"kill the keeper": ("completed",)},
        "its keeper dies, what it leaves is ended",
        keepers_may_die=False,
        supervisor_may_die=False,
    ),
    "limit": Scenario(providers.limit, {"be limited": ("completed",)}, "usage limit, pause, resume"),
    "limit-again": Scenario(
        providers.again, {"meet it again": ("failed",)}, "resumed once too often", is_variation=True
    ),
    "outage": Scenario(
        providers.outage,
        {"meet an outage": ("completed",), "meet it too": ("completed",)},
        "a provider is down: held back, one starts first, all follow",
    ),
    "pause": Scenario(
        pauses.paused,
        {pauses.HELD: ("completed",), pauses.WAITING: ("completed",), pauses.REFUSED: ("failed",)},
        "paused by an operator at work and while they wait, resumed; one is due without a resume",
        is_attended=True,
    ),
    "adoption": Scenario(
        adoption,
        {"be adopted": ("completed",)},
        "the supervisor dies, the agent does not",
        keepers_may_die=False,
        is_attended=True,
    ),
    "claim": Scenario(claim, {"claim and hang": ("completed",)}, "claims its result, does not exit, is ended"),
    "start-up": Scenario(
        start_up,
        {f"leave {point}": ("completed",) for point in ("worktree.added", "trash.renamed", "rundir.intent")},
        "three crashes, then a start",
        keepers_may_die=False,
    ),
    "operator": Scenario(
        operator,
        {"be kept": ("failed",), "never run": ("cancelled",), "never run either": ("cancelled",)},
        "preserve, retry in place, clean, cancel with dependents",
    ),
    "expiry": Scenario(variations.expiry, {"expire": ("failed",)}, "kept by an operator, expired, salvaged, removed"),
    "retry": Scenario(retry_from_salvage, {"be retried": ("completed",)}, "salvaged work comes back"),
    "backup": Scenario(backup, {"be backed up": ("failed",)}, "backup and restore of store and saved work"),
    "retention": Scenario(retention, {"be forgotten": ("failed",)}, "old history goes, what matters stays"),
    "leftovers": Scenario(
        leftovers,
        {"leave things": ("failed",), "be lost": ("failed",)},
        "things that no row waits for, swept at a start",
    ),
    "held": Scenario(
        variations.held,
        {"wait for room": ("completed",)},
        "held back by the pressure gate, then let in",
        is_attended=True,
    ),
    "budget": Scenario(budget, {"spend": ("completed",)}, "over its budget and the day's, paused, given more"),
    "worker": Scenario(
        workers.worker, {"be a worker's": ("completed",)}, "its agent crashes, it is stopped, restarted, continues"
    ),
    "issues": Scenario(
        trackers.issues,
        {trackers.prompt("m-crash"): ("completed",), trackers.prompt("m-fail"): ("failed",)},
        "issues of a tracker: crash and claim again, fail and give back, closed by a person in the same moment",
        is_variation=True,
        also=trackers.problems,
    ),
    "stages": Scenario(stages.stages, stages.EXPECTED, "a gate, a turn and an approval", also=stages.problems),
    "send": Scenario(
        messages.sent,
        messages.EXPECTED,
        "messages of a person, to a task at work, to one that has completed and to one that has failed",
        is_attended=True,
        also=messages.problems,
    ),
    "retold": Scenario(
        changes.retold,
        changes.EXPECTED,
        "a failed task is changed, and retried with another prompt",
        also=changes.problems,
    ),
    "bulk": Scenario(
        changes.cancelled_in_bulk,
        changes.EXPECTED_OF_BULK,
        "several tasks are cancelled in batches: at work, waiting, paused, and one that is over",
        is_attended=True,
        is_variation=True,
        also=changes.problems_of_bulk,
    ),
    "gate": Scenario(
        stages.checked,
        stages.EXPECTED_OF_CHECKED,
        "a task without stages whose gate fails once",
        is_variation=True,
        also=stages.problems_of_checked,
    ),
    "scheduled": Scenario(
        schedules.every_second,
        {schedules.TICK: ("completed",), schedules.WAIT: ("completed",)},
        "a schedule of every second, on the real clock: one task for each that is fired",
        is_variation=True,
        also=schedules.problems,
    ),
    "swarm": Scenario(swarms.swarm, swarms.EXPECTED, "a parallel stage, its trees apart", also=swarms.problems),
    "clone": Scenario(
        variations.clone, {"work in a clone": ("completed",)}, "a repository of its own, delivered at the end"
    ),
    "family": Scenario(
        families.family, families.EXPECTED, "a parent is cancelled, with subtasks in every state", is_attended=True
    ),
    "directory": Scenario(
        variations.directory, {"work in a directory": ("completed",)}, "no git entry, salvaged at the end"
    ),
    "dirty": Scenario(
        variations.dirty, {"leave a mess": ("failed",)}, "all that a tree can hold, saved", is_variation=True
    ),
    "dirty-success": Scenario(
        variations.dirty_success, {"end in a mess": ("completed",)}, "the same on no branch", is_variation=True
    ),
    "setup-fails": Scenario(
        variations.setup_fails, {"never start": ("failed",)}, "cannot be furnished", is_variation=True
    ),
    "kept": Scenario(variations.kept, {"stay": ("completed",)}, "kept whatever came out, dropped", is_variation=True),
    "go-back": Scenario(
        variations.go_back, {"go back": ("completed",)}, "resumed from a checkpoint, nothing lost", is_variation=True
    ),
    "tree-lost": Scenario(
        variations.tree_lost, {"be lost": ("completed",)}, "its directory deleted, back from it", is_variation=True
    ),
    "vanished": Scenario(
        variations.vanished,
        {"vanish": ("failed",)},
        "its agent removes its directory: an event, an alert, a salvage",
        is_variation=True,
        also=variations.vanished_told,
    ),
    "copied": Scenario(variations.copied, {"work in a copy": ("completed",)}, "a copy, salvaged", is_variation=True),
    **protections.SCENARIOS,
    **containers.SCENARIOS,
    **branches.SCENARIOS,
}
