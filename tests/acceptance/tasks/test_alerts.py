"""Alerts reach people: from a crash to the receiver's own records, from outside (R-CRASH-02 to 06, R-CRASH-09)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fleet import Fleet, lives, wait_until
from tests.receivers import Hook, WebReceiver, web_receiver

from holdfast.alerts import http_post

SECRET = "s3cret-that-nobody-may-see"


def configure(fleet: Fleet, hook: Hook, receiver: WebReceiver, **more: str) -> Path:
    """The user's own file; one crash is enough."""
    (fleet.root / "secret").write_text(f"{SECRET}\n")
    values = {
        "command": json.dumps(hook.argv),
        "webhook": json.dumps(receiver.url),
        "secret": json.dumps(f"file:{fleet.root}/secret"),
        "resolved": "true",
        "timeout": '"20s"',
    } | more
    path = fleet.root / "user" / ".config" / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(f"{key} = {value}" for key, value in values.items())
    path.write_text(f"[crash]\nmax_in_window = 1\n[notify]\n{lines}\n")
    return path


def transitions(received: list[Any]) -> list[str]:
    """What was told, with what came again taken once: by its key, as a receiver would."""
    return [json.loads(got.body)["transition"] for got in {got.key: got for got in received}.values()]


def is_sent(fleet: Fleet) -> bool:
    return fleet._queries().view("undelivered") == []  # type: ignore[no-any-return]  # rows


def test_a_crash_reaches_people_though_the_supervisor_dies_between_sending_and_recording(
    fleet: Fleet, tmp_path: Path
) -> None:
    """R-CRASH-04, R-CRASH-06: sent at least once, again only with the same key, in order, signed; a receiver that is
    out of order delays nobody else; one alert per episode; a retry ends it; and no secret is told to anybody."""
    hook = Hook(tmp_path)
    with web_receiver("refuse") as receiver:
        configure(fleet, hook, receiver)
        tried = fleet.cli("alerts", "test", code=1)
        assert "command: accepted" in tried.stdout
        assert "webhook: not accepted (HTTP 503" in tried.stdout
        assert transitions(hook.received) == ["raised"]
        tests_sent = len(hook.received)

        task_id = fleet.queue("echo it broke >&2; kill -SEGV $$")
        dying = fleet.up(env={"HOLDFAST_FAULT": "tx.notice.sent:1:kill"})
        dying.wait(timeout=60)
        assert len(hook.received) == tests_sent + 1, "it was sent, and not recorded"
        receiver.behaviour = "take"
        fleet.up()
        wait_until(lambda: fleet._queries().view("notices") and is_sent(fleet), "everything arrived")

        [alert] = fleet.json("alerts")
        again = [got for got in hook.received if got.key.startswith(f"alert-{alert['id']}-")]
        assert len(again) == 2, "sent again, because nobody knew"
        assert again[0].body == again[1].body
        told = json.loads(again[0].body)["alert"]
        assert (told["level"], told["task"], told["message"]) == ("critical", task_id, alert["message"])
        assert "it broke" in told["details"]["error_text"]
        assert told["details"]["restart"] == f"holdfast retry {task_id}"
        assert all("Holdfast-Signature" in got.headers for got in receiver.received)

        fleet.wait_clean()
        fleet.cli("retry", task_id)  # it crashes again: a new episode
        wait_until(lambda: len(fleet.json("crashes", task_id)) == 2, "it crashed once more")
        wait_until(
            lambda: transitions(hook.received)[1:] == ["raised", "resolved", "raised"] and is_sent(fleet),
            "the first is over, and the second told",
        )
        assert transitions(receiver.received)[-3:] == ["raised", "resolved", "raised"]
        fleet.cli("alerts", "ack", "--all", "--why", "known")
        wait_until(
            lambda: transitions(hook.received)[-1] == "acknowledged" and is_sent(fleet), "the acknowledgement is told"
        )
        said = json.dumps(fleet.events()) + fleet.log() + fleet.cli("doctor", code=None).stdout
        shown = fleet.cli("config", "show").stdout
    assert "alerts from warning on go to a command and an address" in said
    for secret in (SECRET, "t0ken"):
        assert secret not in said
        assert secret not in shown
    assert f'notify.webhook = "http://127.0.0.1:{receiver.port}/…"' in shown


