"""Tasks and what belongs to them: subtasks, task lists, alerts, tracker issues. Pure."""
