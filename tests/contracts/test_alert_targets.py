"""What every way to reach people must do: one suite for command, webhook and messengers (holdfast/alerts/port.py)."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fleet import lives, wait_until
from tests.receivers import FLOOD, Hook, Received, WebReceiver, make_certificate, web_receiver

from holdfast import config
from holdfast.alerts.command import KEPT, CommandTarget, OutputTail
from holdfast.alerts.messenger import MessengerTarget, messenger_name, secret_parts
from holdfast.alerts.port import LONGEST_SUMMARY, AlertTarget, SendResult
from holdfast.alerts.webhook import WebhookTarget, parse_retry_after
from holdfast.core.model import Level
from holdfast.core.tasks.alerts import LONGEST_WAIT, AlertChange, Transition, delivery_body
from holdfast.processes.children import Children
from holdfast.processes.helpers import HelperRunner
from holdfast.wiring.alerts import target_of

SECRET = "s3cret-of-the-receiver"
PATIENT, IMPATIENT = 20.0, 0.4
ALERT = {
    "id": 3,
    "key": "crash:task:x",
    "level": "critical",
    "task": "x",
    "at": 1.0,
    "message": 'Täsk x is stopped.\nIt said: "\'$(no)"',
    "remedy": "Retry.",
    "details": {"error_text": "…"},
}
NOTICE = AlertChange(
    id=1,
    key="alert-3-raised-1",
    alert_key="crash:task:x",
    transition=Transition.RAISED,
    level=Level.CRITICAL,
    body=json.dumps(delivery_body("alert-3-raised-1", Transition.RAISED, ALERT, 2.0), ensure_ascii=False),
)


class Bench:
    """One adapter with its receiver. `behave` is said in words that both understand."""

    def __init__(self, receiver: Hook | WebReceiver, *, by_messenger: bool = False) -> None:
        self.receiver = receiver
        self.by_messenger = by_messenger

    def target(self, timeout: float) -> AlertTarget:
        runner = HelperRunner(Children())
        if isinstance(self.receiver, Hook):
            return CommandTarget(self.receiver.argv, {"PATH": os.environ["PATH"], "TOKEN": SECRET}, runner, timeout)
        if self.by_messenger:
            return MessengerTarget("json-1", self.receiver.messenger_url, dict(os.environ), runner, timeout)
        return WebhookTarget(self.receiver.url, SECRET, {}, runner, timeout, lambda: 1_700_000_000.0, "holdfast/test")

    def behave(self, how: str) -> None:
        if isinstance(self.receiver, Hook):
            self.receiver.behave(how)
        else:
            self.receiver.behaviour = how

    def send(self, timeout: float = PATIENT) -> SendResult:
        return asyncio.run(self.target(timeout).send(NOTICE))

    @property
    def received(self) -> list[Received]:
        return self.receiver.received


@pytest.fixture(params=["command", "webhook", "messenger"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "command":
        yield Bench(Hook(tmp_path))
    else:
        with web_receiver() as receiver:
            yield Bench(receiver, by_messenger=request.param == "messenger")


class TestEveryTarget:
    """R-CRASH-05, R-CRASH-06: how an alert reaches people."""

    def test_a_notice_arrives_whole_and_twice_the_same(self, bench: Bench) -> None:
        """What was sent again has the same key and the same body, byte by byte."""
        answers = [bench.send(), bench.send()]
        assert [answer.ok for answer in answers] == [True, True]
        assert [received.key for received in bench.received] == [NOTICE.key] * 2
        first, second = [received.body for received in bench.received]
        assert first == second
        if not bench.by_messenger:
            assert first == NOTICE.body.encode()

    def test_a_refusal_is_told_briefly_and_without_secrets(self, bench: Bench) -> None:
        bench.behave("refuse")
        answer = bench.send()
        assert not answer.ok
        assert ("503" if bench.by_messenger else "out of order") in answer.told
        assert "\n" not in answer.told
        assert SECRET not in answer.told
        assert "t0ken" not in answer.told

    def test_however_much_it_says_the_answer_is_short(self, bench: Bench) -> None:
        bench.behave("flood")
        answer = bench.send()
        assert not answer.ok
        assert len(answer.told) <= LONGEST_SUMMARY < FLOOD

    @pytest.mark.parametrize("how", ["hang", "close"])
    def test_one_that_hangs_or_dies_is_a_failure_in_bounded_time(self, bench: Bench, how: str) -> None:
        bench.behave(how)
        answer = bench.send(IMPATIENT if how == "hang" else PATIENT)
        assert not answer.ok
        assert answer.told
        bench.behave("take")
        assert bench.send().ok, "and the next one is not its victim"

    def test_cancelled_it_leaves_nothing_behind(self, bench: Bench) -> None:
        """The supervisor stops: the fixture that looks for processes would find one."""
        bench.behave("hang")

        async def begin_and_cancel() -> None:
            sending = asyncio.create_task(bench.target(PATIENT).send(NOTICE))
            while not bench.received:  # noqa: ASYNC110 - a fact of another process
                await asyncio.sleep(0.01)
            sending.cancel()
            await asyncio.wait([sending])
            assert sending.cancelled()

        asyncio.run(begin_and_cancel())

    def test_where_nobody_is_there_it_says_so(self, bench: Bench) -> None:
        if isinstance(bench.receiver, Hook):
            target: AlertTarget = CommandTarget(["/no/such/program"], {}, HelperRunner(Children()), PATIENT)
        else:
            free = "http://127.0.0.1:1/hook/t0ken"  # nobody listens on port 1
            target = WebhookTarget(free, None, {}, HelperRunner(Children()), PATIENT, lambda: 0.0, "t")
            if bench.by_messenger:
                free = free.replace("http", "json")
                target = MessengerTarget("json-1", free, {}, HelperRunner(Children()), PATIENT)
        answer = asyncio.run(target.send(NOTICE))
        assert not answer.ok
        assert answer.told
        assert "t0ken" not in answer.told


class TestCommand:
    def test_what_it_leaves_in_the_background_ends_with_it(self, tmp_path: Path) -> None:
        hook = Hook(tmp_path, "daemon")
        assert Bench(hook).send().ok
        pid = int((hook.folder / "pid").read_text())
        wait_until(lambda: not lives(pid), "its daemon is gone")

    def test_the_main_words_are_variables(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        argv = ["/bin/sh", "-c", f'env | grep -a "^HOLDFAST_[NAT]" | sort > {out}']
        assert asyncio.run(CommandTarget(argv, dict(os.environ), HelperRunner(Children()), PATIENT).send(NOTICE)).ok
        said = out.read_text()
        for line in ("HOLDFAST_NOTICE_KEY=alert-3-raised-1", "HOLDFAST_ALERT_LEVEL=critical", "HOLDFAST_TASK_ID=x"):
            assert line in said

    def test_a_message_that_no_variable_can_hold_arrives_all_the_same(self, tmp_path: Path) -> None:
        hook = Hook(tmp_path)
        body = json.dumps(delivery_body("k", Transition.RAISED, {**ALERT, "message": "a\0b\ud800"}, 2.0))
        target = CommandTarget(hook.argv, dict(os.environ), HelperRunner(Children()), PATIENT)
        assert asyncio.run(target.send(replace(NOTICE, body=body))).ok

    def test_the_last_lines_of_a_key_that_it_printed_are_not_told(self) -> None:
        key = "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBg\\nAASCBKcwggSjAgEA\\n-----END PRIVATE KEY-----\\n"
        argv = ["/bin/sh", "-c", f"printf -- '{key}'; exit 1"]
        answer = asyncio.run(CommandTarget(argv, dict(os.environ), HelperRunner(Children()), PATIENT).send(NOTICE))
        assert "PRIVATE KEY" in answer.told
        assert "AASCBKcwggSjAgEA" not in answer.told

    def test_one_that_got_away_and_prints_for_ever_keeps_nobody(self) -> None:
        async def hear_out() -> str:
            tail = OutputTail()
            endless = await asyncio.create_subprocess_exec("yes", stdout=tail.fd)
            try:
                return tail.close()
            finally:
                await endless.wait()  # of SIGPIPE: nobody reads any more

        assert len(asyncio.run(asyncio.wait_for(hear_out(), PATIENT))) <= KEPT


class TestMessenger:
    def send(self, url: str, notice: AlertChange = NOTICE, **env: str) -> SendResult:
        target = MessengerTarget("m", url, {"PATH": os.environ["PATH"], **env}, HelperRunner(Children()), PATIENT)
        return asyncio.run(target.send(notice))

    def test_by_https_the_certificate_is_checked(self, tmp_path: Path) -> None:
        """A receiver that cannot prove its name gets nothing."""
        certificate = make_certificate(tmp_path)
        with web_receiver(certificate=certificate) as receiver:
            refused = self.send(receiver.messenger_url)
            assert not refused.ok
            assert receiver.received == []
            assert "t0ken" not in refused.told
            assert self.send(receiver.messenger_url, SSL_CERT_FILE=str(certificate)).ok
            [got] = receiver.received
        said = json.loads(got.body)
        assert (said["title"], said["type"]) == ("Holdfast: needs you (critical)", "failure")
        assert said["message"].startswith("Täsk x is stopped.")
        assert "Retry." in said["message"]

    def test_an_agents_words_call_nobody(self) -> None:
        alert = {**ALERT, "message": "@everyone <!channel> \x1b[2J"}
        body = json.dumps(delivery_body("k", Transition.RAISED, alert, 2.0))
        with web_receiver() as receiver:
            assert self.send(receiver.messenger_url, replace(NOTICE, body=body)).ok
            message = json.loads(receiver.received[0].body)["message"]
        assert "@everyone" not in message
        assert "<!channel" not in message
        assert "\x1b" not in message

    def test_an_address_that_apprise_does_not_know_is_told_without_it(self) -> None:
        answer = self.send("nosuch://user:s3cret-t0ken@host/path")
        assert not answer.ok
        assert "does not know" in answer.told
        assert "t0ken" not in answer.told

    def test_no_part_of_an_address_is_in_a_name_or_an_answer(self) -> None:
        url = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#alerts"
        assert messenger_name(url) == messenger_name(url)
        assert re.fullmatch(r"slack-[0-9a-f]{6}", messenger_name(url))
        assert messenger_name("env:SLACK") == "env:SLACK"
        target = MessengerTarget("m", url, {}, HelperRunner(Children()), 1)
        told = target._clean(f"no {url} and TIiajkdnlazkcOXrIdevi7FQ of T1JJ3T3L2, #alerts")
        assert not any(part in told for part in secret_parts(url)), told


class TestWebhook:
    def test_no_part_of_the_address_that_may_be_a_token_is_repeated(self) -> None:
        """Receivers like to name the path that they do not know."""
        target = WebhookTarget("https://h/s/T0KEN678?x=s3cret", SECRET, {}, HelperRunner(Children()), 1, float, "t")
        for said in ("no /s/T0KEN678 here", "T0KEN678 is unknown", "x=s3cret", f"bad {SECRET}"):
            told = target._answer({"status": 404, "body": said, "retry_after": ""}).told
            assert not any(word in told for word in ("T0KEN678", "s3cret", SECRET)), told

    @pytest.mark.parametrize(
        "held", ["http://[bad", "http://user:pw@host/", "http://host:x/", "ftp://host", "http://h/\udcff"]
    )
    def test_a_place_that_holds_no_address_is_told_without_it(self, held: str) -> None:
        settings = config.load_valid_values().with_values({"notify.webhook": "env:PLACE"})
        target = target_of("webhook", settings, HelperRunner(Children()), {"PLACE": held})
        assert target is not None
        answer = asyncio.run(target.send(NOTICE))
        assert not answer.ok
        assert answer.told.startswith("notify.webhook names ")
        assert held not in answer.told

    def test_the_signature_is_what_the_manual_says(self) -> None:
        """The receiver's side is the snippet of docs/howto/alerts.md itself."""
        page = (Path(__file__).parents[2] / "docs" / "howto" / "alerts.md").read_text()
        found = re.search(r"test_alert_targets.py runs this -->\n```python\n(.*?)```", page, re.DOTALL)
        assert found is not None
        said: dict[str, Callable[..., bool]] = {}
        exec(found.group(1), said)
        check = said["is_from_holdfast"]
        with web_receiver() as receiver:
            assert Bench(receiver).send().ok
        [got] = receiver.received
        assert check(SECRET, got.headers, got.body, float("inf"))
        assert not check("another", got.headers, got.body, float("inf"))
        assert not check(SECRET, got.headers, got.body + b" ", float("inf"))
        later = {**got.headers, "Holdfast-Timestamp": "1700000001"}
        assert not check(SECRET, later, got.body, float("inf")), "the time stamp is signed, too"
        assert not check(SECRET, got.headers, got.body), "and it is old"
        assert (got.headers["Idempotency-Key"], got.headers["Content-Type"]) == (NOTICE.key, "application/json")

    def test_a_redirect_is_not_followed(self) -> None:
        with web_receiver("redirect") as receiver:
            answer = Bench(receiver).send()
        assert not answer.ok
        assert "redirects are not followed" in answer.told
        assert [got.path for got in receiver.received] == ["/hook/t0ken"]

    def test_one_byte_now_and_then_is_no_answer(self) -> None:
        with web_receiver("drip") as receiver:
            answer = Bench(receiver).send(IMPATIENT)
        assert not answer.ok
        assert "no complete answer within 0.4 s" in answer.told

    def test_it_is_heard_how_long_to_stay_away(self) -> None:
        with web_receiver("refuse") as receiver:
            receiver.retry_after = "7"
            assert Bench(receiver).send().retry_after == 7.0

    @pytest.mark.parametrize(
        ("word", "seconds"),
        [
            ("", None),
            ("soon", None),
            ("-5", None),
            ("0", 0.0),
            ("120", 120.0),
            ("9" * 400, LONGEST_WAIT),
            ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
            ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
            ("Tue, 14 Nov 2999 22:00:00 GMT", LONGEST_WAIT),
        ],
    )
    def test_retry_after_in_every_way_it_is_said(self, word: str, seconds: float | None) -> None:
        assert parse_retry_after(word, 1_700_000_000.0) == seconds
