-- No query could use it (they ask for "this task's, or all"), and its random keys made every event dirty a page of its own.
DROP INDEX events_by_task;
