"""A program that sends one POST request in its own process (see webhook.py). It imports only the standard library.

It reads the request as JSON from standard input, and prints `{"status", "retry_after", "body"}` or `{"error"}`. If the
exchange takes too long, an alarm signal ends the process.
"""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

TOO_LATE = signal.SIGALRM  # ends the process when the whole exchange takes too long
MOST = 2048  # bytes of a response that are read


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that follows no redirect. The user chose the address, and the receiver must not change it."""

    def redirect_request(self, *_given: Any) -> None:
        return None


def post(order: dict[str, Any]) -> dict[str, object]:
    if not order["url"].lower().startswith(("http://", "https://")):
        return {"error": "the address begins neither with http:// nor with https://, so nothing was opened or sent"}
    request = urllib.request.Request(order["url"], data=order["body"].encode(), headers=order["headers"], method="POST")
    opener = urllib.request.build_opener(NoRedirects)
    try:
        try:
            answer = opener.open(request, timeout=order["timeout"])
        except urllib.error.HTTPError as refusal:
            answer = refusal
        with answer:
            body = answer.read(MOST).decode(errors="replace")
            return {"status": answer.status, "retry_after": answer.headers.get("Retry-After") or "", "body": body}
    except urllib.error.URLError as error:
        return {"error": f"no connection: {error.reason}"}
    except (OSError, HTTPException, ValueError) as error:
        return {"error": f"no answer: {type(error).__name__}: {error}"}


def main() -> None:
    order = json.load(sys.stdin)
    signal.setitimer(signal.ITIMER_REAL, order["timeout"])
    print(json.dumps(post(order)))


if __name__ == "__main__":
    main()
