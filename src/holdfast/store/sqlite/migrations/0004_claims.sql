-- What an agent says of itself: the result that it claimed, and how far its reports were taken in. Both JSON.
ALTER TABLE runs ADD COLUMN claim TEXT;
ALTER TABLE runs ADD COLUMN reports TEXT;
