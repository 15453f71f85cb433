-- What a run changed, and which tool calls its agent was refused. Null: unknown, as in every older row.

ALTER TABLE results ADD COLUMN changed INTEGER;        -- how many files differ from the task's base
ALTER TABLE runs ADD COLUMN refused TEXT;              -- JSON: count, and the first ones by name
