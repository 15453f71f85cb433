"""A messenger that apprise knows as a target: ntfy, Slack, Discord, Telegram, mail and many more, by one address each.

A helper process sends (`messenger_send.py`), so neither apprise nor a messenger that never answers can delay the
supervisor. The whole address is a secret.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from holdfast.alerts import messenger_send
from holdfast.alerts.port import LONGEST_SUMMARY, AlertRunner, SendResult
from holdfast.base.ids import new_id
from holdfast.base.text import one_line
from holdfast.core.model import Level
from holdfast.core.tasks.alerts import AlertChange, Transition, show_notice
from holdfast.secrets.redact import redact_text
from holdfast.secrets.references import SecretMissing, look_up_secret

START_UP = 20.0  # seconds for an interpreter with apprise on a loaded machine, in addition to the exchange's own time
LONGEST_TEXT = 3500  # letters; Telegram takes 4096
SHORTEST_PIECE = 3  # letters; a shorter piece of an address is in every other word
INSTALL = "pip install apprise"  # into Holdfast's own environment; on PyPI the name holdfast is another project's
_TYPES = {Level.CRITICAL: "failure", Level.WARNING: "warning"}
_MENTIONS = re.compile(r"@(?=\w)|<(?=[!@#])")  # @everyone, <!channel>: an agent's words must not call people


class MessengerTarget:
    """A target that sends each delivery to one messenger."""

    def __init__(self, name: str, url: str, env: Mapping[str, str], run: AlertRunner, timeout: float) -> None:
        self.name = name
        self._url = url
        self._env = env
        self._run = run
        self._timeout = timeout

    async def send(self, notice: AlertChange) -> SendResult:
        if not is_installed():
            return SendResult(ok=False, told=f"the package apprise is missing: `{INSTALL}`")
        title, text = show_notice(notice)
        order = {
            "url": self._url,
            "title": title,
            "text": _without_mentions(f"{text[:LONGEST_TEXT]}\n({notice.key})"),
            "type": "success" if notice.transition is Transition.RESOLVED else _TYPES.get(notice.level, "info"),
            "timeout": self._timeout,
        }
        argv = [sys.executable, "-E", "-P", "-X", "utf8", messenger_send.__file__]
        try:
            code, out, err = await self._run(
                argv,
                cwd="/",
                env=self._env,
                timeout=self._timeout + START_UP,
                stdin=json.dumps(order).encode(),
                mark=new_id(),
            )
        except OSError as error:
            return SendResult(ok=False, told=f"the helper could not be started: {error.strerror}")
        if code == -messenger_send.TOO_LATE:
            return SendResult(ok=False, told=f"no complete answer within {self._timeout:g} s")
        try:
            said = json.loads(out)
        except ValueError:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
            return SendResult(ok=False, told=self._clean(f"the helper ended with code {code}: {last[0]}"))
        if "error" in said:
            return SendResult(ok=False, told=self._clean(str(said["error"])))
        return SendResult(ok=True, told="taken by the messenger")

    def _clean(self, text: str) -> str:
        """Remove the address and each piece of it from a text that may repeat them."""
        for word in secret_parts(self._url):
            text = text.replace(word, "…")
        return one_line(redact_text(text), LONGEST_SUMMARY)


def is_installed() -> bool:
    """True if the optional package is installed. It is not imported: that takes a fifth of a second."""
    return find_spec("apprise") is not None


def find_mistakes(places: Sequence[str]) -> list[str]:
    """Return a text for each address of `notify.urls` that apprise cannot use. Addresses whose secret is missing are
    left out. The list is empty if apprise is not installed."""
    addresses = []
    for place in places:
        with contextlib.suppress(SecretMissing):
            addresses.append(look_up_secret(place))
    if not addresses or not is_installed():
        return []
    argv = [sys.executable, "-E", "-P", "-X", "utf8", messenger_send.__file__]
    order = json.dumps({"check": addresses})
    try:
        said = subprocess.run(argv, input=order, capture_output=True, text=True, timeout=START_UP, check=False).stdout
        return [str(text) for text in json.loads(said).get("mistakes", ())]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def secret_parts(url: str) -> list[str]:
    """Return the address and its pieces, the longest first. Everything after the scheme may be a token."""
    behind = url.partition("://")[2]
    pieces = [piece for piece in re.split(r"[/?&=:@,#]+", behind) if len(piece) >= SHORTEST_PIECE]
    return sorted({url, behind, *pieces} - {""}, key=len, reverse=True)


def messenger_name(place: str) -> str:
    """Return the name of the target for an address, or for a reference to one. It is stable and holds no secret."""
    if place.startswith(("env:", "file:")):
        return place
    return f"{place.partition('://')[0].lower()}-{hashlib.sha256(place.encode()).hexdigest()[:6]}"


def _without_mentions(text: str) -> str:
    return _MENTIONS.sub(lambda found: f"{found.group()}\u200b", text)
