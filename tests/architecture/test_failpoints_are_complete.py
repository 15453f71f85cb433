"""No durable step and no outside effect without a crash point, each point at one call site, each one in the matrix.

The check reads the source: whoever adds a rename, a kill, a COMMIT or a writing statement without a point beside it (in
the same function) gets a red test, and so does whoever adds a point that no scenario of the matrix reaches
(tests/faults/test_matrix.py).
"""

from __future__ import annotations

import ast
from collections import Counter

from tests.architecture.points import effect_of, everything

# (file, function) → why it needs no point of its own.
EXEMPT = {
    ("workspaces/git/worktree_entries.py", "prepare_for_git"): "an empty directory; its caller has points around it",
    ("checker/evidence.py", "_fill_view"): "the checker has no points; a temporary directory of its own",
    ("base/faults.py", "_reached"): "it is the points",
    ("base/faults.py", "_inject"): "it is the points",
    ("processes/keeper.py", "fault_point"): "it is the keeper's points",
    ("processes/keeper.py", "signal_exactly"): "its two callers, begin and signal_tree, have one each",
    ("processes/keeper.py", "Keeper.become_agent"): "the child after the fork: it is the agent, not us",
    ("processes/keeper.py", "remove_obstacle"): "its callers, create and _rename, are between points",
    ("processes/keeper.py", "Records._rename"): "its callers, create and _fill, have points on both sides",
    ("processes/run_dir.py", "RunDirectory._rename_obstacle"): "its caller, declare_empty, has points on both sides",
    ("processes/keeper.py", "Keeper.limit_agent"): "the child after the fork, and a file of /proc",
    ("processes/run_dir.py", "RunDirectory.take_lock"): "a lock file: empty, and the kernel forgets the lock",
    ("processes/run_dir.py", "RunDirectory._sync"): "its callers, intend and declare_empty, have points on both sides",
    ("workspaces/removal/owner_marker.py", "_sync"): "its caller, write, has points on both sides",
    ("processes/helpers.py", "HelperLock.__init__"): "a lock file: empty, and the kernel forgets the lock",
    ("store/sqlite/engine/write_queue.py", "WriteQueue.__init__"): "a lock file: the kernel forgets the lock",
    ("store/sqlite/engine/connection.py", "open_connection"): "its making is store.made and tx.migrate",
    ("store/sqlite/events.py", "SqliteEvents.emit"): "always in the transaction of the change that it tells of",
    ("workspaces/git/repo_lock.py", "hold_file_lock"): "a lock file: empty, and the kernel forgets the lock",
    ("workspaces/removal/in_use.py", "lock_exclusive"): "a lock file: empty, and the kernel forgets the lock",
    ("workspaces/removal/in_use.py", "_try_lock"): "a lock file: empty, and the kernel forgets the lock",
    ("workspaces/strategies/copy_checkout.py", "copy_checkout"): "a process of its own; directory.make starts it",
    ("workspaces/removal/root_cleanup.py", "RootCleanup._delete_entry"): "root's own process; the next start repeats",
    ("containers/client.py", "exit_like_agent"): "a helper process of its own, which ends as its container did",
    ("containers/client.py", "main"): "likewise: a signal to itself says that the engine went away",
    ("workspaces/setup/copy_files.py", "_copy_one"): "a helper process of its own; furnish.copy is beside its start",
    ("workspaces/setup/copy_files.py", "_open_folder"): "likewise",
    ("workspaces/snapshots/private_index.py", "_copy_file"): "its caller, _copy_files, has desk.stage before it",
    ("base/files.py", "open_folder_beneath"): "its caller, _copy_files, has desk.stage before it",
    ("base/files.py", "copy_data"): "its callers have points",
    ("base/files.py", "unlink_beneath"): "its caller, drop_stale_locks, has clone.tidy right before it",
    ("workspaces/git/git.py", "_run_truncated"): "its caller, call, has git.call right before it",
    ("agents/common/versions.py", "_end"): "ends a question for a version; clis.version is beside its start",
    ("cli/main.py", "_restart_in_utf8_mode"): "the same command once more, before it has begun",
    ("cli/commands/send.py", "_edited"): "a person's editor, and the file that it writes: nothing is sent yet",
    ("alerts/messenger.py", "find_mistakes"): "a helper that looks at addresses for a command: nothing is sent",
    ("cli/commands/report.py", "_write"): "a file for its user: whole, or not there; the command is repeated",
    ("api/fleet/alerts.py", "record_rung_alerts"): "half a file counts as none: a bell rings once more",
    ("api/home/backup.py", "_lock_backups"): "a lock file: empty, and the kernel forgets the lock",
    ("config/trust.py", "_lock_record"): "a lock file: empty, and the kernel forgets the lock",
    ("store/sqlite/engine/copies.py", "check_copy"): "opens a copy read-only",
    ("store/sqlite/engine/copies.py", "count_records"): "opens a copy read-only",
    ("store/sqlite/engine/copies.py", "sync_file"): "its callers have points on both sides",
    ("store/sqlite/engine/copies.py", "_open_plain"): "its callers have points",
    ("store/sqlite/retention.py", "SqliteOldRecords._forget_task"): "its two callers have a point each",
    ("store/sqlite/alerts.py", "SqliteDeliveries._move"): "its four callers have a point each",
    ("checker/evidence.py", "Evidence.__init__"): "opens the database read-only",
    ("checker/evidence.py", "git"): "the checker's git commands only read",
    ("api/rehearse.py", "rehearse"): "a throw-away home and repository",
    ("api/rehearse.py", "make_repository"): "a throw-away repository",
    ("api/rehearse.py", "rehearse_agent"): "a throw-away home and repository",
    ("api/rehearse.py", "_fresh_login"): "a throw-away login",
    ("api/rehearse.py", "_settings"): "throw-away settings",
}  # fmt: skip


def test_no_effect_goes_around_the_points() -> None:
    """Whoever writes outside without a point beside it (or a reason in EXEMPT) is named here."""
    bare = [
        effect
        for function in everything()
        if not function.points and (function.file, function.name) not in EXEMPT
        for effect in function.effects
    ]
    assert bare == []


def test_each_exemption_is_needed() -> None:
    needed = {(function.file, function.name) for function in everything() if function.effects and not function.points}
    assert set(EXEMPT) - needed == set()


def test_each_point_stands_at_one_call_site() -> None:
    counted = Counter(point for function in everything() for point in function.points)
    assert [point for point, sites in counted.items() if sites > 1] == []
    assert len(counted) >= 60


def test_the_check_sees_what_it_should() -> None:
    """It would notice: each kind of effect in a function without a point."""
    lines = [
        "os.rename(a, b)",
        "open(a, 'w')",
        "open(a, mode='ab')",
        "os.open(a, os.O_RDWR | os.O_CREAT)",
        "self._connection.execute('COMMIT')",
        "self._sql.change('claim')",
        "signal.pidfd_send_signal(a, b)",
        "subprocess.run(a)",
    ]
    for line in lines:
        call = ast.parse(line).body[0]
        assert isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        assert effect_of(call.value) is not None, line
    harmless = ast.parse("open(a, 'rb')").body[0]
    assert isinstance(harmless, ast.Expr)
    assert isinstance(harmless.value, ast.Call)
    assert effect_of(harmless.value) is None
