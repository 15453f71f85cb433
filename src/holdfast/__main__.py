"""`python -m holdfast` and the `holdfast` command."""

from __future__ import annotations

import sys


def main() -> None:
    from holdfast.interfaces.cli.main import run
    from holdfast.interfaces.cli.streams import settle_in

    settle_in()
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
