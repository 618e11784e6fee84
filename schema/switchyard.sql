-- switchyard.db, version 1: what the daemon knows of experiments, runs, attempts and events. Later versions are further scripts, applied in
-- order, never edits of this one; PRAGMA user_version says where a file is. Times are seconds since 1970; 0: not yet. JSON is compact TEXT.

CREATE TABLE experiments (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    spec_path TEXT,
    spec_text TEXT,
    created REAL NOT NULL
);

CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    experiment INTEGER REFERENCES experiments(id),
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    run_id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT,
    directory TEXT,
    executor TEXT,
    dataset_key TEXT,
    created REAL NOT NULL,
    started REAL NOT NULL DEFAULT 0,
    ended REAL NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    iterations INTEGER NOT NULL DEFAULT 0,
    spec TEXT,
    plan TEXT,
    provenance TEXT,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    UNIQUE (project, name)
);
CREATE INDEX runs_by_state ON runs(state);
CREATE INDEX runs_by_name ON runs(name);
CREATE INDEX runs_by_dataset ON runs(dataset_key) WHERE dataset_key IS NOT NULL;

CREATE TABLE needs (
    run INTEGER NOT NULL REFERENCES runs(id),
    needed INTEGER NOT NULL REFERENCES runs(id),
    PRIMARY KEY (run, needed)
) WITHOUT ROWID;

CREATE TABLE attempts (
    run INTEGER NOT NULL REFERENCES runs(id),
    number INTEGER NOT NULL,
    job TEXT,
    job_started REAL NOT NULL,
    state TEXT,
    started REAL NOT NULL,
    ended REAL NOT NULL,
    code INTEGER NOT NULL,
    ended_by_signal INTEGER NOT NULL,
    ingest_offset INTEGER NOT NULL,
    ingest_sequence INTEGER NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(id),
    time REAL NOT NULL,
    kind TEXT NOT NULL,
    from_state TEXT,
    to_state TEXT,
    reason TEXT,
    witness TEXT NOT NULL
);
CREATE INDEX events_by_run ON events(run, id);

-- Lines of records.jsonl that could not be understood, whole.
CREATE TABLE kept_aside (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(id),
    attempt INTEGER NOT NULL,
    line_offset INTEGER NOT NULL,
    raw BLOB NOT NULL,
    why TEXT,
    UNIQUE (run, attempt, line_offset)
);

-- Records that do not belong in Trackio: expert loads, data hashes, checkpoints, starts, ends, superseded rows. The digest of the body makes
-- storing one twice a no-op.
CREATE TABLE notes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs(id),
    attempt INTEGER NOT NULL,
    kind TEXT NOT NULL,
    step INTEGER NOT NULL,
    digest TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (run, kind, step, attempt, digest)
);
