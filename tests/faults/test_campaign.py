"""The fault campaign, sampled: `make faults` plays all of its families and prints their table."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.test_matrix import SEED
from tests.fleet import wait_until
from tests.harness import ROOT
from tests.harness.campaign.clocks import Clocks
from tests.harness.campaign.families import FAMILIES
from tests.harness.campaign.family import Played, Scope, Tally
from tests.harness.campaign.fsync_order import Synced
from tests.harness.campaign.pages import reliability
from tests.harness.campaign.table import record
from tests.sampling import amount


def campaign(*words: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.harness.campaign", *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def test_torn_stores_open_with_what_was_acknowledged_or_are_refused() -> None:
    """Promise 1: a sample of logs cut at a sector and bytes that are not what was written."""
    share = amount(4, in_all=100) / 100
    done = campaign("--only", "cut-log", "--only", "bad-bytes", "--share", share / 10, "--seed", SEED, "--jobs", 2)
    assert done.returncode == 0, done.stdout[-4000:]
    counted = re.search(r"^all +(\d+) +\d+ +\d+ +\d+ +0$", done.stdout, re.M)
    assert counted is not None, done.stdout
    assert int(counted[1]) >= 4


def test_a_planted_secret_is_nowhere() -> None:
    """A sample: planted in some place, told in some way, searched for everywhere."""
    done = campaign("--only", "canaries", "--share", amount(1, in_all=40) / 40, "--seed", SEED, "--jobs", 1)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"^canaries +[1-9]", done.stdout, re.M) is not None, done.stdout


def test_a_case_is_replayed_to_the_same_point() -> None:
    """Determinism: the command that a violation prints comes to the same point and shows the same thing, ten times."""
    case = "single:cancel/up/worktree.added:1:kill"
    broken = campaign("--replay", case, "--break", "intent", "--times", 10, "--jobs", 2)
    assert broken.returncode == 1, broken.stdout
    assert "10 times: 10 violated, 0 not reached" in broken.stdout, broken.stdout
    assert broken.stdout.count("leaked: directory") == 10
    assert f"--replay '{case}' --break intent" in broken.stdout
    held = campaign("--replay", case, "--times", 2, "--jobs", 2)
    assert held.stdout.endswith("2 times: 0 violated, 0 not reached\nheld\n"), held.stdout


def test_a_campaign_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    """What was played is counted, not played again; with another seed the cases would be others, so that is refused."""
    journal, words = tmp_path / "journal", ("--only", "cut-log", "--share", 0.01, "--jobs", 1, "--go-on")
    first = campaign(*words, journal, "--seed", 5)
    assert first.returncode == 0, first.stdout
    head, *played = journal.read_text().splitlines()
    assert len(played) >= 2
    journal.write_text("\n".join([head, *played[1:], played[0][:9]]))  # killed while it noted the first one
    again = campaign(*words, journal, "--seed", 5)
    assert again.returncode == 0, again.stdout
    assert re.findall(r"^cut-log +\d+ +\d+", again.stdout, re.M) == re.findall(
        r"^cut-log +\d+ +\d+", first.stdout, re.M
    )
    assert sum(line.endswith("}") and '"case"' in line for line in journal.read_text().splitlines()) == len(played)
    other = campaign(*words, journal, "--seed", 6)
    assert (other.returncode, "journal of another campaign" in other.stderr) == (2, True)


def test_a_record_keeps_the_campaigns_before_it(tmp_path: Path) -> None:
    """Issue 18: each seed is a line of docs/reliability.md, with a sum. What was red is not replaced by another run."""
    kept, words = tmp_path / "campaign.json", tmp_path / "words.md"
    words.write_text("{{figures}}{{mutants}}")
    red = Tally("git", cases=3, violating=[Played("a/git:1:die", ("lost: x",))])
    record(kept, [red], [], Scope(5))
    done = campaign("--only", "cut-log", "--share", 0.01, "--jobs", 1, "--seed", 5, "--record", kept)
    assert done.returncode == 0, done.stdout
    first, second = json.loads(kept.read_text())
    assert (first["seed"], first["violations"], second["seed"], second["violations"]) == (5, ["git:a/git:1:die"], 5, [])
    assert ("families" in first, "families" in second) == (False, True), "only the last one is kept whole"
    page = reliability(words, kept)
    assert f"2 campaigns with 1 seed: {3 + second['cases']} cases, 1 violation." in page
    assert "| 5 |" in page
    assert "`git:a/git:1:die`" in page
    for seed in range(6, 12):
        record(kept, [], [], Scope(seed))
    assert [run["seed"] for run in json.loads(kept.read_text())] == list(range(6, 12))


def test_an_unknown_family_is_named() -> None:
    done = campaign("--replay", "nonsense:1")
    assert (done.returncode, "There is no family 'nonsense'" in done.stderr) == (2, True)


def test_the_owner_marker_is_on_disk_before_git_makes_the_workspace() -> None:
    """Found by `--replay synced:owner.json`: its directory was never synced, so a power loss could leave a workspace
    without the only record that says it is ours."""
    if why := Synced().absent():
        pytest.skip(f"NOT RUN: {why}")
    held = campaign("--replay", "synced:owner.json")
    assert held.stdout.endswith("held\n"), held.stdout
    broken = campaign("--replay", "synced:owner.json", "--break", "sync-folder-owner.json")
    assert "lost: owner.json was relied on before its directory was synced" in broken.stdout, broken.stdout


def test_bad_circumstances_are_survived() -> None:
    """All promises: a limit of the system, and a disk of 2 MB that fills and is freed. Others in `make faults`."""
    share = amount(1, in_all=30) / 30
    done = campaign("--only", "limits", "--only", "small-disk", "--share", share, "--seed", 4, "--jobs", 2)
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"^all .* 0$", done.stdout, re.M), done.stdout


ENDLESS = """
import signal, sys
from pathlib import Path
from tests.harness.campaign.family import Scope
from tests.harness.campaign.runner import Campaign

