"""Would it notice? One protection at a time is removed by a source edit (tests/harness/mutations.py), and a case of the
campaign must go red.

Each case is also played with the protection in place, where it must hold: a case that is always red shows nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.harness.campaign.families import FAMILIES
from tests.harness.campaign.family import Played
from tests.harness.campaign.fsync_order import COMMIT, RECORDS
from tests.harness.campaign.runner import Campaign, replay

KILLED = "killed"
SURVIVED = "SURVIVED"
MORE_TRIES = 2  # as for a fault that is not reached: a usurper on a busy machine may come too late


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str  # of tests/harness/mutations.py
    removes: str
    family: str
    case: str
    sees: str  # what the violation says


MUTANTS: tuple[Mutant, ...] = (
    Mutant("fence", "the fence check on settle", "single", "unhurried/up/settle.ask:1:usurp", "twice: fence"),
    Mutant(
        "intent",
        "the ledger's row before a workspace is made",
        "single",
        "cancel/up/worktree.added:1:kill",
        "leaked: directory",
    ),
    Mutant("salvage", "saving what no branch holds, before a workspace goes", "single", "failure", "lost: bytes"),
    Mutant("vanished", "the check that a workspace is there at the end", "single", "vanished", "lost: bytes"),
    Mutant("stashes", "a checkpoint holds the agent's stashes", "users", "stash/detached", "lost: bytes"),
    Mutant("marker", "the owner's marker beside a workspace", "single", "leftovers", "leaked: "),
    Mutant(
        "cursor", "the cursor and the key of an occurrence in the fire's transaction", "single", "scheduled", "tasks of"
    ),
    Mutant("resume-count", "the count of resumes in the resume's transaction", "single", "limit-again", "loops: "),
    Mutant("adopt-fence", "the higher fence of an adoption", "single", "adoption", "twice: fence"),
    Mutant(
        "checkpoint-fence",
        "the fence check on a checkpoint",
        "single",
        "agent-killed/up/checkpoint.ref:1:usurp",
        "twice: fence",
    ),
    Mutant("emptiness", "the proof that a run's tree is empty", "single", "keeper-killed", "leaked: process"),
    Mutant("lifeline", "a keeper that hears nothing ends its agent", "single", "orphaned", "leaked: process"),
    Mutant("identity", "who a process is, before it is signalled", "single", "bystander", "lost: process"),
    Mutant("start-time", "the start time in a process's identity", "single", "bystander", "lost: process"),
    Mutant("boot-id", "the boot in a process's identity", "single", "bystander", "lost: process"),
    Mutant(
        "lock",
        "the run's lock, which its keeper inherits",
        "single",
        "overtaken/keeper/keeper.forked:1:stop",
        "twice: agent",
    ),
    Mutant("death-first", "a cancel is answered only after the agent's death", "single", "stubborn", "leaked: process"),
    Mutant(
        "intent-file",
        "intent.json before the keeper is spawned, and the look at the lock without one",
        "single",
        "overtaken/keeper/keeper.forked:1:stop+up/nursery.answered:1:kill",
        "silent: agent",
    ),
    Mutant(
        "claim-lease",
        "the claim's own look at the lease",
        "single",
        "unhurried/up/claim.ask:1:usurp",
        "twice: lease",
    ),
    Mutant(
        "go-pipe",
        "an agent waits until it is recorded",
        "single",
        "unrecorded/keeper/keeper.forked:1:stop",
        "silent: agent",
    ),
    Mutant(
        "stale-stop",
        "a supervisor that was away leaves the agents to the one in its place",
        "stopped",
        "supervisor/working/patient-usurped/2",
        "twice: its agent",
    ),
    *(Mutant(f"sync-{record}", f"the fsync of {record}", "synced", record, "lost: ") for record in RECORDS),
    *(
        Mutant(f"sync-folder-{record}", f"the fsync of the directory that {record} is in", "synced", record, "lost: ")
        for record in RECORDS
    ),
    Mutant("redaction", "secrets are taken out of words", "canaries", "env.set/failure/sentence", "leaked: a secret"),
    Mutant(
        "redact-shown",
        "secrets are searched in the text as it is shown",
        "canaries",
        "env.set/failure/coloured",
        "leaked: a secret",
    ),
    Mutant("held-secrets", "a task carries no secret of env.set", "canaries", "own/success/plain", "leaked: a secret"),
    Mutant("allow-list", "an agent gets what is allowed", "canaries", "own/success/plain", "leaked: the agent's"),
    Mutant("private", "the store is its owner's alone", "canaries", "own/success/plain", "is open to others"),
    Mutant(
        "config-view",
        "a configuration of ours in place of the repository's",
        "hostile-repo",
        "agent/clean/good",
        "leaked: a trap ran as us",
    ),
    Mutant(
        "config-allow-list",
        "a repository's settings are in force only if they are on a list",
        "newest-git",
        "agent/odd-jobs/good",
        "leaked: a trap ran as us",
    ),
    Mutant(
        "clean-text",
        "escapes taken out of others' words",
        "hostile-words",
        "tasks/escapes",
        "to the terminal",
    ),
    Mutant("heed-sync", "a failed fsync of a record is heeded", "fsync", "every/fsync=EIO@3", "lost: intent.json"),
    Mutant("sync-commit", "the fsync of the store's commits", "synced", COMMIT, "lost: "),
)


@dataclass(frozen=True, slots=True)
class Judged:
    mutant: Mutant
    verdict: str
    words: str

    @property
    def is_killed(self) -> bool:
        return self.verdict == KILLED


def table(campaign: Campaign, chosen: Sequence[Mutant]) -> list[Judged]:
    """Printed as it goes: each case with the protection in place, then without it."""
    whole = dict.fromkeys((mutant.family, mutant.case) for mutant in chosen)
    wanted = [(FAMILIES[family](""), case) for family, case in whole]
    wanted += [(FAMILIES[mutant.family](mutant.name), mutant.case) for mutant in chosen]
    shown = campaign.side_by_side(wanted)
    held = {key: next(shown) for key in whole}
    judged = []
    for mutant in chosen:
        one = _judge(mutant, held[mutant.family, mutant.case], next(shown))
        for _again in range(MORE_TRIES if one.verdict == SURVIVED else 0):
            (maimed,) = campaign.side_by_side([(FAMILIES[mutant.family](mutant.name), mutant.case)])
            one = _judge(mutant, held[mutant.family, mutant.case], maimed)
            if one.is_killed:
                break
        judged.append(one)
        print(f"{one.verdict:<10} {mutant.name:<26} {mutant.removes}\n           {one.words}", flush=True)
    killed = sum(one.is_killed for one in judged)
    print(f"mutants {len(judged)} · killed {killed} · survived {len(judged) - killed}")
    return judged


def _judge(mutant: Mutant, whole: Played, maimed: Played) -> Judged:
    how = replay(mutant.family, mutant.case, mutant.name)
    if whole.violations:
        return Judged(mutant, "ALWAYS RED", f"{how}: {whole.violations[0]}")
    seen = [words for words in maimed.violations if mutant.sees in words]
    if not seen:
        said = maimed.violations[0] if maimed.violations else "nothing was violated"
        return Judged(mutant, SURVIVED, f"{how}: {said}")
    return Judged(mutant, KILLED, f"{how}: {seen[0][:160]}")
