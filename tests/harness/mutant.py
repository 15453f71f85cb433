"""Runs `holdfast` with the edits of a mutant: `python tests/harness/mutant.py NAMES FOLDER ARGUMENTS…`.

For commands that a test starts as a new interpreter: under strace, with limits of their own, or from an agent's script.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    names, folder, *words = sys.argv[1:]
    sys.path[0] = str(Path(__file__).resolve().parents[2])  # instead of our own directory: here `tests` is found
    from tests.harness.mutations import Mutation

    Mutation(names, Path(folder) if folder else None).apply()
    from holdfast import __main__

    sys.argv = [__main__.__file__, *words]
    __main__.main()


if __name__ == "__main__":
    main()
