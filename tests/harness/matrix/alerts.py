"""A task that crashes out, and who is told of it: crash, record, alert, outbox, sent; killed between any two."""

from __future__ import annotations

from tests.harness.matrix.steps import add, retry, task_id, up_to_the_end, write
from tests.harness.matrix.world import World

from holdfast.api.queries import Queries
from holdfast.checker.evidence import Evidence

HOOK = """printf '%s\\n' "$HOLDFAST_NOTICE_KEY" >> "$WORLD/notices" """


def crash_out(world: World) -> None:
    """One crash is too many here: recorded, alerted, told to somebody."""
    hook = HOOK.replace("\\", "\\\\").replace('"', '\\"')
    world.settings.write_text(
        f'[crash]\nmax_in_window = 1\n[notify]\nresolved = true\ncommand = ["sh", "-c", "{hook}"]\n'
    )
    script = "[ -e half.txt ] || {\n" + write("half.txt", "half") + "kill -9 $$; }\n" + write("rest.txt", "rest")
    add(world, "crash out", script)
    up_to_the_end(world, "up")


def crash_out_and_retry(world: World) -> None:
    """An operator's retry ends that, which is told, too."""
    crash_out(world)
    retry(world, "crash out")
    up_to_the_end(world, "up2")


def told(world: World) -> list[str]:
    """Each notice arrived, in order; what came twice had the same key. One record and one alert per crash (none, when
    the fault was its keeper's death instead)."""
    found = task_id(world, "crash out")
    if not found:
        return []  # it was never added, which is told elsewhere
    queries = Queries(str(world.home))
    task = queries.task(found)
    crashed = sum(run["outcome"] == "external_kill" for run in task["runs"])
    notices = world.root / "notices"
    keys = notices.read_text().split() if notices.exists() else []
    keys = [key for key in keys if key.startswith("alert-")]  # an ending may be told too: the fault's own
    told = [(int(key.split("-")[1]), key.split("-")[2]) for key in dict.fromkeys(keys)]  # which alert, and what of it
    of_crashes = {row["id"] for row in Evidence(str(world.home)).tables["alerts"] if row["key"].startswith("crash:")}
    kinds = [what for alert, what in told if alert in of_crashes]
    expected = ["raised", "resolved"] * crashed
    if task["state"] == "failed":
        expected = expected[:-1]  # nobody retried it
    wrong = [] if kinds == expected else [f"silent: {crashed} crash(es), but people were told {kinds}"]
    others = {alert: what for alert, what in told if alert not in of_crashes}  # what the fault itself gave rise to
    if task["state"] == "completed" and set(others.values()) - {"resolved"}:
        wrong.append(f"silent: it is over, but nobody was told that of {others}")
    wrong += [f"silent: {row['state']}: notice {row['key']}" for row in queries.view("undelivered")]
    records = len(task["crashes"])
    return wrong if records == crashed else [*wrong, f"twice: {crashed} crash(es) have {records} record(s)"]


def fail_and_tell(world: World) -> None:
    """Two tasks fail on their own, and a third is limited: people are told of the endings, and of the alert."""
    hook = HOOK.replace("$HOLDFAST_NOTICE_KEY", "$HOLDFAST_NOTICE_KEY $HOLDFAST_NOTICE_TEXT").replace("\\n", "\\0")
    hook = hook.replace("\\", "\\\\").replace('"', '\\"')
    world.settings.write_text(f'[notify]\ngather = "10ms"\ncommand = ["sh", "-c", "{hook}"]\n')
    for prompt in ("fail first", "fail second"):
        add(world, prompt, "echo no >&2; exit 5\n")
    up_to_the_end(world, "up")


def told_endings(world: World) -> list[str]:
    """Each task that failed was told; what came twice had the same key; nothing waits."""
    found = [task_id(world, prompt) for prompt in ("fail first", "fail second")]
    notices = world.root / "notices"
    texts = notices.read_text().split("\0") if notices.exists() else []
    once = {text.partition(" ")[0]: text for text in texts}.values()
    queries = Queries(str(world.home))
    wrong = []
    for task in filter(None, found):
        state = queries.task(task)["state"]
        count = sum(task in text for text in once)
        if state == "failed" and count == 0:
            wrong.append(f"silent: task {task} failed, and nobody was told")
        if count > 1:
            wrong.append(f"twice: task {task} was told in {count} notices")
    return wrong + [f"silent: {row['state']}: notice {row['key']}" for row in queries.view("undelivered")]
