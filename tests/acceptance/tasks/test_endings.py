"""People are told of endings: what `notify.on` chooses, once, and many of them in one notice."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import PATIENCE, Fleet, wait_until
from tests.receivers import Hook, make_certificate, web_receiver

SECRET = "sk-ant-api03-" + "A1b2C3d4" * 6


def configure(fleet: Fleet, hook: Hook, lines: str = "") -> None:
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[notify]\ncommand = {json.dumps(hook.argv)}\ntimeout = '20s'\n{lines}\n")


def told(hook: Hook) -> list[dict[str, Any]]:
    """What was told, in order; what came again is taken once, by its key."""
    return [json.loads(got.body) for got in {got.key: got for got in hook.received}.values()]


def endings(hook: Hook) -> list[dict[str, Any]]:
    """Every ending that was told, even by an alert."""
    found: list[dict[str, Any]] = []
    for body in told(hook):
        alert = body["alert"]
        more = alert["details"].get("endings") if body["transition"] == "ended" else None
        found += more or [{"task": alert["task"], "what": "needs-you", "prompt": alert["prompt"]}]
    return found


def words_told(hook: Hook, word: str) -> list[str]:
    return [one["task"] for one in endings(hook) if one["what"] == word]


def test_a_failed_task_is_told_with_its_prompt_reason_and_next_command(fleet: Fleet, tmp_path: Path) -> None:
    """F2: by default failures are told and successes are not. The prompt is hostile and has a secret in it."""
    hook = Hook(tmp_path)
    configure(fleet, hook)
    fleet.up()
    fleet.wait_state(fleet.queue("true"), "completed")
    task = fleet.queue("echo it broke >&2; exit 3", prompt=f"mend\x1b[31m the \x07build {SECRET}\nsecond line")
    fleet.wait_state(task, "failed")
    (body,) = wait_until(lambda: told(hook), "it is told")
    alert = body["alert"]
    assert body["transition"] == "ended"
    assert (alert["task"], alert["level"]) == (task, "warning")
    assert alert["message"].startswith(f"Task {task} failed: ")
    assert "3" in alert["message"]
    assert f"`holdfast retry {task}`" in alert["remedy"]
    assert alert["prompt"].startswith("mend the build ")
    assert SECRET not in json.dumps(body)
    assert fleet.json("alerts", "--all") == [], "a notice is not an alert: nothing is to be acknowledged"
    assert "alerts: 0" not in fleet.cli("ps").stdout


def test_a_hundred_failed_tasks_are_not_a_hundred_messages(fleet: Fleet, tmp_path: Path) -> None:
    """F2: one notice at once, and one a `gather` later, whoever fails meanwhile. Each ending is told once."""
    hook = Hook(tmp_path)
    configure(fleet, hook, "gather = '3s'")
    tasks = {fleet.queue("exit 3", prompt=f"number {number}") for number in range(30)}
    fleet.up("--agents", 4)
    for task in tasks:
        fleet.wait_state(task, "failed")
    wait_until(lambda: sum(_count(body) for body in told(hook)) == 30, "all are told")
    assert len(told(hook)) <= 12, "a notice in three seconds"
    named = [one["task"] for one in endings(hook)]
    assert len(named) == len(set(named))
    assert set(named) <= tasks
    assert told(hook)[-1]["alert"]["details"]["summary"].endswith("failed")


def _count(body: dict[str, Any]) -> int:
    details = body["alert"]["details"]
    return len(details["endings"]) + int(details["more"])


def test_what_is_told_is_chosen_and_taken_over_by_a_running_supervisor(fleet: Fleet, tmp_path: Path) -> None:
    """`notify.on`: completed, cancelled, paused, resumed. Endings from before the choice are not told."""
    hook = Hook(tmp_path)
    configure(fleet, hook, "on = ['cancelled', 'paused', 'resumed']\ngather = '1s'")
    fleet.up()
    fleet.wait_state(fleet.queue("exit 3"), "failed")
    task = fleet.queue("sleep 600")
    fleet.wait_state(task, "running")
    for word, command in (("paused", "pause"), ("resumed", "resume"), ("cancelled", "cancel")):
        fleet.cli(command, task)
        wait_until(partial(words_told, hook, word), f"{word} is told")
    configure(fleet, hook, "on = ['completed']\ngather = '1s'")
    wait_until(lambda: [one for one in fleet.events() if one["kind"] == "config.reloaded"], "the choice is taken over")
    fleet.wait_state(fleet.queue("true"), "completed")
    wait_until(lambda: [one for one in endings(hook) if one["what"] == "completed"], "it is told")
    assert [one["what"] for one in endings(hook)] == ["paused", "resumed", "cancelled", "completed"]
    refused = fleet.cli("config", "check", env={"HOLDFAST_NOTIFY_ON": "failed, done"}, code=2)
    assert "notify.on" in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("options", "script", "settings"),
    [
        (("--timeout", "300ms"), "sleep 600", "[retry]\nmax = 0\n"),
        (("--max-output", "4k"), "yes | head -c 100000; sleep 600", ""),
    ],
)
def test_a_limit_of_holdfast_is_an_alert(
    fleet: Fleet, tmp_path: Path, options: tuple[str, ...], script: str, settings: str
) -> None:
    """F2: a task that fails by a limit, or pauses until a person acts, alerts; once, and not as an ending too."""
    hook = Hook(tmp_path)
    configure(fleet, hook, settings)
    fleet.up()
    task = fleet.add("be limited", *options, command=("sh", "-c", script))
    state = fleet.wait_state(task, "failed", "paused")["state"]
    (alert,) = wait_until(lambda: fleet.json("alerts"), "it is an alert")
    assert alert["task"] == task
    assert alert["level"] == "warning"
    assert alert["message"].startswith(f"Task {task} {state}: ")
    (body,) = wait_until(lambda: told(hook), "it is told")
    assert (body["transition"], body["alert"]["prompt"]) == ("raised", "be limited")
    other = fleet.queue("exit 1", prompt="the next one")
    fleet.wait_state(other, "failed")
    wait_until(lambda: len(told(hook)) == 2, "the next one is told")
    assert [one["task"] for one in endings(hook)] == [task, other], "the first one is told once"


@pytest.mark.parametrize("point", ["tx.notice.together", "tx.notice.see", "notice.send", "notice.answered"])
def test_a_supervisor_that_dies_while_it_tells_endings(fleet: Fleet, tmp_path: Path, point: str) -> None:
    """Nothing silent, nothing twice: every ending arrives, and what comes again has the same key."""
    hook = Hook(tmp_path)
    configure(fleet, hook)
    first = fleet.queue("exit 3")
    dying = fleet.up(env={"HOLDFAST_FAULT": f"{point}:1:kill"})
    assert dying.wait(PATIENCE) != 0
    fleet.up()
    wait_until(lambda: told(hook), "it is told")
    fleet.cli("down")
    assert [one["task"] for one in [body["alert"] for body in told(hook)]] == [first]


def test_many_alerts_of_tasks_are_told_together(fleet: Fleet, tmp_path: Path) -> None:
    """The first three by themselves, the others in one notice; each stays an alert of its own."""
    hook = Hook(tmp_path)
    configure(fleet, hook, "gather = '3s'\n[retry]\nmax = 0")
    tasks = [fleet.queue("sleep 600", timeout=0.2) for _ in range(8)]
    fleet.up("--agents", 8)
    for task in tasks:
        fleet.wait_state(task, "failed")
    assert len(fleet.json("alerts")) == 8
    wait_until(lambda: {one["task"] for one in endings(hook)} == set(tasks), "all are told")
    transitions = [body["transition"] for body in told(hook)]
    assert transitions.count("raised") == 3
    assert 1 <= transitions.count("ended") <= 4
    assert len(endings(hook)) == 8


# -- messengers --------------------------------------------------------------------------------------------------------

TOPIC = "t0ken-of-the-topic"


def test_a_failed_task_reaches_a_messenger_by_https(fleet: Fleet, tmp_path: Path) -> None:
    """`notify.urls` through apprise, to a real https receiver: tested, sent once, and the address is a secret."""
    certificate = make_certificate(tmp_path)
    fleet.env["SSL_CERT_FILE"] = str(certificate)
    with web_receiver(certificate=certificate) as receiver:
        address = receiver.messenger_url.replace("t0ken", TOPIC)
        fleet.env["OTHER_URL"] = address.replace("/hook/", "/other/")
        path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'[notify]\nurls = ["{address}", "env:OTHER_URL"]\ntimeout = "20s"\n')
        tried = fleet.cli("alerts", "test").stdout
        assert tried.count(": accepted (taken by the messenger)") == 2
        assert "env:OTHER_URL: accepted" in tried
        assert [json.loads(got.body)["title"] for got in receiver.received] == ["Holdfast: needs you"] * 2
        receiver.received.clear()
        supervisor = fleet.up()
        task = fleet.queue(f"echo sent to {TOPIC} >&2; exit 3", prompt=f"write to {address}")
        fleet.wait_state(task, "failed")
        wait_until(lambda: len(receiver.received) == 2, "both are told")
        wait_until(lambda: not fleet._queries().view("undelivered"), "that is recorded")
        assert {got.path.split("/")[1] for got in receiver.received} == {"hook", "other"}
        for got in receiver.received:
            said = json.loads(got.body)
            assert said["title"] == "Holdfast: 1 failed"
            assert f"`holdfast retry {task}`" in said["message"]
            assert TOPIC not in said["message"], "what an agent says of the address is redacted"
        fleet.cli("down")
        supervisor.wait(PATIENCE)
    shown = [fleet.cli(*words, code=None) for words in (("config", "show"), ("doctor",), ("alerts", "test"))]
    everything = "".join(done.stdout + done.stderr for done in shown) + json.dumps(fleet.events()) + fleet.log()
    assert TOPIC not in everything
    assert "jsons://…" in shown[0].stdout
    assert "env:OTHER_URL: not accepted" in shown[2].stdout
    assert shown[2].returncode == 1


def test_a_messenger_without_the_extra_is_told_with_the_line_that_installs_it(fleet: Fleet, tmp_path: Path) -> None:
    """The package is optional. An address with a mistake is refused without being quoted."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['apprise'] = None\n")
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'[notify]\nurls = ["ntfy://{TOPIC}"]\n')
    fleet.queue("true")  # `doctor` looks at the targets of a home that exists
    without = {"PYTHONPATH": str(hidden)}
    fleet.may_be_warm = False
    tried = fleet.cli("alerts", "test", env=without, code=1).stdout
    assert "pip install apprise" in tried
    assert "pip install apprise" in fleet.cli("doctor", env=without, code=1).stdout
    assert TOPIC not in tried
    path.write_text(f'[notify]\nurls = ["{TOPIC}"]\n')
    refused = fleet.cli("config", "check", code=2)
    assert "notify.urls" in refused.stdout + refused.stderr
    assert TOPIC not in refused.stdout + refused.stderr


