"""The tables of redaction: spellings of a known value, shapes, names of variables, and what stays as it is.

Every row that was missing was red before (findings F5 and F15 of the red team). The tables run under this interpreter,
and under the system's own: `re` of Debian's Python 3.11.2 matched possessive quantifiers wrongly, so JWTs leaked.
"""

from __future__ import annotations

import ast
import base64
import html
import json
import os
import random
import subprocess
import sys
import time
import warnings
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]

import pytest

from holdfast.core.health.signs import make_printable
from holdfast.secrets import redact
from holdfast.secrets.redact import RedactedStream, Redactor, is_secret_name, secrets_in

SOURCES = Path(redact.__file__).parents[1]
VALUE = "Zx9-Qv7_Lm3Kp8Tw2Rb5"
BYTES = VALUE.encode()


def _dump(data: bytes, group: int) -> str:
    rows = (data[at : at + 16] for at in range(0, len(data), 16))
    return "".join(f"{16 * n:08x}: {row.hex(' ', group):<40}  {row.decode()}\n" for n, row in enumerate(rows))


SPELLINGS = {
    "colour of grep": "Zx9-\x1b[01;31m\x1b[KQv7\x1b[m\x1b[K_Lm3Kp8Tw2Rb5",
    "colour around every letter": "".join(f"\x1b[3{n % 8}m{letter}\x1b[0m" for n, letter in enumerate(VALUE)),
    "a title of the terminal": f"{VALUE[:5]}\x1b]0;two words\x07{VALUE[5:]}",
    "zero width": "\u200b".join(VALUE),
    "deprecated format characters": "".join(f"{letter}{chr(0x206A + n % 6)}" for n, letter in enumerate(VALUE)),
    "fillers": "\u3164\uffa0".join(VALUE),
    "soft hyphen": "\u00ad".join(VALUE),
    "NUL": "\0".join(VALUE),
    "C1": f"{VALUE[:9]}\x9b{VALUE[9:]}",
    "direction": f"{VALUE[:9]}\u202e{VALUE[9:]}",
    "carriage return": f"{VALUE[:5]}\r{VALUE[5:]}",
    "capitals": VALUE.upper(),
    "hexadecimal in capitals": BYTES.hex().upper(),
    "hexadecimal with spaces": BYTES.hex(" "),
    "hexadecimal with colons": BYTES.hex(":", 2),
    "xxd": _dump(b"MY_API_KEY=" + BYTES, 2),
    "hexdump -C": _dump(b"k " + BYTES, 1).replace(": ", "  "),
    r"\x..": "".join(f"\\x{byte:02x}" for byte in BYTES),
    r"\u....": "".join(f"\\u{byte:04X}" for byte in BYTES),
    r"\U........": "".join(f"\\U{byte:08x}" for byte in BYTES),
    r"\ooo": "".join(f"\\{byte:03o}" for byte in BYTES),
    "percent everywhere": "".join(f"%{byte:02X}" for byte in BYTES),
    "HTML, decimal": "".join(f"&#{byte};" for byte in BYTES),
    "HTML, hexadecimal": "".join(f"&#x{byte:x};" for byte in BYTES),
    "escaped by a shell or Markdown": VALUE.replace("-", "\\-").replace("_", "\\_"),
    "UTF-16": VALUE.encode("utf-16-le").decode(),
    "UTF-16 read as bytes": VALUE.encode("utf-16-be").decode("latin-1"),
    "UTF-16 in base64": base64.b64encode(VALUE.encode("utf-16-le")).decode(),
    "base32": base64.b32encode(b"ab" + BYTES).decode(),
    "base64 in lines": base64.encodebytes(b"q" * 50 + BYTES + b"r" * 20).decode(),
    "base64 in lines, as JSON": json.dumps(base64.encodebytes(b"q" * 50 + BYTES + b"r" * 20).decode()),
    "base64 in an address": base64.b64encode(b"me:" + BYTES).decode().replace("+", "%2B").replace("/", "%2F"),
    "base64 twice": base64.b64encode(base64.b64encode(BYTES)).decode(),
    "base64 twice, of a login": base64.b64encode(b"a: " + base64.b64encode(b"me:" + BYTES)).decode(),
}  # fmt: skip
# Put together here, so that no scanner takes this file for a leak.
_BODY = "Ab3dEf6hIjKlMnOpQrStUvWxYz0123456789"
_HEX = "0123456789abcdef0123456789abcdef"
SHAPES = {
    "JWT": "ey" + "JhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + "dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "Azure": "AccountName=x;Account" + f"Key={_BODY}{_BODY}==;EndpointSuffix=core",
    "AWS session": "aws_session_" + f"token = {_BODY}/{_BODY}",
    "AWS session, variable": "AWS_SESSION_" + f"TOKEN={_BODY}+{_BODY}",
    "Databricks": "da" + f"pi{_HEX}",
    "Telegram": "123456789" + f":AA{_BODY[:33]}",
    "Atlassian": "ATA" + f"TT3{_BODY}",
    "Shopify": "shp" + f"at_{_HEX}",
    "Twilio": "S" + f"K{_HEX}",
    "npm": "//registry.example/:_auth" + f"Token={_BODY}",
    "a cookie that is set": f"Set-Cookie: session={_BODY}; Path=/",
    "cookies": f"Cookie: a=b; session={_BODY}",
    "bare Bearer": f"curl -H 'Bearer {_BODY}'",
    "netrc": f"machine example.org login tess password {_BODY}",
    "password=": f"psql password={_BODY} host=db",
    "password in JSON": f'"password": "{_BODY}"',
    "token as user": f"https://gh" + f"x_{_BODY}@example.org/x/y.git",  # noqa: F541
    "token as user with a word": f"https://{_BODY}:x-oauth-basic@example.org/x/y.git",
    "OpenAI": "sk-" + "proj-" + _BODY,
    "GitHub": "gh" + "p_" + _BODY,
    "SendGrid": "S" + f"G.{_BODY}.{_BODY}",
}
STAYS = (
    "password = get_password2(user)",
    "-    password=self.password1,",
    "+    password = os.environ['DB_PASSWORD_2']",
    "def login(user, password=None, passwd='', pwd=cwd2):",
    "the password=$PASSWORD1 and password=${PASS_2} and password={{ vault.db1 }}",
    "password: changed 3 times; Password reset at 10:30",
    "`pwd`=/home/tess2/src and OLDPWD=/var/lib/x1",
    "https://example.org:8080/path?query=1 and git@github.com:x/y.git and ssh://git@host/x",
    "https://tess@example.org/x/y.git and https://tess.tester@example.org/",
    "the bearer of bad news-and-other-words-that-are-long",
    "cookies are set; cookie: no. Set-Cookie is a header",
    "the login page and the password field",
    "const token = await getToken(); _auth = None; this._password = value",
    "class SKELETON, SKU 12345, dapi, shp, task_0123456789 :AA",
    "eyJ is a prefix, eyJhbGciOiJIUzI1NiJ9 alone is a header",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8 in src/holdfast/secrets/known_values.py",
    "00000010: 6120 6d65 7265 2074 6578 7420 6f66 206f  a mere text of o",
    "\x1b[1mbold\x1b[0m and 👩🏽‍💻 and 100% of a\\b &amp; c",
    "aws_session_token is missing",
)
SECRET_NAMES = (
    "DB_CREDS", "GOOGLE_CREDS_JSON", "DBPASS", "SMTP_PASS", "STRIPE_SK", "DOCKER_AUTH_CONFIG", "SERVICE_ACCOUNT_JSON",
    "GCP_SERVICE_ACCOUNT", "SLACK_WEBHOOK_URL", "WEBHOOK_URL", "CI_JOB_JWT_V2", "CI_JOB_JWT", "SSH_KEY_DATA",
)  # fmt: skip
OTHER_NAMES = (
    "PATH", "SSH_AUTH_SOCK", "MAX_TOKENS", "KEYBOARD", "XDG_SESSION_TYPE", "GIT_AUTHOR_NAME", "XAUTHORITY", "HOOKS_DIR",
    "TASK_ID", "COMPASS_HOME", "KEYMAP", "DISK", "AUTH_URL",
)  # fmt: skip


