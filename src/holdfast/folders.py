"""Looking into directories that may not be there."""

from __future__ import annotations

import os


def listed(folder: str) -> list[str]:
    """The names in a directory, in order; none where there is no such directory. Any other error is the caller's."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
