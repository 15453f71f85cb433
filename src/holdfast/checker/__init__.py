"""The independent checker: do the five promises hold on this home, right now?

It shares no code with what it checks: it opens the database itself, asks git itself, and reads /proc and the file
system itself. A mistake in the supervisor, in core or in an adapter cannot hide here (import-linter holds that line).
"""

from __future__ import annotations

from holdfast.checker.rules import violations
from holdfast.checker.violation import Violation, fingerprint

__all__ = ["Violation", "fingerprint", "violations"]
