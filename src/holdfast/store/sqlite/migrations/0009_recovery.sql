-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

-- == check ==

-- == holds ==

-- == budgets ==

-- == alerts ==

-- == workers ==

-- == trackers ==

-- == subtasks ==
-- The last run before a fresh start: a hand-over tells nothing of what was thrown away.
ALTER TABLE tasks ADD COLUMN fresh_after INTEGER NOT NULL DEFAULT 0;