def test_a_messenger_that_nobody_knows_is_a_mistake(fleet: Fleet) -> None:
    """`config check` and `doctor` ask apprise, and name the service that was meant. Neither quotes the address."""
    fleet.queue("true")
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    fleet.env["OTHER_URL"] = f"slack://{TOPIC}"
    path.write_text(f'[notify]\nurls = ["ntyf://{TOPIC}", "env:OTHER_URL", "ntfy://{TOPIC}", "env:NOT_SET"]\n')
    checked, looked = fleet.cli("config", "check", code=2), fleet.cli("doctor", code=1)
    for said in (checked.stdout, looked.stdout):
        assert "notify.urls: apprise knows no service `ntyf://`; did you mean `ntfy://`?" in said
        assert "notify.urls: apprise cannot use the address that begins with `slack://`" in said
        assert said.count("notify.urls: apprise") == 2
        assert TOPIC not in said
    path.write_text(f'[notify]\nurls = ["ntfy://{TOPIC}"]\n')
    assert "No mistakes" in fleet.cli("config", "check").stdout


def test_ntfy_is_reached_by_https(fleet: Fleet, tmp_path: Path) -> None:
    """A named service of apprise, not only its plain JSON: the title, the text and the priority arrive."""
    certificate = make_certificate(tmp_path)
    fleet.env["SSL_CERT_FILE"] = str(certificate)
    with web_receiver(certificate=certificate) as receiver:
        path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'[notify]\nurls = ["ntfys://127.0.0.1:{receiver.port}/{TOPIC}"]\ntimeout = "20s"\n')
        fleet.up()
        task = fleet.queue("exit 3")
        fleet.wait_state(task, "failed")
        wait_until(lambda: receiver.received, "ntfy is told")
        said = json.loads(receiver.received[0].body)
        assert (said["topic"], said["title"]) == (TOPIC, "Holdfast: 1 failed")
        assert f"`holdfast retry {task}`" in said["message"]


def test_a_messenger_that_never_answers_holds_nobody_up(fleet: Fleet, tmp_path: Path) -> None:
    """Tasks run on, and the command is told at once."""
    hook = Hook(tmp_path)
    with web_receiver("hang") as receiver:
        configure(fleet, hook, f"urls = ['{receiver.messenger_url}']")
        fleet.up()
        first = fleet.queue("exit 3")
        fleet.wait_state(first, "failed")
        wait_until(lambda: told(hook), "the command is told")
        wait_until(lambda: receiver.received, "the messenger was asked")
        fleet.wait_state(fleet.queue("true"), "completed")
        [waiting] = fleet._queries().view("undelivered")
        assert waiting["target"].startswith("json-")
        fleet.cli("down")
