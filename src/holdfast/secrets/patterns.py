"""The patterns of secrets that are known by their form: keys of the usual providers, tokens, key blocks, logins in
addresses.

Pure. A pattern is tried only on a text that has one of its anchors. A search for a few letters costs next to nothing,
and nearly no text has an anchor. Patterns never match across a quotation mark, so a redacted line of JSON stays valid.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

_PEM = r"(?: BLOCK)?-----"
# The characters of such a block, and hyphens. Line ends as JSON writes them are included, but never half of an escaped
# quotation mark.
_INSIDE = r"[\w+/=\s:,.;()]++|\\[^\"]"
_ALONE = r"(?<![A-Za-z0-9])"  # the start of a word; `_BEGINS` also allows it after a line end as JSON writes it
_BEGINS = rf"(?:{_ALONE}|(?<=\\[nrt]))"
_SHAPES: tuple[tuple[str, tuple[str, ...], str], ...] = (  # (its name, anchors, pattern; group `v`: only that part)
    (
        "a private key",
        ("PRIVATE KEY",),
        rf"-----BEGIN [A-Z0-9 ]{{0,40}}PRIVATE KEY{_PEM}"
        rf"(?P<v>(?:{_INSIDE}|-(?!----END [A-Z0-9 ]{{0,40}}PRIVATE KEY))++)",
    ),
    (
        "an AWS key",
        ("AKIA", "ASIA", "ABIA", "ACCA"),
        r"(?<![A-Za-z0-9])A(?:KIA|SIA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])",
    ),
    (
        "an AWS secret",
        ("ecret", "ECRET"),
        r"(?i:aws_?(?:session_?)?secret_?(?:access_?)?key)[\"'\\\s:=]{1,8}(?P<v>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])",
    ),
    ("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{30,255}"),
    ("a GitHub token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,255}"),
    (
        "a GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-"),
        r"(?<![A-Za-z0-9])gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat)-[A-Za-z0-9_.-]{20,255}",
    ),
    ("a Slack token", ("xox", "xapp-"), r"(?<![A-Za-z0-9])(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,255}"),
    ("a Slack address", ("hooks.slack.com/",), r"hooks\.slack\.com/(?P<v>[\w/+-]{20,255})"),
    ("a Discord address", ("/api/webhooks/",), r"/api/webhooks/(?P<v>\d{15,22}/[\w-]{40,100})"),
    # Keys of OpenAI, Anthropic, OpenRouter, DeepSeek and others. They always have a digit, unlike words that begin so.
    ("an API key", ("sk-",), r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]{0,64}[0-9])[A-Za-z0-9_-]{20,255}"),
    ("a Stripe key", ("k_live_", "k_test_"), r"(?<![A-Za-z0-9])[rsp]k_(?:live|test)_[A-Za-z0-9]{16,255}"),
    ("a Google key", ("AIza",), r"(?<![A-Za-z0-9])AIza[A-Za-z0-9_-]{35}"),
    ("a Google token", ("ya29.", "GOCSPX-"), r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,512}"),
    ("a Hugging Face token", ("hf_",), r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,255}"),
    ("an npm token", ("npm_",), r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36,255}"),
    ("a PyPI token", ("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{40,512}"),
    ("a SendGrid key", ("SG.",), r"(?<![A-Za-z0-9])SG\.[\w-]{16,64}\.[\w-]{16,128}"),
    ("an API key", ("gsk_", "xai-", "pplx-"), r"(?<![A-Za-z0-9])(?:gsk_|xai-|pplx-)[A-Za-z0-9]{32,255}"),
    ("an API key", ("r8_", "lin_api_"), r"(?<![A-Za-z0-9])(?:r8_|lin_api_)[A-Za-z0-9]{30,255}"),
    ("a DigitalOcean token", ("_v1_",), r"(?<![A-Za-z0-9])do[opr]_v1_[a-f0-9]{64}"),
    ("a Docker token", ("dckr_",), r"dckr_(?:pat|oat)_[\w-]{20,255}"),
    ("a Vault token", ("hvs.", "hvb."), r"(?<![A-Za-z0-9])hv[sb]\.[\w-]{24,512}"),
    ("an age key", ("AGE-SECRET-KEY-1",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,70}"),
    (
        "a JWT",
        ("eyJ",),
        # Match from the start of the word, so that every letter is examined once: agents choose how many letters there
        # are.
        r"(?<![\w-])(?:(?!(?<![A-Za-z0-9])eyJ)[\w-])*+"
        r"(?P<v>eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{4,}+)",
    ),
    (
        "a password",
        ("://",),
        r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>\\]{0,256}:"
        r"(?P<v>(?!\$|\[redacted|\*{3}|<)[^\s/@\"'<>\\]{1,256})@",
    ),
    (
        "an Authorization header",
        ("uthorization", "UTHORIZATION"),
        r"(?i:authorization)[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}(?i:bearer|basic|token|bot)\s{1,4}"
        r"(?P<v>[A-Za-z0-9._~+/=-]{8,8192})",
    ),
    (
        "an API key",
        ("-api-key", "-Api-Key", "-API-Key", "-API-KEY"),
        r"(?i:x-(?:goog-)?api-key)[\"'\\]{0,4}\s{0,4}[:=]\s{0,4}[\"'\\]{0,4}(?P<v>[A-Za-z0-9._~+/=-]{8,512})",
    ),
)
OPENS_BLOCK = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
CLOSES_BLOCK = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
IN_BLOCK = rf"(?:{_INSIDE}|-(?!----END ))*+"  # the lines between them


class SecretPattern:  # not a NamedTuple: creating that class would take longer than everything else in here
    def __init__(self, what: str, anchors: tuple[str, ...], text: str) -> None:
        self.what = what
        self.anchors = anchors
        self.text = text.replace(_ALONE, _BEGINS)

    def replace_in(self, text: str, word: Callable[[str], str]) -> str:
        return compile_pattern(self.text).sub(lambda found: _without(found, word(self.what)), text)


BLOCKS, *_OTHERS = (SecretPattern(*row) for row in _SHAPES)
ANCHORS = tuple((anchor, shape) for shape in _OTHERS for anchor in shape.anchors)


@cache
def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern when it is needed. Most commands need none, and compiling all takes longer than the start of a
    command."""
    return re.compile(text)


def _without(found: re.Match[str], word: str) -> str:
    if "v" not in found.re.groupindex or found.start("v") < 0:
        return word
    start, end = found.start("v") - found.start(), found.end("v") - found.start()
    return found.group()[:start] + word + found.group()[end:]
