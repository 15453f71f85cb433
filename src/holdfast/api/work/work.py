"""How large a workspace is."""

from __future__ import annotations

import os


def size_of(path: str) -> int:
    """Bytes below a directory, as far as we may look."""
    total = 0
    for folder, _names, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
    return total
