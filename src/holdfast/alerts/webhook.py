"""A web address as a target: one POST of the delivery's JSON, signed with a shared secret. Only 2xx is success.

A helper process sends the request (`http_post.py`). Killing the helper ends an address that never answers, a name that
never resolves, and a receiver that sends one byte a minute. A thread could not be ended. The secret stays in this
process; the helper gets only the signature. docs/howto/alerts.md explains how a receiver checks it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sys
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from holdfast.alerts import http_post
from holdfast.alerts.port import LONGEST_SUMMARY, AlertRunner, SendResult
from holdfast.base.ids import new_id
from holdfast.base.text import one_line
from holdfast.core.tasks.alerts import LONGEST_WAIT, AlertChange

START_UP = 10.0  # seconds for an interpreter on a loaded machine, in addition to the request's own time
SCHEME = "v1"
LIKE_A_TOKEN = 8  # letters; a part of an address of this length may itself be a secret


class WebhookTarget:
    """A target that posts each delivery to a web address."""

    name = "webhook"

    def __init__(
        self,
        url: str,
        secret: str | None,
        env: Mapping[str, str],
        run: AlertRunner,
        timeout: float,
        wall: Callable[[], float],
        agent: str,
    ) -> None:
        self._url = url
        self._secret = secret
        self._env = env
        self._run = run
        self._timeout = timeout
        self._wall = wall
        self._agent = agent

    async def send(self, notice: AlertChange) -> SendResult:
        order = {
            "url": self._url,
            "headers": self._headers(notice),
            "body": notice.body,
            "timeout": self._timeout,
        }
        argv = [sys.executable, "-I", "-S", "-X", "utf8", http_post.__file__]
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
            return SendResult(ok=False, told=f"the request could not be made: {error.strerror}")
        if code == -http_post.TOO_LATE:
            return SendResult(ok=False, told=f"no complete answer within {self._timeout:g} s")
        try:
            said = json.loads(out)
        except ValueError:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no output"]
            return SendResult(ok=False, told=self._clean(f"the request ended with code {code}: {last[0]}"))
        return self._answer(said)

    def _headers(self, notice: AlertChange) -> dict[str, str]:
        stamp = str(int(self._wall()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": self._agent,
            "Idempotency-Key": notice.key,
            "Holdfast-Timestamp": stamp,
        }
        if self._secret is not None:
            headers["Holdfast-Signature"] = f"{SCHEME}={sign_body(self._secret, stamp, notice.body)}"
        return headers

    def _answer(self, said: Mapping[str, object]) -> SendResult:
        if "error" in said:
            return SendResult(ok=False, told=self._clean(str(said["error"])))
        status = int(str(said["status"]))
        if 200 <= status < 300:
            return SendResult(ok=True, told=f"HTTP {status}")
        moved = "; redirects are not followed" if 300 <= status < 400 else ""
        words = one_line(str(said["body"]), 120)
        return SendResult(
            ok=False,
            told=self._clean(f"HTTP {status}{moved}{f': {words}' if words else ''}"),
            retry_after=parse_retry_after(str(said["retry_after"]), self._wall()),
        )

    def _clean(self, text: str) -> str:
        """Return the text without the shared secret, and without the parts of the address that may be secret."""
        parts = urlsplit(self._url)
        behind = f"{parts.path}?{parts.query}" if parts.query else parts.path
        pieces = [piece for piece in parts.path.split("/") if len(piece) >= LIKE_A_TOKEN]
        for word in (self._url, behind, parts.path, parts.query, *pieces, self._secret):
            if word and len(word) > 1:
                text = text.replace(word, "…")
        return one_line(text, LONGEST_SUMMARY)


def sign_body(secret: str, stamp: str, body: str) -> str:
    """Return the HMAC-SHA256 of the time stamp, a dot and the body, in hexadecimal."""
    return hmac.new(secret.encode(), f"{stamp}.{body}".encode(), hashlib.sha256).hexdigest()


def parse_retry_after(retry_after: str, now: float) -> float | None:
    """Return the seconds of a `Retry-After` header (seconds or a date), or None if it is missing or invalid."""
    word = retry_after.strip()
    if word.isascii() and word.isdigit():
        return min(float(word[:9]), LONGEST_WAIT)
    try:
        wait = parsedate_to_datetime(word).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, wait), LONGEST_WAIT)
