"""A command of the user's as receiver: the notice as JSON on its standard input, the main words as variables.

It runs as a helper: in a group of its own, with a deadline, ended with all that it started. Exit code 0 is success.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence

from holdfast.alerts.port import LATE, LONGEST_TOLD, Answer, Runner
from holdfast.base.ids import new_id
from holdfast.base.text import clean, one_line
from holdfast.base.units import show_duration
from holdfast.core.tasks.alerts import Notice
from holdfast.secrets.redact import redacted

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


class CommandTarget:
    name = "command"

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], run: Runner, timeout: float) -> None:
        self._argv = list(argv)
        self._env = env
        self._run = run
        self._timeout = timeout

    async def send(self, notice: Notice) -> Answer:
        tail = Tail()
        said = ""
        try:
            code, _out, err = await self._run(
                self._argv,
                cwd="/",
                env={**self._env, **variables(notice)},
                timeout=self._timeout,
                stdin=notice.body.encode(),
                output=tail.fd,
                mark=new_id(),
            )
        except OSError as error:
            return Answer(ok=False, told=f"`{self._argv[0]}` could not be started: {error.strerror}")
        finally:
            said = tail.close()
        if code == 0:
            return Answer(ok=True, told="exit code 0")
        return Answer(ok=False, told=one_line(f"{_how(code, err, self._timeout)}{_last(said)}", LONGEST_TOLD))


def variables(notice: Notice) -> dict[str, str]:
    """For scripts that do not want to read JSON."""
    alert = json.loads(notice.body)["alert"]
    return {
        "HOLDFAST_NOTICE_KEY": notice.key,
        "HOLDFAST_NOTICE_TRANSITION": str(notice.transition),
        "HOLDFAST_ALERT_ID": str(alert["id"]),
        "HOLDFAST_ALERT_LEVEL": str(notice.level),
        "HOLDFAST_ALERT_MESSAGE": _plain(str(alert["message"])[:4000]),
        "HOLDFAST_TASK_ID": str(alert["task"] or ""),
    }


def _plain(text: str) -> str:
    """What a variable can hold, and a script may print: others' words drive no terminal. The JSON has all of it."""
    return clean(text.encode(errors="replace").decode().replace("\0", "�"))


def _how(code: int, err: bytes, timeout: float) -> str:
    if code == 124 and err.startswith(LATE):
        return f"it took longer than {show_duration(timeout)} and was ended"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _last(said: str) -> str:
    lines = redacted(said).strip().splitlines()[-3:]  # first: the last lines of a key do not look like one
    return f"; it said: {' / '.join(lines)}" if lines else ""
