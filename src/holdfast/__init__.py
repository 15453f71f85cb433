"""Holdfast: a supervisor for fleets of AI coding agents.

`from holdfast import Client` is the Python API (docs/howto/python.md). Only the names in `__all__` are public.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"

_PUBLIC = {
    "Client": "holdfast.client.client",
    **dict.fromkeys(
        (
            *(
                "Event",
                "GateResult",
                "Ids",
                "LogEntry",
                "Merge",
                "Run",
                "StageResult",
                "Task",
                "TaskChanges",
                "TaskOptions",
            ),
            "TaskState",
        ),
        "holdfast.client.models",
    ),
    **dict.fromkeys(
        ("Conflict", "HoldfastError", "NotFound", "Refused", "Unavailable", "UsageError"), "holdfast.base.errors"
    ),
    **dict.fromkeys(("PartlyDone", "WaitTimeout"), "holdfast.client.errors"),
}

if TYPE_CHECKING:
    from holdfast.base.errors import Conflict as Conflict
    from holdfast.base.errors import HoldfastError as HoldfastError
    from holdfast.base.errors import NotFound as NotFound
    from holdfast.base.errors import Refused as Refused
    from holdfast.base.errors import Unavailable as Unavailable
    from holdfast.base.errors import UsageError as UsageError
    from holdfast.client.client import Client as Client
    from holdfast.client.errors import PartlyDone as PartlyDone
    from holdfast.client.errors import WaitTimeout as WaitTimeout
    from holdfast.client.models import Event as Event
    from holdfast.client.models import GateResult as GateResult
    from holdfast.client.models import Ids as Ids
    from holdfast.client.models import LogEntry as LogEntry
    from holdfast.client.models import Merge as Merge
    from holdfast.client.models import Run as Run
    from holdfast.client.models import StageResult as StageResult
    from holdfast.client.models import Task as Task
    from holdfast.client.models import TaskChanges as TaskChanges
    from holdfast.client.models import TaskOptions as TaskOptions
    from holdfast.client.models import TaskState as TaskState
else:
    __all__ = sorted(_PUBLIC)

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used: the command line imports this package, and starts in 40 ms."""
        if name not in _PUBLIC:
            raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_PUBLIC[name]), name)

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
