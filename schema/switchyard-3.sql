-- switchyard.db, version 3: the trials of sweeps. sweep: {key: value} of the swept keys; entry: the name in the spec that they are
-- trials of. concurrency: most trials of a submission that may go at once; 0: no limit.

ALTER TABLE experiments ADD COLUMN concurrency INTEGER NOT NULL DEFAULT 0;

CREATE TABLE trials (
    run INTEGER PRIMARY KEY REFERENCES runs(id),
    experiment INTEGER NOT NULL REFERENCES experiments(id),
    entry TEXT NOT NULL,
    sweep TEXT NOT NULL
);
CREATE INDEX trials_by_experiment ON trials(experiment);
