"""Which families there are, in the order in which they are played."""

from __future__ import annotations

from collections.abc import Callable

from tests.harness.campaign.canaries import Canaries
from tests.harness.campaign.clocks import Clocks
from tests.harness.campaign.damaged_stores import CutLogs, TurnedBytes
from tests.harness.campaign.engines import EngineFaults
from tests.harness.campaign.family import Family
from tests.harness.campaign.fsync_order import Synced
from tests.harness.campaign.fsyncs import Fsyncs
from tests.harness.campaign.fuzz_inputs import Fuzzed
from tests.harness.campaign.home_users import Users
from tests.harness.campaign.hostile_repo import HostileRepo, HostileRepoNewestGit
from tests.harness.campaign.hostile_words import HostileWords
from tests.harness.campaign.limits import Limits
from tests.harness.campaign.matrix_cases import Contained, DoubleFaults, GitFaults, SingleFaults, Usurpations
from tests.harness.campaign.small_disk import SmallDisk
from tests.harness.campaign.stopped_process import Stopped
from tests.harness.campaign.storm import Storm

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
        HostileRepoNewestGit,
        Limits,
        SmallDisk,
        Clocks,
        HostileWords,
        Fsyncs,
        Stopped,
        Users,
    )
}
