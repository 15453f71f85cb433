"""`holdfast.Client` from outside: its page, killed scripts, two clients at once, errors, several tasks."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from tests.fleet import Fleet, wait_until

import holdfast
from holdfast import Client, Conflict, HoldfastError, NotFound, PartlyDone, Task, WaitTimeout

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "howto" / "python.md"
AGENT = """agent = "command"

[command]
argv = ["sh", "-c", "echo 'old pond' > haiku.txt && echo done"]
"""


@pytest.fixture
def client(fleet: Fleet) -> Iterator[Client]:
    with fleet.as_its_user():
        yield Client(fleet.home)


def python(fleet: Fleet, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=fleet.repo,
        env=fleet.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_page_runs_as_it_stands(fleet: Fleet) -> None:
    """Issue 20, item 5: the blocks of docs/howto/python.md, one after the other, as in a notebook."""
    settings = fleet.root / "user" / ".config" / "holdfast"
    settings.mkdir(parents=True)
    (settings / "config.toml").write_text(AGENT)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    process = python(fleet, "\n".join(blocks))
    told, _ = process.communicate(timeout=240)
    fleet.cli("down")
    assert process.returncode == 0, told
    assert "completed | " in told
    assert "work passed ['haiku.txt']\ngate: test -s haiku.txt" in told
    assert "is in main now (fast-forward)" in told
    assert "3 are completed" in told
    assert "task.completed" in told
    assert "raw done" in told
    assert "is cancelled already" in told
    assert "completed after 2 runs" in told
    assert "2 cancelled; 1 refused:" in told
    assert (fleet.repo / "haiku.txt").read_text() == "old pond\n"


def test_events_async_follows_and_lets_others_run(fleet: Fleet, client: Client) -> None:
    """Issue 20, item 5: two loops follow two tasks in one event loop; each sees its own task to its end, in order."""
    go = fleet.root / "go"
    wait = ["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done"]
    tasks = [client.add(f"work {number}", command=wait, repo=fleet.repo) for number in (1, 2)]

    async def follow(task: str, begun: asyncio.Event) -> list[holdfast.Event]:
        seen = []
        async for event in client.events_async(task=task, follow=True):
            seen.append(event)
            if event.kind == "run.started":
                begun.set()
            if event.kind == "task.completed":
                break
        return seen

    async def story() -> list[list[holdfast.Event]]:
        begun = [asyncio.Event() for _ in tasks]
        loops = [asyncio.create_task(follow(task.id, event)) for task, event in zip(tasks, begun, strict=True)]
        await asyncio.gather(*(event.wait() for event in begun))
        assert not any(loop.done() for loop in loops)
        go.touch()
        async with asyncio.timeout(120):
            return await asyncio.gather(*loops)

    fleet.up("--agents", 2)
    for task, seen in zip(tasks, asyncio.run(story()), strict=True):
        assert {event.task for event in seen} == {task.id}
        assert [event.seq for event in seen] == sorted({event.seq for event in seen})
        assert seen[0].kind == "task.queued"
        assert seen == list(client.events(task=task.id))[: len(seen)]


def test_events_async_without_follow_ends(fleet: Fleet, client: Client) -> None:
    task = client.add("work", command=["true"], repo=fleet.repo)

    async def read(after: int) -> list[holdfast.Event]:
        return [event async for event in client.events_async(after=after, task=task.id)]

    seen = asyncio.run(read(0))
    assert [event.kind for event in seen] == ["task.queued"]
    assert asyncio.run(read(seen[-1].seq)) == []


def test_a_killed_script_stops_nothing(fleet: Fleet, client: Client) -> None:
    """The supervisor that the script started, and its task, continue; another client waits for the same task."""
    go = fleet.root / "go"
    script = f"until [ -e {go} ]; do sleep 0.05; done; echo hi > made.txt"
    process = python(fleet, f"from holdfast import Client; Client().run('work', command=['sh', '-c', {script!r}])")
    wait_until(
        lambda: fleet.supervisor_pid() and [run for task in client.tasks() for run in client.runs(task.id)], "a run"
    )
    process.kill()
    process.communicate()
    (task,) = client.tasks(states="running")
    with pytest.raises(WaitTimeout, match="1 of 1 task"):
        client.wait(task.id, timeout=0.1)
    go.touch()
    (ended,) = client.wait(task.id)
    assert ended.ok
    assert ended.runs == 1
    assert client.diff(task.id, stat=True).startswith(" made.txt")
    fleet.cli("down")


def test_two_clients_at_once(fleet: Fleet, client: Client) -> None:
    """Two threads add, wait and cancel; each task is there once, and only one of the two cancels is carried out."""
    fleet.up("--agents", "4")
    found: list[Task] = []
    answers: list[str] = []
    held = client.add("hold", command=["sleep", "60"], repo=fleet.repo)

    def work(number: int) -> None:
        own = Client(fleet.home)
        ids = [own.add(f"task {number}.{part}", command=["true"], repo=fleet.repo).id for part in range(2)]
        found.extend(own.wait(*ids))
        try:
            answers.append(own.cancel(held.id).state)
        except Conflict as error:
            answers.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(task.prompt for task in found) == ["task 0.0", "task 0.1", "task 1.0", "task 1.1"]
    assert {task.state for task in found} == {"completed"}
    assert "cancelled" in answers
    assert client.task(held.id).state == "cancelled"
    seen = [event.seq for event in client.events()]
    assert seen == [event["seq"] for event in fleet.events()][: len(seen)]  # workspaces are still being removed


def test_one_call_for_several_tasks(fleet: Fleet, client: Client) -> None:
    """A list of ids gives a list of tasks. What some tasks refuse is told at the end, and the others are done."""
    fleet.up("--agents", "2")
    works = [client.add("hold", command=["sleep", "60"], repo=fleet.repo).id for _ in range(2)]
    waits = [client.add("wait", command=["true"], repo=fleet.repo, delay=3600).id for _ in range(2)]
    below = client.add("below", command=["true"], repo=fleet.repo, parent=waits[0], delay=3600).id
    wait_until(lambda: len(client.tasks(states="running")) == 2, "two tasks run")
    assert [task.state for task in client.pause(works)] == ["paused", "paused"]
    ended = client.cancel([*works, waits[0], below, waits[0][:6]])
    assert [task.id for task in ended] == [*works, waits[0], below]
    assert {task.state for task in ended} == {"cancelled"}
    with pytest.raises(PartlyDone) as caught:
        client.cancel((works[0], waits[1]), why="one is over already")
    assert [task.id for task in caught.value.done] == [waits[1]]
    assert isinstance(caught.value.refused[works[0]], Conflict)
    assert "1 of 2 tasks was refused, the others are done." in str(caught.value)
    assert client.retry([]) == []
    with pytest.raises(NotFound):
        client.retry([works[0], "nosuch"])
    assert client.task(works[0]).state == "cancelled"  # an unknown id is known before anything is done
    assert {task.id for task in client.wait(works, waits)} == {*works, *waits}


def test_tell_a_task_what_to_do_next(fleet: Fleet, client: Client) -> None:
    """`send`, `retry(append=…)` and `set` do what the commands do."""
    work = ["sh", "-c", 'cat "$HOLDFAST_PROMPT_FILE" >> said.txt; echo >> said.txt']
    task = client.run("begin", command=work, repo=fleet.repo)
    assert task.ok, task.reason
    sent = client.send(task.id, "now the second line")
    assert sent.state in ("queued", "running", "completed")
    (ended,) = client.wait([task.id])
    assert (ended.ok, ended.runs) == (True, 2)
    fleet.cli("down")
    waiting = client.add("later", command=["false"], repo=fleet.repo, delay=3600, labels={"old": "1"})
    changed = client.set(waiting.id, priority=7, timeout=90, labels={"old": "", "area": "docs"})
    assert (changed.priority, changed.labels) == (7, {"area": "docs"})
    assert fleet.shown(waiting.id)["timeout"] == 90
    client.cancel(waiting.id)
    again = client.retry(waiting.id, append="try harder", priority=1)
    assert (again.state, again.priority) == ("queued", 1)
    assert [message["text"] for message in fleet.shown(waiting.id)["messages"]] == ["try harder"]
    client.pause(waiting.id)
    assert client.resume(waiting.id, append="and again", max_resumes=9).state == "queued"
    assert fleet.shown(waiting.id)["max_resumes"] == 9


def test_approve_a_stage(fleet: Fleet, client: Client) -> None:
    file = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    file.parent.mkdir(parents=True)
    stage = '[[workflow.two.stage]]\nname = "{}"\nprompt = "x"\ncommand = ["true"]\n'
    file.write_text(stage.format("plan") + "approval = true\n" + stage.format("build"))
    task = client.run("build it", workflow="two", repo=fleet.repo)
    assert (task.state, task.pause_reason) == ("paused", "approval")
    assert client.approve(task.id).state in ("queued", "running", "completed")
    (ended,) = client.wait(task.id)
    assert ended.ok, ended.reason
    with pytest.raises(Conflict):
        client.approve(task.id)
    fleet.cli("down")


def test_values_are_those_of_the_command_line(fleet: Fleet, client: Client) -> None:
    """A field of `Task` has the name and the value of `ps --json` and `show --json`."""
    added = client.add("look", command=["true"], repo=fleet.repo, labels={"team": "web"}, timeout=60)
    (row,) = fleet.json("ps")
    (listed,) = client.tasks(labels={"team": "web"}, agent="command", repo=fleet.repo, states=["queued"])
    assert listed == added == client.task(added.id[:6])
    for field in fields(Task):
        assert getattr(listed, field.name) == row[field.name], field.name
    assert fleet.shown(added.id)["timeout"] == 60
    assert client.tasks(labels={"team": "db"}) == []
    assert client.tasks(states="failed") == []


MISTAKES = {
    "client.task('nosuch')": (NotFound, "Task not found: nosuch. `holdfast ps --all` lists every task."),
    "client.task(queued)": (holdfast.UsageError, "An id is a text such as `task.id`, not a Task."),
    "client.cancel([queued])": (holdfast.UsageError, "An id is a text such as `task.id`, not a Task."),
    "client.wait([queued])": (holdfast.UsageError, "An id is a text such as `task.id`, not a Task."),
    "client.wait(queued)": (holdfast.UsageError, "An id is a text such as `task.id`, not a Task."),
    "client.resume([queued.id])": (PartlyDone, "1 of 1 tasks was refused: Task"),
    "client.add()": (holdfast.UsageError, "The prompt is empty."),
    "client.add('x', command=['true'], timout=3)": (holdfast.UsageError, "There is no option 'timout'."),
    "client.add('x', agent='cluade')": (holdfast.UsageError, "Did you mean 'claude'?"),
    "client.add('x', repo='/')": (holdfast.UsageError, "git"),
    "client.tasks(states='done')": (holdfast.UsageError, "There is no state 'done'."),
    "client.wait()": (holdfast.UsageError, "client.wait(task.id)"),
    "client.retry(queued.id)": (Conflict, "only a failed or cancelled task can be retried"),
    "client.resume(queued.id)": (Conflict, "not paused"),
    "client.set(queued.id)": (holdfast.UsageError, "Say what to change."),
    "client.set(queued.id, prioriy=3)": (holdfast.UsageError, "There is no change 'prioriy'."),
    "client.set(queued.id, tries=0)": (holdfast.UsageError, "tries takes a number from 1"),
    "client.send(queued.id, '')": (holdfast.UsageError, "empty"),
    "client.approve(queued.id)": (Conflict, "approv"),
    "client.merge(queued.id)": (Conflict, "its branch may still change"),
    "client.logs(queued.id)": (NotFound, "has no run yet"),
    "list(client.events(task='nosuch'))": (NotFound, "Task not found"),
    "Client('/proc/nowhere').add('x', command=['true'])": (holdfast.Unavailable, "/proc/nowhere"),
}  # fmt: skip


@pytest.mark.parametrize("call", MISTAKES)
def test_errors_are_for_people(fleet: Fleet, client: Client, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One public class, one line with the next command, and no frame from the inside of Holdfast but of client/."""
    monkeypatch.chdir(fleet.repo)
    queued = client.add("wait", command=["true"])
    kind, text = MISTAKES[call]
    with pytest.raises(HoldfastError) as caught:
        eval(call, {"client": client, "Client": Client, "queued": queued})
    assert type(caught.value) is kind
    assert text in str(caught.value)
    assert "`" in str(caught.value) or "client." in str(caught.value)
    places = {str(entry.path) for entry in caught.traceback if "holdfast/" in str(entry.path)}
    assert {Path(place).parent.name for place in places} <= {"client", "tasks"}  # tasks: this file


def test_an_agent_may_not_act_on_other_tasks(fleet: Fleet, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a run, the client refuses what the command line refuses."""
    other = client.add("other", command=["true"], repo=fleet.repo)
    monkeypatch.setenv("HOLDFAST_TASK_ID", "t1")
    monkeypatch.setenv("HOLDFAST_RUN_DIR", f"{fleet.home}/runs/r1")
    for act in (client.cancel, client.merge, client.approve, client.retry, client.set):
        with pytest.raises(holdfast.Refused, match="a person"):
            act(other.id)
    with pytest.raises(holdfast.Refused, match="a person"):
        client.send([other.id], "do it")
    assert client.task(other.id).state == "queued"


def test_importing_holdfast_imports_nothing(fleet: Fleet) -> None:
    code = (
        "import sys, holdfast; print([name for name in sys.modules if name.startswith('holdfast.')], dir(holdfast)[:1])"
    )
    assert python(fleet, code).communicate()[0] == "[] ['Client']\n"
