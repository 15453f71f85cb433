"""Every benchmark in its smallest form, so that none can rot. The numbers mean nothing at this size."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench import __main__ as bench
from bench import kept, proc
from bench.__main__ import BENCHMARKS
from bench.figures import SMOKE, Figure
from bench.render import TITLES
from tests.sampling import sampled

from holdfast.api.queries import Queries

MAY_BE_NOTHING = (
    "survivors",
    "git processes",
    "% of a core",
)  # the last: a smoke's rest is shorter than the pause between two beats

KEPT = ("processes", "store", "claim_to_exec")  # by `make test`. The first kills more agents than a mass death has


@pytest.mark.parametrize("name", sampled(sorted(BENCHMARKS, key=lambda name: name not in KEPT), keep=len(KEPT)))
def test_a_benchmark_runs_and_returns_numbers(name: str, tmp_path: Path) -> None:
    figures = BENCHMARKS[name](SMOKE, tmp_path)
    assert figures
    events = [event for store in tmp_path.rglob("holdfast.db") for event in Queries(str(store.parent)).events()]
    assert [event["message"] for event in events if event["data"].get("scope") == "fleet"] == [], "a mass death"
    for figure in figures:
        assert figure.name in TITLES, "a figure without a title cannot be rendered"
        if figure.name.startswith("store.dbos") or (figure.name.startswith("peers.") and "holdfast" not in figure.name):
            assert figure.skipped == "not part of this run"
        else:
            assert figure.value is not None
            assert figure.value > 0 or figure.unit in MAY_BE_NOTHING


def test_a_goal_is_met_from_its_own_side() -> None:
    fast = Figure(name="x", value=9.0, unit="×", goal=8.0, at_least=True)
    slow = Figure(name="x", value=9.0, unit="ms", goal=8.0)
    assert (fast.met, slow.met) == (True, False)


def _broken(_scale: object, _folder: Path) -> list[Figure]:
    raise RuntimeError("this never became true: all agents run")


def test_a_benchmark_that_fails_is_reported_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Figure(name="cold.help", value=2.0, unit="×", goal=2.5)
    monkeypatch.setattr(bench, "BENCHMARKS", {"broken": _broken, "cold": lambda _scale, _folder: [good]})
    for name, file in (("LATEST", "latest.json"), ("HISTORY", "history.jsonl")):
        monkeypatch.setattr(kept, name, tmp_path / file)
    assert bench.main(["--folder", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "FAILED   broken: RuntimeError: this never became true: all agents run" in out
    assert "met      cold `holdfast --help`" in out
    assert "1 benchmarks FAILED" in out
    [line] = kept.history()
    assert (line["failed"], line["figures"]) == (["broken"], {"cold.help": 2.0})
    assert json.loads((tmp_path / "latest.json").read_text())["failed"].keys() == {"broken"}


def _line(git: int, cpu: float, machine: str = "a machine", **more: Any) -> dict[str, Any]:
    counts = {"life.count.worktree": {"git": git, "statements": 70, **more}}
    return {
        "commit": "abc",
        "date": "today",
        "machine": machine,
        "counts": counts,
        "figures": {"life.cpu.worktree": cpu},
    }


@pytest.mark.parametrize(
    ("fresh", "is_worse"),
    [
        (_line(4, 10.0), False),
        (_line(5, 10.0), True),
        (_line(3, 10.0), False),
        (_line(4, 13.9), False),
        (_line(4, 14.1), True),
        (_line(4, 99.0, machine="another"), False),
        (_line(4, 10.0, syncs=9), False),
        ({**_line(4, 10.0), "counts": {}}, True),
    ],
)
def test_what_costs_more_than_the_last_kept_run_is_worse(fresh: dict[str, Any], is_worse: bool) -> None:
    """Counts to the last one, CPU time beyond the tolerance, and only of the same machine."""
    older = _line(1, 1.0)
    assert any(worse for worse, _ in kept.compare(fresh, [older, _line(4, 10.0)])) is is_worse


def test_nothing_to_compare_with_is_no_success() -> None:
    assert [worse for worse, _ in kept.compare(_line(4, 10.0), [])] == [True]


def test_time_counts_little_while_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 s of patience: two minutes at a machine that is half busy, and an end at last where no core is ever free."""

    def seconds(idle: float) -> float:
        def passing() -> Iterator[float]:
            while True:
                now[0] += 1.0
                yield now[0]

        now, clock = [0.0], passing()
        monkeypatch.setattr("bench.proc.time.monotonic", lambda: next(clock))
        monkeypatch.setattr(proc, "_core_seconds", lambda: (now[0] * idle, now[0] * (1 - idle)))
        patience = proc.Patience(60.0)
        while not patience.is_over():
            pass
        return now[0]

    assert 60 <= seconds(1.0) <= 62
    assert 119 <= seconds(0.5) <= 122
    assert 1199 <= seconds(0.0) <= 1202


def test_the_kept_history_can_be_read() -> None:
    for line in kept.history():
        assert {"date", "commit", "machine", "load", "counts", "figures"} <= line.keys()
        assert {*line["counts"], *line["figures"]} <= TITLES.keys()