class Endless:
    name = about = "endless"
    absent = staticmethod(lambda: "")
    prepare = staticmethod(lambda root: None)
    cases = staticmethod(lambda scope, run: ["1", "2", "3", "4"])

    @staticmethod
    def play(case):
        try:
            Path(sys.argv[1], f"begun-{case}").touch()
            while True:
                signal.pause()
        finally:
            Path(sys.argv[1], f"cleaned-{case}").touch()

signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
Campaign(Scope(1), jobs=2).play(Endless)
"""


@pytest.mark.parametrize("to_all", [False, True], ids=["alone", "with its group"])
def test_a_campaign_that_is_told_to_end_ends_and_cleans_up(tmp_path: Path, to_all: bool) -> None:
    """Found by a campaign of `small-disk` that never ended on SIGTERM: its workers took that for the answer of a case,
    and waited for the next one, which nobody gave them."""
    process = subprocess.Popen([sys.executable, "-c", ENDLESS, tmp_path], start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("begun-*"))) == 2, "both workers play")
        if to_all:
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.terminate()
        assert process.wait(60) == 1
    finally:
        process.kill()
    begun = {path.name.removeprefix("begun-") for path in tmp_path.glob("begun-*")}
    assert begun == {path.name.removeprefix("cleaned-") for path in tmp_path.glob("cleaned-*")}


HALF_SAID = """
import os, signal
from tests.harness.campaign.family import Played, Scope
from tests.harness.campaign.runner import Campaign

class Ended:
    def __reduce__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        return (Ended, ())

class Between:
    name = about = "between"
    absent = staticmethod(lambda: "")
    prepare = staticmethod(lambda root: None)
    cases = staticmethod(lambda scope, run: ["1", "2"])
    play = staticmethod(lambda case: Played(case, found=Ended()))

