"""The independent checker: it tests whether the five promises hold on a home, right now.

The checker shares no code with what it checks. It opens the database itself, runs git itself, and reads /proc and the
file system itself. It changes nothing. A mistake in the supervisor, in core or in an adapter cannot hide here
(import-linter enforces that).
"""

from __future__ import annotations

from holdfast.checker.rules import violations
from holdfast.checker.violation import Violation, fingerprint

__all__ = ["Violation", "fingerprint", "violations"]
