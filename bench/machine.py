"""The machine that a result was measured on. No names of hosts or users: results are published."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from typing import Any

import apsw

from holdfast.store.sqlite.engine.connection import filesystem_type

SYNCS = 60


def describe(folder: str) -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite_ours": apsw.sqlite_lib_version(),
        "sqlite_of_python": sqlite3.sqlite_version,
        "filesystem": filesystem_type(folder),
        "fdatasync_us": sync_microseconds(folder),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu_model() -> str:
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def sync_microseconds(folder: str) -> int:
    """The median of a page appended and synced: what a commit costs here at least."""
    path = os.path.join(folder, "sync-test")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    times = []
    try:
        for _ in range(SYNCS):
            os.write(fd, b"x" * 4096)
            began = time.perf_counter()
            os.fdatasync(fd)
            times.append(time.perf_counter() - began)
    finally:
        os.close(fd)
        os.unlink(path)
    return round(sorted(times)[SYNCS // 2] * 1e6)
