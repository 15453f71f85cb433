"""The file in which a keeper counts the kernel's OOM kills: as few other processes in it as the machine allows."""

from __future__ import annotations

from pathlib import Path

from holdfast.processes.keeper import nearest_oom_counter, read_counter


def test_the_runs_own_cgroup_counts_before_the_whole_machine(tmp_path: Path) -> None:
    """Found by a test beside others: somebody else's OOM kill made a `kill -9` of an agent "out of memory"."""
    own = tmp_path / "memory.events"
    assert nearest_oom_counter(str(own)) != str(own), "the cgroup was not made, or is gone"
    own.write_text("low 0\noom 2\noom_kill 1\n")
    assert nearest_oom_counter(str(own)) == str(own)
    assert read_counter(str(own), "oom_kill") == 1
    shared = nearest_oom_counter("")
    assert shared == "/proc/vmstat" or shared.endswith("/memory.oom_control")
    assert Path(shared).exists()
