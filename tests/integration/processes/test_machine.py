"""Reading a machine's room from its files: this very machine, and recorded ones with and without cgroup limits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.core.dispatch.pressure import Pressure
from holdfast.processes.observe.machine import Machine

GIB = 1024**3
MEMINFO = "MemTotal:       16384000 kB\nMemFree:         1000000 kB\nMemAvailable:    8388608 kB\nHugePages_Total: 0\n"
PLAIN = {
    "proc/meminfo": MEMINFO,
    "proc/loadavg": "6.00 4.00 2.00 3/700 4242\n",
    "proc/pressure/memory": "some avg10=12.50 avg60=1.00 avg300=0.00 total=42\nfull avg10=9.00 total=1\n",
}


def machine(root: Path, files: Mapping[str, str]) -> Machine:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Machine(proc=str(root / "proc"), cgroups=str(root / "cgroup"), cores=4)


def test_this_machine_answers() -> None:
    """The real /proc: plausible numbers, whatever container this is."""
    found = Machine().pressure()
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found.memory is not None
    assert 0 < found.memory <= total
    assert found.load is not None
    assert found.load == pytest.approx(os.getloadavg()[0] / (os.cpu_count() or 1), abs=1.0)
    assert found.stall is None or 0 <= found.stall <= 100


def test_a_plain_machine(tmp_path: Path) -> None:
    assert machine(tmp_path, PLAIN).pressure() == Pressure(memory=8 * GIB, load=1.5, stall=12.5)


def test_a_machine_that_says_nothing(tmp_path: Path) -> None:
    """macOS, or a /proc that is hidden from us."""
    assert machine(tmp_path, {}).pressure() == Pressure()


def test_a_kernel_without_pressure_information(tmp_path: Path) -> None:
    files = {name: text for name, text in PLAIN.items() if "pressure" not in name}
    assert machine(tmp_path, files).pressure().stall is None


V2 = {
    "proc/self/cgroup": "0::/user.slice/holdfast.service/supervisor\n",
    "cgroup/user.slice/holdfast.service/supervisor/memory.max": "max\n",
    "cgroup/user.slice/holdfast.service/supervisor/memory.current": "1000\n",
    "cgroup/user.slice/holdfast.service/memory.max": f"{2 * GIB}\n",
    "cgroup/user.slice/holdfast.service/memory.current": f"{GIB + GIB // 2}\n",
    "cgroup/user.slice/holdfast.service/memory.stat": f"anon 5\ninactive_file {GIB // 4}\n",
}
V2_CONTAINER = {  # a cgroup namespace: we see ourselves at the root, which has a limit all the same
    "proc/self/cgroup": "0::/\n",
    "cgroup/memory.max": f"{GIB}\n",
    "cgroup/memory.current": f"{GIB // 4}\n",
}
V1_CONTAINER = {  # the path is the host's; what we see is the container's own cgroup
    "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/4711\n0::/\n",
    "cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
    "cgroup/memory/memory.usage_in_bytes": f"{GIB}\n",
    "cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {GIB // 8}\n",
}
V1_UNLIMITED = {
    "proc/self/cgroup": "4:memory:/job\n",
    "cgroup/memory/job/memory.limit_in_bytes": "9223372036854771712\n",
    "cgroup/memory/job/memory.usage_in_bytes": "4096\n",
}


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        (V2, 3 * GIB // 4),
        (V2_CONTAINER, 3 * GIB // 4),
        (V1_CONTAINER, GIB // 8),
        (V1_UNLIMITED, 8 * GIB),
        ({"proc/self/cgroup": "0::/gone\n"}, 8 * GIB),
        ({"proc/self/cgroup": "nonsense\n"}, 8 * GIB),
        ({**V2_CONTAINER, "cgroup/memory.max": f"{64 * GIB}\n"}, 8 * GIB),  # larger than the machine: no limit
        ({**V2_CONTAINER, "cgroup/memory.current": f"{2 * GIB}\n"}, 0),  # over it, for a moment
    ],
)
def test_a_limit_around_us_counts_when_it_is_smaller(tmp_path: Path, files: Mapping[str, str], memory: int) -> None:
    """Ours or a parent's, v2 or v1; the page cache that would be given up counts as free."""
    assert machine(tmp_path, {**PLAIN, **files}).pressure().memory == memory
