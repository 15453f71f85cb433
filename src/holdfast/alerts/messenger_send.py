"""A program that sends one notice to one messenger through apprise, in its own process (see messenger.py).

It reads the order as JSON from standard input, and prints `{"ok": true}` or `{"error"}`. An order `{"check"}` sends
nothing: it names the addresses that apprise cannot use. If the exchange takes too
long, an alarm signal ends the process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from typing import Any

TOO_LATE = signal.SIGALRM  # ends the process when the whole exchange takes too long


_SCHEMES = ("protocols", "secure_protocols")


class Complaints(logging.Handler):
    """A log handler that keeps the last warnings of apprise, which reports the reason of a failure only in its log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines = [*self.lines[-4:], record.getMessage()]


def trust_own_certificates() -> None:
    """Let `requests`, which apprise uses, trust the certificates of SSL_CERT_FILE, like the webhook."""
    if os.environ.get("SSL_CERT_FILE"):
        os.environ.setdefault("REQUESTS_CA_BUNDLE", os.environ["SSL_CERT_FILE"])


def send(order: dict[str, Any], complaints: Complaints) -> dict[str, object]:
    trust_own_certificates()
    import apprise

    signal.setitimer(signal.ITIMER_REAL, order["timeout"])
    messenger = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False, app_id="Holdfast", app_desc="Holdfast"))
    if not messenger.add(order["url"]):
        return {"error": "apprise does not know such an address"}
    sent = messenger.notify(
        title=order["title"], body=order["text"], notify_type=order["type"], body_format=apprise.NotifyFormat.TEXT
    )
    return {"ok": True} if sent else {"error": "; ".join(complaints.lines) or "the messenger did not take it"}


def check(addresses: list[str]) -> dict[str, object]:
    """Return a text for each address that apprise cannot use. No text quotes an address."""
    import difflib

    import apprise

    found = []
    for address in addresses:
        if apprise.Apprise.instantiate(address, suppress_exceptions=True) is not None:
            continue
        scheme = address.partition("://")[0].lower()
        services = apprise.Apprise().details()["schemas"]
        known = sorted({str(name) for one in services for key in _SCHEMES for name in one[key] or ()})
        close = difflib.get_close_matches(scheme, known, 1)
        if scheme in known:
            found.append(
                f"apprise cannot use the address that begins with `{scheme}://`: a part of it is missing or wrong"
            )
        else:
            hint = f"; did you mean `{close[0]}://`?" if close else ""
            found.append(f"apprise knows no service `{scheme}://`{hint}")
    return {"mistakes": found}


def main() -> None:
    complaints = Complaints()
    logger = logging.getLogger("apprise")
    logger.addHandler(complaints)
    logger.propagate = False
    try:
        order = json.load(sys.stdin)
        said = check(order["check"]) if "check" in order else send(order, complaints)
    except Exception as error:  # noqa: BLE001 - whatever a plugin of apprise does, it is a failed attempt
        said = {"error": f"apprise failed: {type(error).__name__}: {error}"}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
