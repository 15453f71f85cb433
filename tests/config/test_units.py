"""Durations and sizes: what people write is read, what cannot be meant is refused, and what we write is read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.base.units import (
    LARGEST,
    LONGEST,
    parse_duration,
    parse_size,
    show_duration,
    show_size,
    write_duration,
    write_size,
)


@pytest.mark.parametrize(
    ("word", "size"),
    [
        ("0", 0),
        (0, 0),
        ("0k", 0),
        ("512MiB", 512 * 1024**2),
        ("2G", 2 * 1024**3),
        ("2g", 2 * 1024**3),
        ("1.5GB", 1_500_000_000),
        ("1.5 GB", 1_500_000_000),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("100k", 102_400),
        ("100kB", 100_000),
        ("100 KB", 100_000),
        ("7b", 7),
        ("7 bytes", 7),
        ("0.1k", 102),
        ("1P", 1024**5),
        (f"{LARGEST}B", LARGEST),
        ("0" * 6000 + "1.5k", 1536),
    ],
)
def test_sizes(word: object, size: int) -> None:
    assert parse_size(word) == size


@pytest.mark.parametrize(
    "word",
    [
        "",
        "100",
        100,
        1.5,
        True,
        "k",
        "-1k",
        "1kk",
        "1 k b",
        "1.k",
        ".5k",
        "1e3k",
        "٣k",
        "1m2s",
        None,
        [],
        "1 iB",
        "nan",
        "1K1M",
    ],
)
def test_what_is_no_size(word: object) -> None:
    """A bare number may be bytes or megabytes: nobody guesses."""
    with pytest.raises(ValueError, match="is not a size; write it with a unit"):
        parse_size(word)


@pytest.mark.parametrize("word", [f"{LARGEST + 1}B", "9" * 6000 + "k", "9999999P"])
def test_a_size_beyond_all_disks(word: str) -> None:
    with pytest.raises(ValueError, match="larger than any disk"):
        parse_size(word)


@settings(deadline=None)
@given(st.integers(0, LARGEST))
def test_a_written_size_is_read_back(size: int) -> None:
    assert parse_size(write_size(size)) == size


@settings(deadline=None)
@given(st.integers(0, 2**62))
def test_a_shown_size_is_near_and_short(size: int) -> None:
    shown = show_size(size)
    assert len(shown) <= 11
    assert re.fullmatch(r"\d+ B|\d+(\.\d)? [KMGTP]iB", shown)
    assert abs(parse_size(shown) - size) <= max(size * 0.06, 0)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (-1, "0s"),
        (0.85, "850ms"),
        (59.9, "59s"),
        (60, "1m"),
        (200, "3m 20s"),
        (21600, "6h"),
        (93600, "1d 2h"),
    ],
)
def test_shown_durations(seconds: float, shown: str) -> None:
    assert show_duration(seconds) == shown


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1024**2 - 1, "1 MiB"),
        (20 * 1024**3, "20 GiB"),
    ],
)
def test_shown_sizes(size: int, shown: str) -> None:
    assert show_size(size) == shown


@settings(deadline=None)
@given(st.one_of(st.integers(0, int(LONGEST) * 1000).map(lambda ms: ms / 1000), st.sampled_from([0.25, 90.0, 5400.0])))
def test_a_written_duration_is_read_back(seconds: float) -> None:
    assert parse_duration(write_duration(seconds)) == pytest.approx(seconds, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize(
    ("seconds", "written"), [(0.0, "0s"), (90.0, "1m30s"), (3600.0, "1h"), (0.25, "250ms"), (0.0005, "0.0005s")]
)
def test_written_durations(seconds: float, written: str) -> None:
    assert write_duration(seconds) == written
    assert parse_duration(written) == seconds


@pytest.mark.parametrize("word", ["", "5", 5, "5 m", "m", "-5m", "5m ago", "٥m", "1e3s", True, None, ["5m"], "s5"])
def test_what_is_no_duration(word: object) -> None:
    with pytest.raises(ValueError, match="is not a duration; write it with a unit"):
        parse_duration(word)


@pytest.mark.parametrize("parse", [parse_duration, parse_size])
@settings(deadline=None, max_examples=200)
@given(word=st.one_of(st.text(max_size=30), st.floats(), st.integers()))
def test_anything_else_is_a_short_message(parse: object, word: object) -> None:
    assert callable(parse)
    message = ""
    try:
        assert parse(word) >= 0
    except ValueError as error:
        message = str(error)
    assert len(message) < 130
