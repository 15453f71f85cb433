-- Old history is forgotten in the background: finding what refers to a task must not read whole tables.
CREATE INDEX tasks_by_parent ON tasks (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX workspaces_by_task ON workspaces (task_id);
CREATE INDEX requests_by_task ON requests (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX salvages_by_workspace ON salvages (workspace_id);
