-- Why a run was told to stop, in words; and why a supervisor starts nothing new at the moment.
ALTER TABLE runs ADD COLUMN stop_reason TEXT;
ALTER TABLE hosts ADD COLUMN held TEXT;
