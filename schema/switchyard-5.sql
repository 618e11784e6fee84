-- switchyard.db, version 5: what a list says of a run that has ended, so that its curve is not read for it. It follows from the run's rows in
-- Trackio: where it is missing, or the run goes on, it is found anew. last: {metric: value} of those that lists show; diverged_step: 0 where
-- the loss is finite.

CREATE TABLE outcomes (
    run INTEGER PRIMARY KEY REFERENCES runs(id),
    step INTEGER NOT NULL,
    diverged_step INTEGER NOT NULL,
    last TEXT NOT NULL
);
