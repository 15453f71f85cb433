"""Which families there are, in the order in which they are played."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.testing.campaign.family import Family
from holdfast.testing.campaign.stepwise import DoubleFaults, GitFaults, SingleFaults, Usurpations
from holdfast.testing.campaign.storm import Storm
from holdfast.testing.campaign.torn import CutLogs, TurnedBytes

FAMILIES: dict[str, Callable[[], Family]] = {
    family.name: family for family in (SingleFaults, DoubleFaults, Usurpations, GitFaults, Storm, CutLogs, TurnedBytes)
}
