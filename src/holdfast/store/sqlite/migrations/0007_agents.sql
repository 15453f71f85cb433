-- What a run took, as its agent told it, and under which login it ran.
ALTER TABLE runs ADD COLUMN usage TEXT;                -- JSON: tokens by kind, turns, model; null: it did not say
ALTER TABLE runs ADD COLUMN account TEXT;              -- null: from before there were accounts
