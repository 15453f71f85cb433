"""One POST, in a process of its own (see webhook.py). Stands alone: standard library only, order on standard input.

It prints `{"status", "retry_after", "body"}` or `{"error"}`; what takes too long is ended by its own alarm.
"""

from __future__ import annotations

import json
import signal
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

TOO_LATE = signal.SIGALRM  # what it dies of when the whole exchange takes too long
MOST = 2048  # bytes of an answer that are read


class Stay(urllib.request.HTTPRedirectHandler):
    """Where a receiver sends us is not where the user wanted the notice to go."""

    def redirect_request(self, *_given: Any) -> None:
        return None


def post(order: dict[str, Any]) -> dict[str, object]:
    request = urllib.request.Request(order["url"], data=order["body"].encode(), headers=order["headers"], method="POST")
    opener = urllib.request.build_opener(Stay)
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
