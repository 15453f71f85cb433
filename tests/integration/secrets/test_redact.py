"""Secrets in words: which are found, in which disguise, and what is left alone."""

from __future__ import annotations

import base64
import json
import os
import random
import string
import subprocess
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.agents.common.environment import filter_environment
from holdfast.agents.port import Stream
from holdfast.api.tasks.log_window import LogWindow
from holdfast.api.tasks.models import OpenRun
from holdfast.api.tasks.transcript import Transcript
from holdfast.base.errors import WorkspaceProblem
from holdfast.config.known_secrets import redact_agent_text
from holdfast.core.workflows.workflow import Progress, progress_from
from holdfast.secrets import redact
from holdfast.secrets.redact import RedactedStream, Redactor, is_secret_name, secrets_in
from holdfast.store.sqlite.rows import encode_progress
from holdfast.supervisor.log import log_error

SECRET = 'Zk9x"7\\qLmN0pQr+stu/vwx=='
KEY_BLOCK = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAAB3NzaC1yc2E\n-----END OPENSSH PRIVATE KEY-----"
# Put together here, so that no scanner takes this file for a leak.
SHAPES = {
    "OpenAI": "sk-" + "proj-" + "Ab3dEf6hIjKlMnOpQrStUv",
    "Anthropic": "sk-" + "ant-api03-" + "Ab3dEf6hIjKlMnOpQrStUv",
    "GitHub": "gh" + "p_" + "Ab3dEf6hIjKlMnOpQrStUvWxYz0123456789",
    "GitHub, fine-grained": "github" + "_pat_" + "Ab3dEf6hIjKlMnOpQrStUv_WxYz",
    "GitLab": "gl" + "pat-" + "Ab3dEf6hIjKlMnOpQrSt",
    "AWS": "AK" + "IA" + "ABCDEFGHIJKLMNOP",
    "Slack": "xo" + "xb-" + "123456789012-abcdefghijkl",
    "Stripe": "sk" + "_live_" + "Ab3dEf6hIjKlMnOpQr",
    "Google": "AI" + "za" + "SyA1234567890abcdefghijklmnopqrstuv",
    "npm": "np" + "m_" + "Ab3dEf6hIjKlMnOpQrStUvWxYz0123456789",
    "Hugging Face": "h" + "f_" + "AbcdefghijklmnopqrstuvwxyzABCDEF",
    "JWT": "ey" + "JhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + "dBjftJeZ4CVPmB92K27uhbUJU1p1r",
}


def taught(**secrets: str) -> Redactor:
    redactor = Redactor()
    redactor.learn(secrets)
    return redactor


DISGUISES = {
    "as it is": SECRET,
    "JSON": json.dumps(SECRET),
    "JSON in JSON": json.dumps(json.dumps(SECRET)),
    "an address": quote(SECRET, safe=""),
    "hexadecimal": SECRET.encode().hex(),
    "base64": base64.b64encode(SECRET.encode()).decode(),
    "base64 behind one letter": base64.b64encode(b"u" + SECRET.encode()).decode(),
    "base64 of a login": base64.b64encode(b"me:" + SECRET.encode() + b"\n").decode(),
    "base64 for addresses": base64.urlsafe_b64encode(b"me" + SECRET.encode()).decode(),
    "cut off behind": f"the key {SECRET[:14]}…",
    "cut off before": f"{SECRET[6:]} was refused",
    "cut by the end of the text": f"it said {SECRET[:-3]}",
    "broken over two lines": f"{SECRET[:12]}\n{SECRET[12:]}",
}


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_known_value_is_found_however_it_is_written(disguise: str) -> None:
    text = f"before {DISGUISES[disguise]} after" if "cut" not in disguise else DISGUISES[disguise]
    clean = taught(MY_TOKEN=SECRET).redact(text)
    assert "[redacted: MY_TOKEN]" in clean
    letters = [text[at : at + 10] for at in range(len(text) - 10) if text[at : at + 10] in DISGUISES[disguise]]
    kept = [piece for piece in letters if piece in clean and piece.isalnum()]
    assert kept == [], f"{text!r} became {clean!r}"


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    "around",
    ["{}", '{{"key": "{}"}}', "key={}, more", "https://x:{}@host/", "'{}'\n", "made-{}", "a_{}.x", '"a\\\\n{}"'],
)
def test_a_known_shape_is_found_whoever_holds_it(kind: str, around: str) -> None:
    clean = Redactor().redact(around.format(SHAPES[kind]))
    assert SHAPES[kind] not in clean
    assert "[redacted: " in clean
    if around.startswith("{{"):
        assert set(json.loads(clean)) == {"key"}, "JSON stays JSON"


