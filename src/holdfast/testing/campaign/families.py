"""Which families there are, in the order in which they are played."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.testing.campaign.canaries import Canaries
from holdfast.testing.campaign.clocks import Clocks
from holdfast.testing.campaign.engines import EngineFaults
from holdfast.testing.campaign.family import Family
from holdfast.testing.campaign.fsyncs import Fsyncs
from holdfast.testing.campaign.fuzzed import Fuzzed
from holdfast.testing.campaign.hostilerepo import HostileRepo
from holdfast.testing.campaign.hostilewords import HostileWords
from holdfast.testing.campaign.limits import Limits
from holdfast.testing.campaign.smalldisk import SmallDisk
from holdfast.testing.campaign.stepwise import Contained, DoubleFaults, GitFaults, SingleFaults, Usurpations
from holdfast.testing.campaign.stopped import Stopped
from holdfast.testing.campaign.storm import Storm
from holdfast.testing.campaign.synced import Synced
from holdfast.testing.campaign.torn import CutLogs, TurnedBytes

# Each is made with the name of a check that is left out on purpose (mutants.py), or with an empty one.
FAMILIES: dict[str, Callable[[str], Family]] = {
    family.name: family
    for family in (
        SingleFaults,
        DoubleFaults,
        Usurpations,
        GitFaults,
        Contained,
        Storm,
        CutLogs,
        TurnedBytes,
        Synced,
        EngineFaults,
        Fuzzed,
        Canaries,
        HostileRepo,
        Limits,
        SmallDisk,
        Clocks,
        HostileWords,
        Fsyncs,
        Stopped,
    )
}
