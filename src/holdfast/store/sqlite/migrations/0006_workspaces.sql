-- How long a preserved workspace stays, what belongs to it, and what a salvage is made of.
ALTER TABLE workspaces ADD COLUMN expires_at REAL;     -- preserved: when it goes by itself; null: when somebody says so
ALTER TABLE workspaces ADD COLUMN container TEXT;      -- preserved: the stopped container that belongs to it
ALTER TABLE salvages ADD COLUMN partial INTEGER NOT NULL DEFAULT 0;
ALTER TABLE salvages ADD COLUMN details TEXT NOT NULL DEFAULT '{}';
CREATE INDEX workspaces_expiring ON workspaces (expires_at) WHERE expires_at IS NOT NULL;