def taught() -> Redactor:
    redactor = Redactor()
    redactor.learn({"MY_API_KEY": VALUE})
    return redactor


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_known_value_is_found_in_every_spelling(spelling: str) -> None:
    written = SPELLINGS[spelling]
    text = written if written.startswith("0000") else f"before {written} after"
    shown = taught().redact(text)
    assert "[redacted: MY_API_KEY]" in shown
    assert _longest_common(shown, written.removeprefix("0000000")) < 80, "an address or a neighbour may stay"
    assert "Qv7" not in shown
    assert "Lm3Kp8" not in shown
    if not written.startswith("0000"):
        assert shown.startswith("before ")
        assert shown.endswith(" after")


def _longest_common(one: str, other: str) -> int:
    return max((n for n in range(len(other)) for at in range(len(other) - n) if other[at : at + n] in one), default=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_found(shape: str) -> None:
    shown = Redactor().redact(f"it said {SHAPES[shape]}\nand more")
    assert "[redacted: " in shown
    assert not any(body in shown for body in (_BODY[:30], _HEX[:30], "zdWIiOiIxMjM0In0"))
    assert shown.endswith("and more")
    assert Redactor().redact(shown) == shown, "a redacted text stays as it is"


@pytest.mark.parametrize("text", STAYS)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert taught().redact(text) == text


def test_names_of_variables_that_hold_secrets() -> None:
    assert [name for name in SECRET_NAMES if not is_secret_name(name)] == []
    assert [name for name in OTHER_NAMES if is_secret_name(name)] == []
    address = {"SLACK_WEBHOOK_URL": f"https://example.org/services/T0123/{_BODY}", "HOOK_URL": "https://example.org/"}
    assert list(secrets_in(address).values()) == [_BODY]


def test_json_stays_json_whatever_is_found_in_it() -> None:
    for written in (*SPELLINGS.values(), *SHAPES.values()):
        text = json.dumps({"a": f'say "{written}" \\', "b": [written[:9], written[9:]], "c": written})
        assert set(json.loads(taught().redact(text))) == {"a", "b", "c"}


def test_a_coloured_secret_is_found_across_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "_redactor", taught())
    redact._short.cache_clear()
    chance = random.Random(5)
    coloured = [SPELLINGS[name] for name in ("colour of grep", "colour around every letter", "a title of the terminal")]
    for written in coloured:
        text = f"first {written} last"
        for _case in range(100):
            stream, shown, at = RedactedStream(), "", 0
            while at < len(text):
                length = chance.randrange(1, 9)
                shown += stream.add(text[at : at + length])
                at += length
            shown += stream.end()
            assert "[redacted: MY_API_KEY]" in shown
            assert "Qv7" not in shown
            assert shown.endswith(" last")
    redact._short.cache_clear()


