"""Random ids. An id is random from its first character, so a short prefix identifies it."""

from __future__ import annotations

import os

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 letters; no l, o, 0, 1


def new_id(length: int = 10) -> str:
    """Return a random id, of 50 random bits by default. Among a million tasks, the chance of a collision is one in
    two thousand, and a collision raises an error."""
    return "".join(_ALPHABET[byte & 31] for byte in os.urandom(length))
