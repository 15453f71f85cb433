"""How much disk the home uses and has left: for `workspaces` and `doctor`. The gate itself is core/dispatch/pressure.py."""

from __future__ import annotations

import os
from dataclasses import dataclass

from holdfast import config
from holdfast.api.work.work import size_of
from holdfast.base.units import show_size
from holdfast.workspaces.names import TRASH


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    free: int  # bytes for an ordinary user, on the home's file system
    floor: int  # `disk.floor`; 0: switched off
    trash: int  # bytes that are being deleted

    @property
    def is_low(self) -> bool:
        return self.free < self.floor

    def __str__(self) -> str:
        floor = f"nothing new starts below {show_size(self.floor)}" if self.floor else "`disk.floor` is switched off"
        trash = f", {show_size(self.trash)} are being deleted" if self.trash else ""
        return f"{show_size(self.free)} of disk are free for the home{trash}; {floor}"


def disk_of(home: str) -> Disk:
    found = os.statvfs(home)
    return Disk(
        free=found.f_bavail * found.f_frsize,
        floor=int(config.best_effort()["disk.floor"]),
        trash=size_of(os.path.join(home, "workspaces", TRASH)),
    )
