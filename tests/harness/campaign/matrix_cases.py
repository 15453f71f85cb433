"""The families that go step by step: every crash point of every scenario, second faults, usurpers, faults of git.

They are the crash matrix (tests.harness.matrix) as families of the campaign; a case is written as there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.harness.campaign.family import Played, Run, Scope
from tests.harness.campaign.shared_setup import Grounds
from tests.harness.engines.image import why_not
from tests.harness.matrix import containers, git_faults
from tests.harness.matrix.cases import ENGINE, EXIT, GIT, KILL, Case, parse
from tests.harness.matrix.runner import Runner, playable, second_faults, single_faults, usurpations

Reached = dict[str, list[tuple[str, int, bool]]]
_passed: dict[str, Reached] = {}


class Stepwise(Grounds):
    """`broken`: the mutant that is played, to see whether the family would notice (tests/harness/mutations.py)."""

    name = ""
    about = ""

    def __init__(self, broken: str = "") -> None:
        super().__init__(broken)
        self._runner: Runner | None = None

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        raise NotImplementedError

    def play(self, case: str) -> Played:
        if self._runner is None:  # one per worker
            self._runner = Runner(self._root, self._broken)
        played = parse(case)
        result = self._runner.run(played)
        return Played(
            result.case,
            result.violations,
            ", ".join(result.missed),
            weight=sum(f.hit > 0 and str(f) not in result.missed for f in played.faults),  # 0: only counts
            points=tuple(
                f.point for f in played.faults if f.point != GIT and f.role != ENGINE and str(f) not in result.missed
            ),
            seconds=result.seconds,
            found=result.reached,
            log=result.log,
        )

    def _without_faults(self, run: Run) -> dict[str, Reached]:
        """Which points each scenario passes: the same for all of these families, so one of them finds it out."""
        if not _passed:
            _passed.update({played.case: played.found for played in run([n for n in playable() if not _is_inside(n)])})
        return _passed


class SingleFaults(Stepwise):
    name = "single"
    about = "each crash point × hit × {SIGKILL, _exit, ENOSPC, EIO} × scenario"
    USUAL = 180

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        reached = self._without_faults(run)
        every = [case for name in reached for case in single_faults(name, reached[name], (KILL, EXIT, "ENOSPC", "EIO"))]
        return [
            str(case)
            for case in pick(every, scope.amount(self.USUAL, len(every)), random.Random(scope.start_from_head))
        ]


class Contained(Stepwise):
    """Apart from the others: each worker has an engine of its own beside it, which costs while it only waits."""

    name = "containers"
    about = "the same, at the points that only tasks in containers pass"
    USUAL, SCENARIOS = 6, 2  # each as dear as ten others

    def absent(self) -> str:
        return why_not()

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        names = list(containers.SCENARIOS)[: scope.amount(self.SCENARIOS, len(containers.SCENARIOS))]
        every: list[Case] = []
        for played in run(names):
            faults = single_faults(played.case, played.found, (KILL, EXIT, "ENOSPC", "EIO"))
            every += faults if scope.long else [case for case in faults if _is_of_containers(case.faults[0].point)]
            every += usurpations(played.case, played.found) if scope.long else []
        return [
            str(case)
            for case in pick(every, scope.amount(self.USUAL, len(every)), random.Random(scope.start_from_head))
        ]


class DoubleFaults(Stepwise):
    """The second one in the recovery from the first."""

    name = "double"
    about = "a SIGKILL, and another at a point of the recovery from it"
    FIRST, SECOND = 10, 3

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        reached = self._without_faults(run)
        kills = [case for name in reached for case in single_faults(name, reached[name], (KILL,))]
        first = pick(kills, scope.amount(self.FIRST, len(kills)), random.Random(scope.start_from_head))
        found: list[str] = []
        for played in run([str(case) for case in first]):
            seconds = second_faults(parse(played.case), played.found) if not played.missed else []
            chance = random.Random(f"{scope.start_from_head} {played.case}")  # whichever comes to its end first
            kept = seconds if scope.long else chance.sample(seconds, min(self.SECOND, len(seconds)))
            found += [str(case) for case in kept]
        return sorted(found)


class Usurpations(Stepwise):
    name = "usurped"
    about = "a second supervisor takes over at an outside effect of the first"
    USUAL = 20

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        reached = self._without_faults(run)
        every = [case for name in reached for case in usurpations(name, reached[name])]
        return [
            str(case)
            for case in pick(every, scope.amount(self.USUAL, len(every)), random.Random(scope.start_from_head))
        ]


class GitFaults(Stepwise):
    name = "git"
    about = "git fails, hangs, dies before its work or after it, at its Nth call"
    USUAL = 24
    NAMES = ("success", "failure", "cancel")

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        every: list[Case] = []
        for played in run([str(git_faults.counting(name, instants=False)) for name in self.NAMES]):
            scenario = parse(played.case).scenario
            every += git_faults.misbehaving(scenario, played.found[git_faults.ROLE], git_faults.BEHAVIOURS)
        return [
            str(case)
            for case in pick(every, scope.amount(self.USUAL, len(every)), random.Random(scope.start_from_head))
        ]


def _is_inside(scenario: str) -> bool:
    return scenario in containers.SCENARIOS


def _is_of_containers(point: str) -> bool:
    """What no other scenario passes."""
    return point.startswith(("container.", "engine.")) or point in ("keeper.end_outside", "tx.workspace.enclosed")


def pick(cases: Sequence[Case], wanted: int, chance: random.Random) -> list[Case]:
    """At random, but no point is left out while another has two."""
    by_point: dict[str, list[Case]] = {}
    for case in sorted(cases):
        by_point.setdefault(case.faults[0].point, []).append(case)
    piles = [chance.sample(pile, len(pile)) for pile in by_point.values()]
    chance.shuffle(piles)
    chosen: list[Case] = []
    while len(chosen) < min(wanted, len(cases)):
        for pile in piles:
            if pile and len(chosen) < wanted:
                chosen.append(pile.pop())
    return chosen
