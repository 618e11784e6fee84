-- switchyard.db, version 2: runs that are tried again by themselves. retries: how often since a person last asked; retry_at: not handed over
-- before that moment; excluded: nodes that failed under the run, with commas between.

ALTER TABLE runs ADD COLUMN retries INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN retry_at REAL NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN excluded TEXT;

-- An attempt that a newer one took over from is over; version 1 left it open.
UPDATE attempts SET state = 'superseded', ended = started
    WHERE ended = 0 AND number < (SELECT attempt FROM runs WHERE runs.id = attempts.run);
