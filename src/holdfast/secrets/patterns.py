"""The patterns of secrets that are known by their form: keys of the usual providers, tokens, key blocks, logins in
addresses.

Pure. A pattern is tried only where one of its anchors (a few fixed letters) is. A search for anchors costs next to
nothing, and nearly no text has one. Patterns never match across a quotation mark, so a redacted line of JSON stays
valid. No pattern has possessive quantifiers or atomic groups: `re` of Python 3.11.0 to 3.11.4 matches them wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

PRIVATE_KEY = "a private key"
_KEY_NAME = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
OPENS_BLOCK = rf"-----BEGIN {_KEY_NAME}"
CLOSES_BLOCK = rf"-----END {_KEY_NAME}"
# The first place that cannot be inside a block: a character that no block has, or the line that closes it.
_ENDS_BLOCK = rf"[^\w+/=\s:,.;()\\-]|{CLOSES_BLOCK}"

_WORD = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"  # the start of a word, even after a line end as JSON writes it
_IS = r"[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}"  # between a name and its value
_NEW = r"(?!\$|\[redacted|\*{3}|<)"  # the value is not a variable, and not redacted already
_HAS_DIGIT = r"(?=[A-Za-z_.~+/=-]{0,64}[0-9])"

# (its name, anchors, letters before the anchor, pattern; group `v`: only that part is secret). A pattern whose number
# of letters is None may start anywhere before its anchor, so the whole text is searched.
_Row = tuple[str, tuple[str, ...], int | None, str]
_PROVIDERS: tuple[_Row, ...] = (
    ("an AWS key", ("AKIA", "ASIA", "ABIA", "ACCA"), 0, _WORD + r"A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    ("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), 0, _WORD + r"gh[pousr]_[A-Za-z0-9]{30,255}"),
    ("a GitHub token", ("github_pat_",), 0, r"github_pat_[A-Za-z0-9_]{22,255}"),
    (
        "a GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-"),
        0,
        _WORD + r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_.-]{20,255}",
    ),
    ("a Slack token", ("xox", "xapp-"), 0, _WORD + r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,255}"),
    ("a Slack address", ("hooks.slack.com/",), 0, r"hooks\.slack\.com/(?P<v>[\w/+-]{20,255})"),
    ("a Discord address", ("/api/webhooks/",), 0, r"/api/webhooks/(?P<v>\d{15,22}/[\w-]{40,100})"),
    # Keys of OpenAI, Anthropic, OpenRouter, DeepSeek and others. They always have a digit, unlike words that begin so.
    ("an API key", ("sk-",), 0, _WORD + r"sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,255}"),
    ("a Stripe key", ("k_live_", "k_test_"), 1, _WORD + r"[rsp]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("a Google key", ("AIza",), 0, _WORD + r"AIza[A-Za-z0-9_-]{35}"),
    ("a Google token", ("ya29.", "GOCSPX-"), 0, r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,512}"),
    ("a Hugging Face token", ("hf_",), 0, _WORD + r"hf_[A-Za-z0-9]{30,255}"),
    ("an npm token", ("npm_",), 0, _WORD + r"npm_[A-Za-z0-9]{36,255}"),
    ("a PyPI token", ("pypi-AgE",), 0, r"pypi-AgE[A-Za-z0-9_-]{40,512}"),
    ("a SendGrid key", ("SG.",), 0, _WORD + r"SG\.[\w-]{16,64}\.[\w-]{16,128}"),
    ("an API key", ("gsk_", "xai-", "pplx-"), 0, _WORD + r"(?:gsk_|xai-|pplx-)[A-Za-z0-9]{32,255}"),
    ("an API key", ("r8_", "lin_api_"), 0, _WORD + r"(?:r8_|lin_api_)[A-Za-z0-9]{30,255}"),
    ("a DigitalOcean token", ("_v1_",), 3, _WORD + r"do[opr]_v1_[a-f0-9]{64}"),
    ("a Docker token", ("dckr_",), 0, r"dckr_(?:pat|oat)_[\w-]{20,255}"),
    ("a Vault token", ("hvs.", "hvb."), 0, _WORD + r"hv[sb]\.[\w-]{24,512}"),
    ("an age key", ("AGE-SECRET-KEY-1",), 0, r"AGE-SECRET-KEY-1[0-9A-Z]{50,70}"),
    ("a Databricks token", ("dapi",), 0, _WORD + r"dapi[a-f0-9]{32}(?:-\d{1,2})?(?![A-Za-z0-9])"),
    ("an Atlassian token", ("ATATT3", "ATCTT3"), 0, _WORD + r"AT[AC]TT3[A-Za-z0-9_=-]{20,512}"),
    ("an Atlassian token", ("ATBB",), 0, _WORD + r"ATBB[A-Za-z0-9]{24,64}(?![A-Za-z0-9])"),
    ("a Shopify token", ("shp",), 0, _WORD + r"shp(?:at|ca|pa|ss|ua)_[A-Fa-f0-9]{32}(?![A-Za-z0-9])"),
    ("a Twilio key", ("SK",), 0, _WORD + r"SK[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("a Telegram token", (":AA",), None, _WORD + r"\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ("an Azure key", ("AccountKey=", "AccessKey="), 0, r"Acc(?:ount|ess)Key=(?P<v>[A-Za-z0-9+/]{40,128}={0,2})"),
)
_IN_ADDRESSES: tuple[_Row, ...] = (
    ("a password", ("://",), 0, rf"://[^\s/:@\"'<>\\]{{0,256}}:(?P<v>{_NEW}[^\s/@\"'<>\\]{{1,256}})@"),
    (
        "a token",
        ("://",),
        0,
        r"(?<=http|ttps)://(?P<v>(?=[^\s/:@]{0,255}\d)(?=[^\s/:@]{0,255}[A-Za-z])[\w.~%+=-]{16,256})"
        r"(?::[^\s/@\"'<>\\]{0,256})?@",
    ),
)
# Names in front of values. Their letters may be capitals, so the whole text is searched, once per kind of name.
_BY_NAME: tuple[_Row, ...] = (
    (
        "an AWS secret",
        ("ecret", "ECRET"),
        None,
        r"(?i:aws_?(?:session_?)?secret_?(?:access_?)?key)[\"'\\\s:=]{1,8}(?P<v>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    (
        "an AWS token",
        ("ession", "ESSION"),
        None,
        r"(?i:aws_?session_?token)[\"'\\\s:=]{1,8}(?P<v>[A-Za-z0-9/+=]{32,4096})",
    ),
    (
        "an Authorization header",
        ("uthorization", "UTHORIZATION"),
        None,
        rf"(?i:authorization){_IS}(?i:bearer|basic|token|bot)\s{{1,4}}(?P<v>[A-Za-z0-9._~+/=-]{{8,8192}})",
    ),
    ("a token", ("earer", "EARER"), None, rf"(?i:bearer)\s{{1,4}}(?P<v>{_HAS_DIGIT}[A-Za-z0-9._~+/=-]{{20,8192}})"),
    (
        "an API key",
        ("-api-key", "-Api-Key", "-API-Key", "-API-KEY"),
        None,
        rf"(?i:x-(?:goog-)?api-key){_IS}(?P<v>[A-Za-z0-9._~+/=-]{{8,512}})",
    ),
    (
        "a cookie",
        ("ookie:", "OOKIE:", 'ookie"', "ookie'"),
        None,
        rf"(?i:set-cookie){_IS}[^\s=;\"'\\]{{1,256}}=(?P<v>{_NEW}[^\s;,\"'\\]{{8,4096}})",
    ),
    (
        "a cookie",
        ("ookie: ", "OOKIE: "),
        None,
        rf"(?<!-)\b(?i:cookie): (?P<v>{_NEW}[^\r\n\"'\\=]{{1,256}}=[^\r\n\"'\\]{{8,4096}})",
    ),
    (
        "a registry token",
        ("_authToken", "_auth", "_password"),
        0,
        rf"_(?:authToken|auth|password)\s?=\s?[\"'\\]{{0,4}}(?P<v>{_NEW}[A-Za-z0-9._~+/=-]{{8,8192}})(?![\w(\[.])",
    ),
    (
        "a password",
        ("login",),
        0,
        rf"login\s{{1,16}}[^\s\"'\\]{{1,256}}\s{{1,16}}password\s{{1,16}}(?P<v>{_NEW}[^\s\"'\\]{{1,256}})",
    ),
    # A literal of letters and digits in quotation marks; without them also a capital or another sign, because names
    # and calls in source code look much the same.
    (
        "a password",
        ("ass", "ASS", "pwd", "PWD"),
        None,
        r"(?i:passw(?:or)?d|passphrase|pwd|[_.-]pass)(?:[\"'\\]{0,4}\s?[:=]\s?\\{0,3}[\"'](?=[^\s\"'\\]{0,127}[0-9])"
        r"(?=[^\s\"'\\]{0,127}[A-Za-z])|=(?=[^\s\"'\\]{0,127}[0-9])(?=[^\s\"'\\]{0,127}[a-z])"
        r"(?=[^\s\"'\\]{0,127}[A-Z!@#%^&*+~-]))"
        rf"(?P<v>{_NEW}[\w!@#%^&*+=./~:?-]{{8,128}})(?![\w!@#%^&*+=/~:?(\[{{$-])",
    ),
)


class SecretPattern:  # not a NamedTuple: creating that class would take longer than everything else in here
    def __init__(self, what: str, anchors: tuple[str, ...], before: int | None, text: str) -> None:
        self.what = what
        self.anchors = anchors
        self._before = before
        self.text = text

    def find_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of secrets of this form."""
        pattern = compile_pattern(self.text)
        group = "v" if "v" in pattern.groupindex else 0
        if self._before is None:
            yield from (match.span(group) for match in pattern.finditer(text))
            return
        for anchor in self.anchors:
            at, done = text.find(anchor), 0
            while at >= 0:
                start = at - self._before
                found = pattern.match(text, start) if start >= done else None
                if found is not None:
                    yield found.span(group)
                    done = found.end()
                at = text.find(anchor, max(done, at + 1))


