-- Lists of tasks tell which branches were merged, among thousands of tasks with a dozen events each.

CREATE INDEX events_of_merges ON events (task_id) WHERE kind = 'branch.merged';
