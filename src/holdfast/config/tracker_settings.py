"""The settings of trackers. Part of the table in settings.py."""

from __future__ import annotations

from holdfast.base.units import parse_duration
from holdfast.config.setting import DANGEROUS, Setting
from holdfast.config.values import boolean, one_of, text, words

TRACKERS: dict[str, Setting] = {
    "tracker.kind": Setting(
        "builtin",
        one_of("builtin", "beads"),
        "Where work comes from besides `holdfast add`: `beads` takes ready issues of repositories that have a `.beads` "
        "directory, and runs its command.",
        user_only=DANGEROUS,
    ),
    "tracker.command": Setting(
        [], words, "The command line of the tracker; empty: `br`, else `bd`, from PATH.", user_only=DANGEROUS
    ),
    "tracker.poll": Setting(
        30.0,
        parse_duration,
        "How often a tracker is looked at while there is room for a task; not more often than every 50ms.",
    ),
    "tracker.timeout": Setting(
        10.0, parse_duration, "A tracker's command that takes longer is ended, and asked later."
    ),
    "tracker.label": Setting("", text, "Only issues with this label are taken; empty: all that are ready."),
    "tracker.close_on_complete": Setting(
        True, boolean, "A completed task closes its issue, naming its branch; otherwise a person does."
    ),
}
