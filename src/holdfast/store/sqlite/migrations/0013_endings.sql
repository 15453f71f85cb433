-- Notices of endings: which events of tasks people were told about. History from before this migration is not told.

CREATE TABLE endings_seen (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    seq  INTEGER NOT NULL                                  -- the last event of a task that was looked at
) STRICT;
INSERT INTO endings_seen SELECT 1, coalesce(max(seq), 0) FROM events;
CREATE INDEX events_of_endings ON events (seq)
    WHERE kind IN ('task.failed', 'task.completed', 'task.cancelled', 'task.paused', 'task.resumed');
CREATE INDEX alerts_of_tasks ON alerts (task_id, at) WHERE task_id IS NOT NULL;
