"""Random ids. They are random from the first character on, so that a short prefix is enough to name one."""

from __future__ import annotations

import os

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 letters; no l, o, 0, 1


def new_id(length: int = 10) -> str:
    """Return a random id, of 50 random bits by default. A million tasks collide with a chance of one in two thousand,
    and then fail loudly."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(length))
