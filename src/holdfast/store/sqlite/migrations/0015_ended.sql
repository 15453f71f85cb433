-- Tasks by their end: `ps` lists what failed lately, `top` what ended lately, and neither reads older history.

CREATE INDEX tasks_ended ON tasks (state, ended_at) WHERE ended_at IS NOT NULL;
