"""What a store must do for what stages left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from holdfast.core.workflows.result import Result
from holdfast.store.port.grip import Grip


class Results(Protocol):
    """Results of stages, in order; they go with their task."""

    def record(self, grip: Grip, result: Result) -> Result:
        """Under the fence. The result of a run that was recorded before is not recorded twice."""
        ...

    def of_task(self, task_id: str) -> Sequence[Result]:
        """Of its present generation, in order."""
        ...
