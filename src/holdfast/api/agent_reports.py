"""Reports of an agent about its own run. `holdfast agent …` writes two files in the run's channel directory.

No store is opened, so the command starts fast. Any program can write the same lines with a shell:
docs/howto/agent-reports.md.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping

from holdfast.base import faults
from holdfast.base.errors import Unavailable, UsageError
from holdfast.base.text import one_line

MOST_MESSAGE = 900  # characters; a report of four-byte characters still fits into its 4 KiB
_FLAGS = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class ReportWriter:
    """A writer of reports for the run that the environment variables name."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._channel = environment.get("HOLDFAST_CHANNEL", "")
        self._token = environment.get("HOLDFAST_RUN_TOKEN", "")
        if not self._channel or not self._token:
            raise UsageError(
                "`holdfast agent` is for agents that Holdfast runs: it finds its run by HOLDFAST_CHANNEL and "
                "HOLDFAST_RUN_TOKEN, which are not set here."
            )

    def heartbeat(self) -> None:
        path = os.path.join(self._channel, "heartbeat")
        try:
            faults.effect("channel.heartbeat")
            os.close(os.open(path, os.O_WRONLY | _FLAGS, 0o600))
            os.utime(path, follow_symlinks=False)
        except OSError as error:
            raise _unreachable(path, error) from error

    def report(self, kind: str, message: str = "", percent: float | None = None) -> None:
        said: dict[str, object] = {
            "token": self._token,
            "report": kind,
            "message": one_line(message.encode(errors="replace").decode(), MOST_MESSAGE),
        }
        if percent is not None:
            said["percent"] = percent
        self._append(json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode())

    def _append(self, line: bytes) -> None:
        """Append the line with one write, so that reports of several writers do not mix.

        The write starts with a newline, so that a torn line before it does not spoil this one.
        """
        path = os.path.join(self._channel, "reports")
        whole = b"\n" + line + b"\n"
        try:
            faults.effect("channel.report")
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | _FLAGS, 0o600)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise OSError(0, "it is not a plain file")
                if os.write(fd, whole) != len(whole):
                    raise OSError(0, "it was written only in part")
            finally:
                os.close(fd)
        except OSError as error:
            raise _unreachable(path, error) from error


def _unreachable(path: str, error: OSError) -> Unavailable:
    return Unavailable(f"The report was not made: {path}: {error.strerror}. Nothing else changed; try again.")
