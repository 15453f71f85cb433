"""The read model of every `--json` output. scripts/json_schemas.py makes the JSON Schemas and docs/reference/json.md
from this table. No command imports it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.api.fleet import models as fleet
from holdfast.api.fleet import schedule_models as schedules
from holdfast.api.home import models as home
from holdfast.api.tasks import models as tasks
from holdfast.api.work import models as work

# A command with its action or option → the models of its lines. Of several rows that fit, the longest counts.
OUTPUTS: Mapping[str, tuple[type, ...]] = {
    "accounts": (fleet.AccountRow,),
    "accounts resume": (fleet.AccountResumedRow,),
    "add": (tasks.AddedRow,),
    "add --from": (tasks.AddedRow, tasks.AddedListRow),
    "agents": (home.AgentCliRow,),
    "alerts": (fleet.AlertRow,),
    "alerts ack": (fleet.AcknowledgedRow,),
    "alerts test": (fleet.DeliveryTest,),
    "approve": (tasks.ApprovedRow, tasks.TaskResultRow),
    "backup": (home.BackupRow,),
    "branches": (work.BranchRow,),
    "branches prune": (work.PrunedBranchRow,),
    "cancel": (tasks.CancelledRow, tasks.TaskResultRow),
    "config check": (home.SettingMistakeRow,),
    "config path": (home.SettingsFileRow,),
    "config show": (home.SettingRow,),
    "crashes": (fleet.CrashRow,),
    "dispatch": (fleet.HoldRow,),
    "dispatch release": (fleet.ReleasedRow,),
    "doctor": (home.FindingRow,),
    "doctor --invariants": (home.ViolationRow,),
    "down": (home.StoppedRow,),
    "events": (home.EventRow,),
    "init": (home.InitRow,),
    "keep": (work.KeptRow,),
    "logs": (tasks.LogRow,),
    "merge": (work.MergedRow, tasks.TaskResultRow),
    "pause": (tasks.PausedRow, tasks.TaskResultRow),
    "pr": (work.PullRequestRow,),
    "ps": (tasks.TaskRow,),
    "ps --watch": (tasks.TaskRow, tasks.ForgottenTaskRow),
    "purge": (home.PurgedRow,),
    "rehearse": (tasks.RehearsedRow,),
    "rehearse --agent": (tasks.RehearsedAgentRow,),
    "report": (tasks.ReportRow,),
    "restore": (home.RestoredRow,),
    "resume": (tasks.QueuedAgainRow, tasks.TaskResultRow),
    "retry": (tasks.QueuedAgainRow, tasks.TaskResultRow),
    "run": (tasks.TaskDetails,),
    "salvage list": (work.SalvageRow,),
    "salvage prune": (work.SalvageDroppedRow,),
    "salvage restore": (work.SalvageRestoredRow,),
    "salvage show": (work.SalvageFiles,),
    "salvage show --patch": (work.SalvagePatch,),
    "schedule": (schedules.ScheduleListRow, schedules.ScheduleProblemRow),
    "schedule disable": (schedules.ScheduleSwitchedRow,),
    "schedule enable": (schedules.ScheduleSwitchedRow,),
    "schedule fire": (schedules.ScheduleFiredRow,),
    "schedule show": (schedules.ScheduleDetails,),
    "send": (tasks.SentRow, tasks.TaskResultRow),
    "service install": (home.ServiceChangeRow,),
    "service show": (home.ServiceRow,),
    "service uninstall": (home.ServiceChangeRow,),
    "set": (tasks.ChangedRow, tasks.TaskResultRow),
    "show": (tasks.TaskDetails,),
    "show --prompt": (tasks.PromptRow,),
    "show --results": (tasks.ResultsRow,),
    "stats": (schedules.StatsRow,),
    "stats --by": (schedules.StatsRow, schedules.TaskSumsRow),
    "sweep": (home.SweptRow,),
    "sweep --dry-run": (home.SweepFinding,),
    "top": (fleet.SnapshotRow,),
    "tracker": (schedules.TrackerListRow, schedules.LinkListRow),
    "tracker sync": (schedules.SyncRow,),
    "trust": (home.TrustQuestionRow,),
    "trust --list": (home.TrustRow,),
    "trust --revoke": (home.RevokedRow,),
    "up": (home.StartedRow,),
    "wait": (tasks.RestingRow,),
    "why": (tasks.WhyRow,),
    "worker": (fleet.WorkerRow,),
    "worker restart": (fleet.WorkerRow,),
    "worker start": (fleet.WorkerRow,),
    "worker stop": (fleet.WorkerRow,),
    "workflows": (schedules.WorkflowRow, schedules.WorkflowProblemRow),
    "workspaces": (work.WorkspaceRow,),
    "workspaces clean": (work.CleanedRow,),
}

# The last line of standard error where a command with `--json` ends with an error.
ERROR = home.ErrorRow

# Commands without `--json`, each with the reason.
WITHOUT_JSON: Mapping[str, str] = {
    "agent": "it reports to Holdfast and prints nothing",
    "completion": "its output is a script for a shell",
    "diff": "its output is a patch",
    "help": "its output is text; `--schema` prints JSON",
    "shell": "it is a shell",
}