_PATTERNS = tuple(SecretPattern(*row) for row in (*_PROVIDERS, *_IN_ADDRESSES, *_BY_NAME))
_ANCHORS = tuple((anchor, pattern) for pattern in _PATTERNS for anchor in pattern.anchors)
_JWT = r"(?<![\w-])[\w-]{11,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}"


def find_shapes(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of secrets that are known by their form, and what they are."""
    for start, end in find_web_tokens(text) if ".eyJ" in text else ():
        yield start, end, "a JWT"
    for pattern in dict.fromkeys([pattern for anchor, pattern in _ANCHORS if anchor in text]):
        for start, end in pattern.find_in(text):
            yield start, end, pattern.what


def find_web_tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of JWTs.

    The pattern starts at the start of a word, so that every letter is examined once, however long an agent's output is.
    """
    for match in compile_pattern(_JWT).finditer(text):
        start = text.find("eyJ", match.start())
        if text.find(".", match.start()) - start >= 11:
            yield start, match.end()


def find_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of private keys, without the lines that open and close them."""
    opening = compile_pattern(OPENS_BLOCK).search(text)
    while opening is not None:
        end = find_block_end(text, opening.end())
        if end > opening.end():
            yield opening.end(), end
        opening = compile_pattern(OPENS_BLOCK).search(text, end)


def find_block_end(text: str, start: int = 0) -> int:
    """Return the end of the text that can belong to a block. The end is never inside an escaped character of JSON."""
    stop = compile_pattern(_ENDS_BLOCK).search(text, start)
    end = len(text) if stop is None else stop.start()
    backslashes = end - start - len(text[start:end].rstrip("\\"))
    return end - backslashes % 2


@cache
def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern when it is needed. Most commands need no pattern, and compiling all patterns takes longer than
    the start of a command."""
    return re.compile(text)
