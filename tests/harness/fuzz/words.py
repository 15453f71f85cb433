"""What inputs are made of: noise, mutations of what is right, and the likely values of everything.

All of it is drawn from one `random.Random`, so that seed and number of an input bring it back exactly.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

LETTERS = "abcxyz0189 -_=./:%*?~'\"\\$`{}[]()<>|&;!#@^,+\t\n"
ODD_LETTERS = "é日本😀\u202e\u200b\x1b\x07\x7f\x9b\u2028²٣\udce9\udcff￾"  # controls, surrogates, digits that are none
ESCAPES = ("\x1b[31mred\x1b[0m", "\x1b]0;owned\x07", "a\rb", "\x1b[2J", "\u009b31m")
NUMBERS = (
    "1",
    "0",
    "-1",
    "+5",
    " 5",
    "007",
    "1e3",
    "0x10",
    "1_000",
    "٣",
    "²",
    "",
    "nan",
    "inf",
    "4.5",
    "9" * 25,
    "9" * 5000,
)
DURATIONS = (
    "1s",
    "5m",
    "1h30m",
    "250ms",
    "0s",
    "5",
    "soon",
    "-5m",
    "1h30",
    "1.5.2s",
    "٣s",
    "99999999999d",
    "1e9s",
    "1s ",
    "s",
)
REFS = (
    "main",
    "HEAD",
    "HEAD~1",
    "@{-1}",
    "main@{0}",
    "..",
    "^",
    ":/x",
    "--all",
    "main:README.md",
    "refs/heads/main",
    "-x",
    "",
)
LABELS = ("a=b", "a=", "=b", "=", "a", "a=b=c", "é=ü", "a=\x1b[31m")
DEEP = ("[" * 3000, "a." * 3000 + "b = 1", "x = " + "[" * 3000 + "]" * 3000, "x = " + "{a=" * 2000 + "1" + "}" * 2000)

Draw = random.Random


def noise(draw: Draw, most: int = 40) -> str:
    """Text of no kind; now and then very long. No NUL: a command line cannot hold one."""
    if draw.random() < 0.01:
        return draw.choice(["x", "é", "\x1b[", "-", "a b "]) * draw.randrange(1_000, 100_000)
    if draw.random() < 0.1:
        return draw.randbytes(draw.randrange(most)).replace(b"\0", b"").decode(errors="surrogateescape")
    letters = LETTERS + ODD_LETTERS if draw.random() < 0.4 else LETTERS
    return "".join(draw.choice(letters) for _ in range(draw.randrange(most)))


def mutated(draw: Draw, text: str) -> str:
    """The same with a few characters lost, doubled, moved or replaced."""
    letters = list(text)
    for _ in range(draw.randrange(1, 4)):
        place = draw.randrange(len(letters) + 1)
        how = draw.randrange(4)
        if how == 0:
            letters[place:place] = [draw.choice(LETTERS + ODD_LETTERS)]
        elif how == 1:
            del letters[place : place + draw.randrange(1, 4)]
        elif how == 2:
            letters[place : place + 1] = [draw.choice(LETTERS + ODD_LETTERS)]
        else:
            letters[place:place] = letters[: draw.randrange(len(letters) + 1)]
    return "".join(letters)


def either(draw: Draw, good: Sequence[str]) -> str:
    """One of the likely values, a mutation of one, or noise."""
    dice = draw.random()
    if good and dice < 0.6:
        return draw.choice(good)
    if good and dice < 0.85:
        return mutated(draw, draw.choice(good))
    return noise(draw)
