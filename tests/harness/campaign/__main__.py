"""`python -m tests.harness.campaign`: every family of faults and every mutant; 1 when a promise was broken."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.harness.campaign import mutants
from tests.harness.campaign.families import FAMILIES
from tests.harness.campaign.family import Scope
from tests.harness.campaign.journal import Journal, OtherCampaign
from tests.harness.campaign.mutants import MUTANTS
from tests.harness.campaign.runner import Campaign
from tests.harness.campaign.table import lines, record


def main(argv: Sequence[str]) -> int:
    arguments = _arguments(argv)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: sys.exit(1))  # each family ends what it started
    scope = Scope(arguments.seed, long=arguments.long, share=arguments.share)
    try:
        journal = Journal(Path(arguments.go_on), scope) if arguments.go_on else None
    except OtherCampaign as error:
        print(f"{error} Give the same --seed, or another file.", file=sys.stderr)
        return 2
    campaign = Campaign(scope, jobs=arguments.jobs, stop_after=arguments.stop_after, journal=journal)
    if arguments.mutants:
        chosen = [mutant for mutant in MUTANTS if arguments.mutants in (mutant.name, "all")]
        if not chosen:
            print(f"There is no mutant '{arguments.mutants}'; mutants.py lists them.", file=sys.stderr)
            return 2
        judged = mutants.table(campaign, chosen)
        return 0 if all(one.is_killed for one in judged) else 1
    if arguments.replay:
        name, _, case = arguments.replay.partition(":")
        if name not in FAMILIES:
            print(f"There is no family '{name}'; there are {', '.join(FAMILIES)}.", file=sys.stderr)
            return 2
        tally = campaign.replay(FAMILIES[name](arguments.broken), case, arguments.broken, arguments.times)
        if arguments.times > 1:
            print(f"{tally.cases} times: {len(tally.violating)} violated, {len(tally.missed)} not reached")
        print("violated" if tally.violating else "not reached" if tally.missed else "held")
        return 1 if tally.violating else 0
    for name in arguments.only or FAMILIES:
        campaign.play(FAMILIES[name](""))
    judged = [] if arguments.only else mutants.table(campaign, MUTANTS)
    print("\n".join(lines(campaign.tallies)))
    print(f"seed {arguments.seed}")
    if arguments.record:
        record(Path(arguments.record), campaign.tallies, judged, scope, note=journal.note if journal else "")
    is_broken = any(tally.violating for tally in campaign.tallies) or not all(one.is_killed for one in judged)
    return 1 if is_broken else 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.harness.campaign", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=list(FAMILIES), help="this family, no mutants; may be given again"
    )
    parser.add_argument("--replay", metavar="FAMILY:CASE", help="one case, as a violation prints it")
    parser.add_argument("--times", type=int, default=1, metavar="N", help="with --replay: play it so often")
    parser.add_argument("--break", dest="broken", default="", metavar="MUTANT", help="with --replay: play this mutant")
    parser.add_argument(
        "--mutants", nargs="?", const="all", metavar="CHECK", help="leave out each check in turn: is it noticed?"
    )
    parser.add_argument("--long", action="store_true", help="all that there is, for hours")
    parser.add_argument("--share", type=float, default=1.0, help="of the usual number of cases (1.0)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="for everything that is picked at random")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), help="worker processes")
    parser.add_argument("--stop-after", type=int, default=5, metavar="N", help="violating cases of a family (5)")
    parser.add_argument(
        "--go-on", metavar="FILE", help="note what was played there, and leave out what is there; with the same --seed"
    )
    parser.add_argument("--record", metavar="FILE", help="keep the table, as JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
