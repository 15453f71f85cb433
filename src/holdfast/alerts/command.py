"""A command of the user as a target: the delivery as JSON on its standard input, its main fields as variables.

The command runs as a helper: in its own process group, with a deadline, ended with all of its child processes. Exit
code 0 is
success.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence

from holdfast.alerts.port import LONGEST_SUMMARY, TIMEOUT_PREFIX, AlertRunner, SendResult
from holdfast.base.ids import new_id
from holdfast.base.text import clean_text, one_line
from holdfast.base.units import show_duration
from holdfast.core.tasks.alerts import AlertChange, show_notice
from holdfast.secrets.redact import redact_text

KEPT = 4096
PIECE = 65536
AT_MOST = 16  # more than a pipe holds: a process that left the group and prints for ever must not block us


class OutputTail:
    """A reader of a helper's output that keeps only the end. It always drains the pipe, however long the output is.

    It is created, used and closed in a running event loop. The helper writes to `fd`.
    """

    def __init__(self) -> None:
        self._end, self.fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.fd, True)  # the helper's end: it does not expect EAGAIN
        self._kept = b""
        asyncio.get_running_loop().add_reader(self._end, self._drain)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._kept = (self._kept + os.read(self._end, PIECE))[-KEPT:]

    def close(self) -> str:
        """Close the pipe and return the end of the output. A process that still has the other end gets SIGPIPE."""
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
    """A target that runs a command for each delivery."""

    name = "command"

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], run: AlertRunner, timeout: float) -> None:
        self._argv = list(argv)
        self._env = env
        self._run = run
        self._timeout = timeout

    async def send(self, notice: AlertChange) -> SendResult:
        tail = OutputTail()
        said = ""
        try:
            code, _out, err = await self._run(
                self._argv,
                cwd="/",
                env={**self._env, **delivery_variables(notice)},
                timeout=self._timeout,
                stdin=notice.body.encode(),
                output=tail.fd,
                mark=new_id(),
            )
        except OSError as error:
            return SendResult(ok=False, told=f"`{self._argv[0]}` could not be started: {error.strerror}")
        finally:
            said = tail.close()
        if code == 0:
            return SendResult(ok=True, told="exit code 0")
        return SendResult(ok=False, told=one_line(f"{_how(code, err, self._timeout)}{_last(said)}", LONGEST_SUMMARY))


def delivery_variables(notice: AlertChange) -> dict[str, str]:
    """Return the main fields of a delivery as variables, for scripts that do not parse JSON."""
    alert = json.loads(notice.body)["alert"]
    title, text = show_notice(notice)
    return {
        "HOLDFAST_NOTICE_KEY": notice.key,
        "HOLDFAST_NOTICE_TRANSITION": str(notice.transition),
        "HOLDFAST_NOTICE_TITLE": _plain(title),
        "HOLDFAST_NOTICE_TEXT": _plain(text[:4000]),
        "HOLDFAST_ALERT_ID": str(alert["id"] or ""),
        "HOLDFAST_ALERT_LEVEL": str(notice.level),
        "HOLDFAST_ALERT_MESSAGE": _plain(str(alert["message"])[:4000]),
        "HOLDFAST_TASK_ID": str(alert["task"] or ""),
        "HOLDFAST_TASK_PROMPT": _plain(str(alert.get("prompt") or "")),
    }


def _plain(text: str) -> str:
    """Return a text that a variable can hold and a script can print without control characters.

    Foreign text must not control a terminal. The JSON has the whole text.
    """
    return clean_text(text.encode(errors="replace").decode().replace("\0", "�"))


def _how(code: int, err: bytes, timeout: float) -> str:
    if code == 124 and err.startswith(TIMEOUT_PREFIX):
        return f"the command took longer than {show_duration(timeout)} and was ended"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _last(said: str) -> str:
    lines = (
        redact_text(said).strip().splitlines()[-3:]
    )  # redact before cutting: the last lines of a key do not look like a key
    return f"; its last output: {' / '.join(lines)}" if lines else ""