Campaign(Scope(1), jobs=1).play(Between)
"""


def test_a_worker_that_is_told_to_end_between_two_cases_ends() -> None:
    """Found by reading, after mutants that never ended or said `EOFError: Ran out of input`: the pool took the
    exception for an answer, and from then on the worker heard no signal. Here it comes while a result is packed."""
    done = subprocess.run([sys.executable, "-c", HALF_SAID], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "BrokenProcessPool" in done.stderr, done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_campaign_that_is_ended_leaves_no_process(tmp_path: Path, number: signal.Signals) -> None:
    """Found by a SIGTERM for the family `clock`, whose supervisors lived on, and by SIGKILL: workers did."""
    if why := Clocks().absent():
        pytest.skip(f"NOT RUN: {why}")
    words = [sys.executable, "-m", "tests.harness.campaign", "--replay", "clock:work/working/none", "--times", "9"]
    marked = {**os.environ, "PATH": f"{os.environ['PATH']}:{tmp_path}"}  # all that it starts has that, too
    process = subprocess.Popen([*words, "--jobs", "1"], env=marked, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: any("keeper.py" in words for words in _marked(tmp_path)), "a case is in the middle")
        process.send_signal(number)
        process.wait(60)
        wait_until(lambda: not _marked(tmp_path), "nothing of it is left")
    finally:
        process.kill()


def _marked(place: Path) -> list[str]:
    """The command lines of processes that have this place in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(place).encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
    return found


def test_an_unknown_mutant_is_named() -> None:
    """Found by reading: `--mutants` with a mistyped name judged none, and said that all was well."""
    done = campaign("--mutants", "nonsense")
    assert (done.returncode, "There is no mutant 'nonsense'" in done.stderr) == (2, True)


def test_a_clock_that_leaps_ahead_deletes_nothing() -> None:
    """Promise 1, found by this case: everything looked old at once, and was deleted minutes after it was made."""
    if why := Clocks().absent():
        pytest.skip(f"NOT RUN: {why}")
    held = campaign("--replay", "clock:kept/ended/+10y")
    assert held.stdout.endswith("held\n"), held.stdout


def test_a_failed_fsync_records_nothing() -> None:
    """Promise 1 on a bad disk: the supervisor's commit fails and is done again; that a failed fsync of a record is
    not heeded would be noticed."""
    if why := Synced().absent():
        pytest.skip(f"NOT RUN: {why}")
    held = campaign("--replay", "fsync:up/fdatasync=EIO@9")
    assert held.stdout.endswith("held\n"), held.stdout
    broken = campaign("--replay", "fsync:every/fsync=EIO@3", "--break", "heed-sync")
    assert "lost: intent.json got its name, but its content could not be synced" in broken.stdout, broken.stdout


@pytest.mark.parametrize(("family", "mutant"), [("hostile-repo", "config-view"), ("newest-git", "config-allow-list")])
def test_a_hostile_repository_runs_nothing_and_its_settings_are_why(family: str, mutant: str) -> None:
    """Finding F0: an agent's hooks, filters and aliases, with this machine's git and with the newest one, which runs
    hooks of a configuration. Without the protection the same case shows what ran."""
    if why := FAMILIES[family]("").absent():
        pytest.skip(f"NOT RUN: {why}")
    judged = campaign("--mutants", mutant, "--jobs", 2)
    assert re.search(rf"^killed +{mutant} ", judged.stdout, re.M), judged.stdout
    assert "leaked: a trap ran as us" in judged.stdout
    assert judged.returncode == 0


def test_people_beside_holdfast_lose_nothing() -> None:
    """All promises: the user's gc under an agent's stash, and a mutant of it; a purge that is killed half way."""
    held = campaign("--replay", "users:stash/detached")
    assert held.stdout.endswith("held\n"), held.stdout
    broken = campaign("--replay", "users:stash/detached", "--break", "stashes")
    assert "lost: bytes: hidden.txt" in broken.stdout, broken.stdout
    killed = campaign("--replay", "users:purge/60")
    assert killed.stdout.endswith("held\n"), killed.stdout


def test_a_supervisor_that_was_replaced_leaves_the_agents_to_the_next() -> None:
    """Promise 3, found by the 100 s case of this family: it ended them, and their work was done again."""
    held = campaign("--replay", "stopped:supervisor/working/patient-usurped/2")
    assert held.stdout.endswith("held\n"), held.stdout
