"""A web address as receiver: one POST of the notice's JSON, signed with a shared secret; only 2xx is success.

The request is made by a helper process (`poster`): an address that never answers, a name that never resolves and a
receiver that sends one byte a minute all end with it, and nobody waits for a thread. The secret stays here: the helper
gets the signature. docs/howto/alerts.md says how a receiver checks it.
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
from holdfast.alerts.port import LONGEST_TOLD, Answer, Runner
from holdfast.base.ids import new_id
from holdfast.base.text import one_line
from holdfast.core.tasks.alerts import LONGEST_WAIT, Notice

START_UP = 10.0  # seconds for an interpreter on a loaded machine, beside the request's own time
SCHEME = "v1"
LIKE_A_TOKEN = 8  # letters; a part of an address that long may be a secret by itself


class WebhookTarget:
    name = "webhook"

    def __init__(
        self,
        url: str,
        secret: str | None,
        env: Mapping[str, str],
        run: Runner,
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

    async def send(self, notice: Notice) -> Answer:
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
            return Answer(ok=False, told=f"the request could not be made: {error.strerror}")
        if code == -http_post.TOO_LATE:
            return Answer(ok=False, told=f"no whole answer within {self._timeout:g} s")
        try:
            said = json.loads(out)
        except ValueError:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["no word"]
            return Answer(ok=False, told=self._clean(f"the request ended with code {code}: {last[0]}"))
        return self._answer(said)

    def _headers(self, notice: Notice) -> dict[str, str]:
        stamp = str(int(self._wall()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": self._agent,
            "Idempotency-Key": notice.key,
            "Holdfast-Timestamp": stamp,
        }
        if self._secret is not None:
            headers["Holdfast-Signature"] = f"{SCHEME}={signature(self._secret, stamp, notice.body)}"
        return headers

    def _answer(self, said: Mapping[str, object]) -> Answer:
        if "error" in said:
            return Answer(ok=False, told=self._clean(str(said["error"])))
        status = int(str(said["status"]))
        if 200 <= status < 300:
            return Answer(ok=True, told=f"HTTP {status}")
        moved = "; redirects are not followed" if 300 <= status < 400 else ""
        words = one_line(str(said["body"]), 120)
        return Answer(
            ok=False,
            told=self._clean(f"HTTP {status}{moved}{f': {words}' if words else ''}"),
            retry_after=seconds_of(str(said["retry_after"]), self._wall()),
        )

    def _clean(self, text: str) -> str:
        """Neither the secret nor the part of the address that may be one, whoever repeats them."""
        parts = urlsplit(self._url)
        behind = f"{parts.path}?{parts.query}" if parts.query else parts.path
        pieces = [piece for piece in parts.path.split("/") if len(piece) >= LIKE_A_TOKEN]
        for word in (self._url, behind, parts.path, parts.query, *pieces, self._secret):
            if word and len(word) > 1:
                text = text.replace(word, "…")
        return one_line(text, LONGEST_TOLD)


def signature(secret: str, stamp: str, body: str) -> str:
    """HMAC-SHA256 over the time stamp, a dot and the body, in hexadecimal."""
    return hmac.new(secret.encode(), f"{stamp}.{body}".encode(), hashlib.sha256).hexdigest()


def seconds_of(retry_after: str, now: float) -> float | None:
    """`Retry-After`, as seconds or as a date; None where there is none that makes sense."""
    word = retry_after.strip()
    if word.isascii() and word.isdigit():
        return min(float(word[:9]), LONGEST_WAIT)
    try:
        wait = parsedate_to_datetime(word).timestamp() - now
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, wait), LONGEST_WAIT)