def test_agents_killed_while_nobody_looks_are_counted_once_each(fleet: Fleet) -> None:
    """R-CRASH-01, R-CRASH-02, R-CRASH-04: real kills; the first is found by a supervisor that dies while it records
    it, and again by the next one; the second stops the task (here two are enough), and one alert says so."""
    env = {"HOLDFAST_CRASH_MAX_IN_WINDOW": "2"}
    supervisor = fleet.up(env=env)
    task_id = fleet.queue("echo half > half.txt; exec sleep 1000")

    def kill_agent(number: int) -> None:
        runs = wait_until(
            lambda: [r for r in fleet.show(task_id)["runs"] if (r["number"], r["state"]) == (number, "started")],
            f"run {number} works",
        )
        os.kill(runs[0]["pid"], signal.SIGKILL)
        wait_until(lambda: not lives(runs[0]["pid"]), "its agent is gone")

    fleet.wait_started(task_id)
    fleet.kill_supervisor(supervisor)
    kill_agent(1)
    dying = fleet.up(env={**env, "HOLDFAST_FAULT": "tx.crash.record:1:kill"})
    dying.wait(timeout=60)
    assert fleet.json("crashes") == [], "rolled back with everything else"
    fleet.up(env=env)
    kill_agent(2)
    task = fleet.wait_state(task_id, "failed")
    assert task["failure_reason"] == "crash_loop"
    assert [(c["outcome"], c["recent"], c["restarted"]) for c in task["crashes"]] == [
        ("external_kill", 1, True),
        ("external_kill", 2, False),
    ]
    assert len({crash["workspace"] for crash in task["crashes"]}) == 1
    [alert] = fleet.json("alerts")
    assert (alert["key"], alert["count"]) == (f"crash:task:{task_id}", 1)
    assert alert["details"]["recovered"]["salvage"]


def test_a_repository_cannot_say_who_is_told(fleet: Fleet) -> None:
    """A clone must not run commands or send alerts away: not even a trusted one."""
    (fleet.repo / "holdfast.toml").write_text('[notify]\ncommand = ["touch", "/tmp/pwned"]\n')
    refused = fleet.cli("add", "work", "--", "true", code=2)
    assert "notify.command" in refused.stderr


def test_what_cannot_be_an_address_or_a_secret_is_refused_without_quoting_it(fleet: Fleet, tmp_path: Path) -> None:
    with web_receiver() as receiver:
        path = configure(fleet, Hook(tmp_path), receiver, webhook='"ftp://t0ken"', secret=f'"{SECRET}"')
        wrong = fleet.cli("config", "check", code=2)
        assert "notify.webhook" in wrong.stdout + wrong.stderr
        assert "notify.secret" in wrong.stdout + wrong.stderr
        assert "t0ken" not in wrong.stdout + wrong.stderr
        assert SECRET not in wrong.stdout + wrong.stderr
        path.write_text('[notify]\nwebhook = "env:NO_SUCH_VARIABLE"\n')
        tried = fleet.cli("alerts", "test", code=1)
    assert "names the variable NO_SUCH_VARIABLE" in tried.stdout


def test_an_address_that_everybody_on_the_way_can_read_is_warned_of(fleet: Fleet) -> None:
    """http to another machine, even behind `env:`. The path is not quoted, and this machine's own address is fine."""
    path = fleet.root / "config.toml"
    fleet.env["HOLDFAST_CONFIG"] = str(path)
    warned = "notify.webhook begins with http://"
    for webhook, is_warned in (
        ("http://alerts.example.org/t0ken-of-mine", True),
        ("env:THE_HOOK", True),
        ("https://alerts.example.org/t0ken-of-mine", False),
        ("http://127.0.0.1:8080/hook", False),
        ("http://localhost/hook", False),
        ("env:NOT_THERE", False),
    ):
        path.write_text(f'notify.webhook = "{webhook}"\n')
        env = {"THE_HOOK": "http://alerts.example.org/t0ken-of-mine"}
        said = fleet.cli("config", "check", env=env).stdout
        assert (warned in said) is is_warned, webhook
        assert "t0ken-of-mine" not in said
    path.write_text('notify.webhook = "http://alerts.example.org/t0ken-of-mine"\n')
    assert warned in fleet.cli("doctor", code=None).stdout


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x", "FILE:///etc/passwd", ""])
def test_the_helper_opens_nothing_but_web_addresses(address: str) -> None:
    """Settings refuse such addresses already; the program that opens them does not rely on that (F15)."""
    order = {"url": address, "headers": {}, "body": "{}", "timeout": 5}
    ran = subprocess.run(
        [sys.executable, "-I", "-S", http_post.__file__],
        input=json.dumps(order).encode(),
        capture_output=True,
        check=True,
    )
    assert json.loads(ran.stdout) == {
        "error": "the address begins neither with http:// nor with https://, so nothing was opened or sent"
    }
