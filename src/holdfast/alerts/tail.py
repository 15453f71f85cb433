"""The end of what a helper prints, however much that is: through a pipe that is always drained."""

from __future__ import annotations

import asyncio
import contextlib
import os

KEPT = 4096
PIECE = 65536
AT_MOST = 16  # more than a pipe holds: one who left its group and prints for ever must not keep us here


class Tail:
    """Made, used and closed in a running event loop. `fd` is what the helper writes to."""

    def __init__(self) -> None:
        self._end, self.fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.fd, True)  # its own end: a helper does not expect to be refused
        self._kept = b""
        asyncio.get_running_loop().add_reader(self._end, self._drain)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._kept = (self._kept + os.read(self._end, PIECE))[-KEPT:]

    def close(self) -> str:
        """All that was written by now; whoever still holds the other end writes to nobody."""
        asyncio.get_running_loop().remove_reader(self._end)
        os.close(self.fd)
        try:
            for _ in range(AT_MOST):
                self._kept = (self._kept + os.read(self._end, PIECE))[-KEPT:]
        except BlockingIOError:
            pass
        finally:
            os.close(self._end)
        return self._kept.decode(errors="replace")
