"""Every event kind and what it says. Names are stable: UIs, hooks and scripts subscribe to them."""

from __future__ import annotations

from collections.abc import Mapping

EVENTS: Mapping[str, str] = {
    "task.queued": "a task was accepted, or an operator asked to run it again",
    "task.claimed": "a supervisor took it; `fence` is the number under which it may write",
    "task.adopted": "a supervisor took it over from a dead one; the fence rose",
    "task.requeued": "it will run again: crash, timeout, loss of its host, or `down`",
    "task.paused": "it waits for a limit, an account or an operator; `resume_after` says until when",
    "task.resumed": "it goes on after a pause; says which resume of how many",
    "task.completed": "it ended well",
    "task.failed": "it ended badly; `failure_reason` is a stable word",
    "task.cancelled": "it was ended by an operator, or because a task that it needs did not complete",
    "task.frozen": "nothing proves that its processes are gone: it is neither run again nor cleaned",
    "run.started": "an agent process runs; its pid is recorded",
    "run.stopping": "we asked a run to end, and why; recorded before the signal",
    "run.ended": "its whole process tree is proven gone; `outcome` says how it ended",
    "agent.terminated": "once per run: how its agent ended, and whether that was unexpected",
    "workspace.created": "a workspace is ready for its task",
    "workspace.kept": "what a successful agent left uncommitted was committed to its branch",
    "workspace.salvaged": "work that no branch holds was saved before the workspace goes",
    "workspace.preserved": "a workspace stays after its task's end, and why",
    "workspace.trashed": "a workspace was renamed away; its path and git entry are free",
    "workspace.gone": "nothing of a workspace is left",
    "workspace.cleanup-failed": "a workspace could not be put away; it is tried again",
    "dispatch.held": "nothing new starts, because the machine has no room: once per episode, with the numbers",
    "dispatch.released": "what waits may start again; `host.lost` ends an episode too",
    "host.started": "a supervisor started",
    "host.stopped": "a supervisor stopped in good order",
    "host.lost": "an earlier supervisor died; its tasks are taken over",
    "recovery.completed": "tasks of an earlier supervisor were taken over at start-up",
    "sweep.completed": "the start-up comparison of ledger and disk",
    "config.reloaded": "the running supervisor took changed settings over; says which",
    "config.rejected": "changed settings have mistakes; the old ones hold until they are mended",
    "store.restored": "the store was brought back from a backup; fences and numbers only rose",
    "repo.forgotten": "a repository and its finished tasks were removed by `holdfast purge --repo`",
    "retention.completed": "old history was forgotten: events, run directories, tasks; says how many",
    "alert.raised": "something needs a person; one per episode",
    "alert.acknowledged": "a person has seen it",
    "attempt.trouble": "a step of a task failed for a passing reason and is tried again",
}