def test_blocks_logins_and_headers_are_found() -> None:
    redactor = Redactor()
    for text in (KEY_BLOCK, json.dumps({"key": KEY_BLOCK}), KEY_BLOCK[:-20]):
        clean = redactor.redact(f"x {text} y")
        assert "b3BlbnNzaC1rZXk" not in clean
        assert "AAAAB3NzaC1yc2E" not in clean
    assert json.loads(redactor.redact(json.dumps({"key": KEY_BLOCK, "other": 1})))["other"] == 1
    assert redactor.redact("git clone https://tess:hunter2@host/x") == (
        "git clone https://tess:[redacted: a password]@host/x"
    )
    assert "c2VjcmV0OnNlY3JldA" not in redactor.redact("authorization: Basic c2VjcmV0OnNlY3JldA==")
    assert "0123456789abcdef" not in redactor.redact('"x-api-key": "0123456789abcdef"')


@pytest.mark.parametrize(
    "text",
    [
        "Task 8xk2p completed: the command exited with code 0.",
        "see https://example.org:8080/path?query=1 and git@github.com:x/y.git",
        "sk-learn-and-other-words-that-begin-so stay",
        "https://user:$PASSWORD@host and https://user:***@host",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8, task-0123456789-abcdefghij-klmno",
        "the tokens: 12345, its secret: none",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert taught(SHORT="abc", NOT_FOUND="1234567890abcdefghijk").redact(text) == text


def test_which_variables_are_taken_for_secrets() -> None:
    names = ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "UV_PUBLISH_TOKEN", "MY_KEY_2")
    assert [name for name in names if not is_secret_name(name)] == []
    others = ("PATH", "SSH_AUTH_SOCK", "MAX_TOKENS", "KEYBOARD", "XDG_SESSION_TYPE", "LS_COLORS", "TOKENS")
    assert [name for name in others if is_secret_name(name)] == []
    found = secrets_in(
        {
            "API_KEY": "k3y-of-mine",
            "KEY_FILE": "/home/me/.key",
            "AUTH": "true",
            "PROXY": "http://me:hunter22@proxy:1",
            "PROJECT_KEY": "HOLDFAST",
        }
    )
    assert found == {"API_KEY": "k3y-of-mine", "PROXY (password)": "hunter22"}


def test_our_own_patterns_let_no_login_of_a_tool_through() -> None:
    """Found by planting canaries: `UV_*` and `NPM_CONFIG_*` gave agents the tokens that packages are published with."""
    environment = {
        "UV_CACHE_DIR": "/c",
        "UV_PUBLISH_TOKEN": "x",
        "NPM_CONFIG__AUTH": "x",
        "PIP_INDEX_URL": "https://x",
        "PATH": "/bin",
    }
    assert set(filter_environment(environment)) == {"UV_CACHE_DIR", "PIP_INDEX_URL", "PATH"}
    assert "UV_PUBLISH_TOKEN" in filter_environment(environment, ("UV_PUBLISH_TOKEN",)), "what the user names is given"


def test_a_text_in_pieces_hides_what_lies_across_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_redactor", taught(MY_TOKEN=SECRET))
    redact._short.cache_clear()
    chance = random.Random(7)
    text = f"a word {SECRET} another, {KEY_BLOCK} and the end"
    for _case in range(200):
        flow, shown, at = RedactedStream(), "", 0
        while at < len(text):
            length = chance.randrange(1, 9)
            shown += flow.add(text[at : at + length])
            at += length
        shown += flow.end()
        assert shown.startswith("a word [redacted: MY_TOKEN] another, ")
        assert "b3BlbnNzaC1rZXk" not in shown
        assert shown.endswith(" and the end")
    lines = RedactedStream()
    assert "b3BlbnNzaC1rZXk" not in "".join(lines.line(line) for line in KEY_BLOCK.splitlines())
    assert lines.line("an ordinary line") == "an ordinary line"


def test_an_agents_pieces_of_one_text_are_told_without_the_secret_across_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemini tells an answer piece by piece: a terminal would put the halves together again."""
    secret = "Zk9x7qLmN0pQrstuvwx"
    monkeypatch.setattr(redact, "_redactor", taught(MY_TOKEN=secret))
    redact._short.cache_clear()
    pieces = ("The key is ", secret[:7], secret[7:13], secret[13:] + " as", " you see")
    events = [{"type": "message", "role": "assistant", "content": piece, "delta": True} for piece in pieces]
    (tmp_path / "out.log").write_text("".join(json.dumps(event) + "\n" for event in events))
    run: OpenRun = {"id": "r", "number": 1}
    told = "".join(row.get("text", "") for row in Transcript(str(tmp_path), "gemini", run).go_on(final=True))
    assert told == "The key is [redacted: MY_TOKEN] as you see"
    window = LogWindow(str(tmp_path), "gemini", run)
    assert "".join(row.get("text", "") for row in window.newest(final=True).rows) == told
    plain = LogWindow(str(tmp_path), "command", run, errors=False)
    (tmp_path / "out.log").write_text(f"begun {secret}\nand {secret[:10]}")
    piece = plain.newest(final=False)
    assert ([row["text"] for row in piece.rows], piece.begun) == (
        ["begun [redacted: MY_TOKEN]"],
        "and [redacted: MY_TOKEN]",
    )
    assert next(Transcript(str(tmp_path), "gemini", run).rows_of("{", Stream.OUT))["event"] == "raw"


OTHER_BLOCK = KEY_BLOCK.replace("AAAAB3NzaC1yc2E", "QQQQother0key1yc2E")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_key_that_is_known_does_not_hide_that_another_one_is_a_key(line_end: str) -> None:
    """The lines around a block are the same for all: as parts of a known value they were no shape any more."""
    clean = taught(DEPLOY_PRIVATE_KEY=KEY_BLOCK).redact(OTHER_BLOCK.replace("\n", line_end))
    assert "QQQQother0key1yc2E" not in clean


def test_who_shows_output_learns_from_every_supervisor_that_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`top` is opened before the supervisor is started, and stays open over the next one."""
    monkeypatch.setattr(redact, "_redactor", Redactor())
    home = str(tmp_path)
    for number in (1, 2):
        secret = f"of-supervisor-{number}-0123456789"
        assert redact_agent_text(f"it is {secret}", home) == f"it is {secret}"
        with subprocess.Popen(
            ["sh", "-c", "echo; read x"],
            env={"MY_TOKEN": secret, "HOLDFAST_HOME": home, "PATH": os.environ["PATH"]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as supervisor:
            assert supervisor.stdout is not None
            supervisor.stdout.readline()  # it has its environment
            (tmp_path / "new").write_text(str(supervisor.pid))
            (tmp_path / "new").rename(tmp_path / "supervisor.lock")
            assert redact_agent_text(f"it is {secret}", home) == "it is [redacted: MY_TOKEN]"
            supervisor.communicate(b"\n", timeout=60)
    redact._short.cache_clear()


def test_what_the_supervisor_says_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """`up` says it on the user's terminal: a checkpoint that failed names the agent's file."""
    log_error("no checkpoint was saved: ", WorkspaceProblem("'\x1b]0;evil\x07\x1b[2Ja\u202eb' cannot be read"))
    assert capsys.readouterr().err == "holdfast: no checkpoint was saved: 'ab' cannot be read\n"


def test_a_block_is_redacted_once_and_leaves_json_what_it_is() -> None:
    clean = Redactor().redact(KEY_BLOCK)
    assert Redactor().redact(clean) == clean
    quoted = json.dumps({"said": f'the key "{KEY_BLOCK[:-40]}" and "more"'})
    assert "more" in json.loads(Redactor().redact(quoted))["said"]


def test_one_long_value_does_not_push_the_others_out() -> None:
    redactor = taught(MY_TOKEN=SECRET)
    redactor.learn({"BUNDLE_SECRET": "\n".join(f"line {number} of a long file" for number in range(1000))})
    assert redactor.redact(f"it is {SECRET}.") == "it is [redacted: MY_TOKEN]."


def test_a_word_that_a_secret_begins_or_ends_with_stays() -> None:
    redactor = taught(DB_PASSWORD="password123", MY_DSN="postgres://tess:pw@host/database")
    text = "database first; then enter the password\nof postgres"
    assert redactor.redact(text) == text
    assert redactor.redact("it is password12…") == "it is [redacted: DB_PASSWORD]…"


def test_by_what_a_task_finds_its_way_is_not_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often a stage sent back is kept by its name: under another one nobody would count, and it would loop."""
    monkeypatch.setattr(redact, "_redactor", taught(SORT_KEY="review-42", OTHER_KEY="feedback_of_42"))
    redact._short.cache_clear()
    kept = encode_progress(Progress(turns={"review-42": 2}, checks="review-42", feedback="it said review-42"))
    redact._short.cache_clear()
    assert kept is not None
    assert progress_from(json.loads(kept)) == Progress(
        turns={"review-42": 2}, checks="review-42", feedback="it said [redacted: SORT_KEY]"
    )


WALLS = {
    "blocks without an end": "-----BEGIN PRIVATE KEY-----" * 20_000,
    "beginnings of a JWT": "-eyJ" * 125_000,
    "beginnings of a value": f"{SECRET[:8]}\n" * 55_000,
    "ends of a value": f"{SECRET[-8:]}\n" * 55_000,
    "what a value repeats": "a" * 500_000,
}


@pytest.mark.parametrize("wall", WALLS)
def test_an_agent_cannot_make_redaction_slow(wall: str) -> None:
    """Half a megabyte of what is nearly a secret. It took a minute; the supervisor redacts, too."""
    redactor = taught(MY_TOKEN=SECRET, LONG_TOKEN=f"1{'a' * 2000}2")
    began = time.process_time()
    redactor.redact(WALLS[wall])
    assert time.process_time() - began < 5.0


def test_redaction_is_cheap() -> None:
    """Twenty secrets. A busy machine does 18 MB/s, and a line in 14 µs: a slip would cost ten times as much."""
    chance = random.Random(1)
    redactor = taught(**{f"N{n}": "".join(chance.choices(string.ascii_letters, k=40)) for n in range(20)})
    line = "Task 8xk2p completed: the agent exited with code 0 and said nothing else that matters.\n"
    began = time.process_time()
    redactor.redact(line * 11_000)
    assert time.process_time() - began < 1.0, "a megabyte"
    began = time.process_time()
    for _again in range(1000):
        redactor.redact(line)
    assert time.process_time() - began < 0.3, "a thousand lines"
