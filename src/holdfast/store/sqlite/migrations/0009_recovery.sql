-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

ALTER TABLE tasks ADD COLUMN forced INTEGER NOT NULL DEFAULT 0; -- an operator lets its next run have a shut account

-- == check ==

-- == holds ==

-- == budgets ==

-- == alerts ==

-- == workers ==

-- == trackers ==

-- == subtasks ==

