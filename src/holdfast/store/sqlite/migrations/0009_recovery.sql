-- Recovery: pauses, checkpoints, holds, budgets, crashes, alerts on their way, workers, trackers, subtasks.

-- == pause ==

-- == check ==

-- == holds ==

-- == budgets ==

-- == alerts ==

-- == workers ==

-- == trackers ==

-- == subtasks ==

