"""The container engine goes wrong: killed, ended, stopped, refusing, hanging, its answers lost, at each request that is
made of it and at any instant, while tasks in containers start, run, end, are cancelled, adopted and removed.

Each worker has an engine of its own. A case is one of the matrix whose role is `engine` (engines/proxy.py); behind a
`+` the supervisor is killed too, so that the next one finds what both left.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.harness.campaign.family import Run, Scope
from tests.harness.campaign.matrix_cases import Stepwise, pick
from tests.harness.engines.image import why_not
from tests.harness.engines.proxy import ACTIONS, AT, AT_INSTANTS
from tests.harness.matrix.cases import ENGINE, KILL, Case, Fault
from tests.harness.matrix.containers import SCENARIOS

COUNT = Fault(ENGINE, "none", 0, "count")
POINTS = ("container.create", "container.created", "tx.workspace.enclosed", "container.remove", "container.removed")


class EngineFaults(Stepwise):
    name = "engine"
    about = "dockerd killed, ended, stopped, refusing, hanging, its answers lost, at each request and at any instant"
    USUAL, INSTANTS, WITH_KILLS = 6, 4, 1
    LATEST = 2500  # milliseconds after the first request

    def absent(self) -> str:
        return why_not()

    def cases(self, scope: Scope, run: Run) -> Sequence[str]:
        chance = random.Random(scope.start_from_head)
        every: list[Case] = []
        for played in run([str(Case(name, (COUNT,))) for name in self._counted(scope)]):
            scenario = played.case.partition("/")[0]
            for kind, hit, _fails in dict.fromkeys((played.found or {}).get(ENGINE, [])):
                every += [Case(scenario, (Fault(ENGINE, kind, hit, action),)) for action in ACTIONS]
        chosen = pick(every, scope.amount(self.USUAL, len(every)), chance)
        for _ in range(scope.amount(self.INSTANTS, 40 * self.INSTANTS)):
            fault = Fault(ENGINE, AT, chance.randrange(1, self.LATEST), chance.choice(AT_INSTANTS))
            chosen.append(Case(chance.choice(list(SCENARIOS)), (fault,)))
        for _ in range(scope.amount(self.WITH_KILLS, 40 * self.WITH_KILLS)):
            case = chance.choice([one for one in every if one.scenario == "container-success"])
            chosen.append(case.then(Fault("up", chance.choice(POINTS), 1, KILL)))
        return [str(case) for case in chosen]

    def _counted(self, scope: Scope) -> list[str]:
        """A sample needs not know what all of them ask for."""
        return list(SCENARIOS) if scope.long else ["container-success"]