def test_a_sign_of_health_has_no_rest_of_an_escape_inside_a_secret() -> None:
    """The escape became a space and `[31m` stayed, so the value was no longer found."""
    assert VALUE in make_printable(SPELLINGS["colour of grep"], 200)


WALLS = (
    "aaaaaaaa\n", "a", "SG.", "sk-", "sk-aaa", "-eyJ", "a.eyJaaaaaaaa.", "://", "http://a1:", "\x1b", "\x1b[m", "\x1b]",
    "-----BEGIN PRIVATE KEY-----", "a\0", "a\u00ad", "\\", "\\u", "a%41", "&#65;", "0000000: 5a 78 \n", "pwd=a",
    "password=a1", "Bearer aaaa", "Cookie: a=", "login a password ", "_auth=aaaaaaaa", VALUE[:8] + "\n",
    VALUE[-8:] + "\n", VALUE,
)  # fmt: skip


@pytest.mark.parametrize("wall", WALLS)
def test_a_megabyte_takes_about_a_second_whatever_it_is(wall: str) -> None:
    """The goal is one second per megabyte. It was 7.4 for the first wall, with values of one beginning."""
    redactor = taught()
    redactor.learn({f"K{n}": f"aaaaaaaa{random.Random(n).randbytes(15).hex()}" for n in range(22)})
    redactor.redact(VALUE)
    text = (wall * (250_000 // len(wall) + 1))[:250_000]
    began = time.process_time()
    redactor.redact(text)
    assert time.process_time() - began < 1.0, "a quarter of a megabyte, on a busy machine"


SIGNS = ("*+", "++", "?+", "}+", "(?>")


def test_no_pattern_is_possessive_or_atomic() -> None:
    """Python before 3.11.5 matches them wrongly with a look-ahead inside (and the product runs there)."""
    found = []
    for path in SOURCES.rglob("*.py"):
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if any(sign in source for sign in SIGNS) else ():
            if any(_is_possessive(text) for text in _texts(node)):
                found.append(f"{path.relative_to(SOURCES)}:{node.lineno}")  # type: ignore[attr-defined]
    assert found == []
    assert _is_possessive(r"a(?:b(?!c))*+"), "the search finds one"


def _texts(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)]
    return []


def _is_possessive(text: str) -> bool:
    if "i++" in text or not any(sign in text for sign in SIGNS):  # a counter of a shell is not a pattern
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = _parser.parse(text)
    except (_parser.error, OverflowError, RecursionError):  # not a pattern
        return False
    return any(name in repr(tree) for name in map(str, (_constants.POSSESSIVE_REPEAT, _constants.ATOMIC_GROUP)))


SYSTEM_PYTHON = "/usr/bin/python3"
IN_THE_SYSTEM = """
import json, sys
if sys.version_info < (3, 11):
    sys.exit(3)
from holdfast.secrets.redact import Redactor
value, texts = json.load(sys.stdin)
redactor = Redactor()
redactor.learn({"MY_API_KEY": value})
json.dump([redactor.redact(text) for text in texts], sys.stdout)
"""


def test_the_systems_own_python_redacts_the_same() -> None:
    if not os.access(SYSTEM_PYTHON, os.X_OK):
        pytest.skip("no python3 of the system")
    block = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"
    texts = [*SPELLINGS.values(), *SHAPES.values(), *STAYS, f"x {block} y", html.escape(block)]
    ran = subprocess.run(
        [SYSTEM_PYTHON, "-I", "-c", f"import sys; sys.path.insert(0, {str(SOURCES.parent)!r})\n{IN_THE_SYSTEM}"],
        input=json.dumps([VALUE, texts]),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if ran.returncode == 3:
        pytest.skip(f"{SYSTEM_PYTHON} is older than 3.11")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [taught().redact(text) for text in texts], sys.version
