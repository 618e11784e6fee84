-- switchyard.db, version 4: what is long about a run lies apart from what a list and a tick read of every run, so that ten thousand of them
-- are a few megabytes. A few words of the documents stand in the row: commit and dirty (of the code), experts, gpus (of a node).
-- complete: 0 while a submission is being taken in; a run of it is in state created, and nobody's yet.

CREATE TABLE documents (
    run INTEGER PRIMARY KEY REFERENCES runs(id),
    spec TEXT,
    plan TEXT,
    provenance TEXT
);
INSERT INTO documents(run, spec, plan, provenance) SELECT id, spec, plan, provenance FROM runs;

ALTER TABLE runs ADD COLUMN code_commit TEXT;
ALTER TABLE runs ADD COLUMN code_dirty INTEGER;
ALTER TABLE runs ADD COLUMN experts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN gpus INTEGER NOT NULL DEFAULT 0;
UPDATE runs SET code_commit = json_extract(provenance, '$.code.commit'), code_dirty = json_extract(provenance, '$.code.dirty')
    WHERE json_valid(provenance);
UPDATE runs SET experts = coalesce(json_extract(spec, '$.model.moe.experts'), 0), gpus = coalesce(json_extract(spec, '$.resources.gpus_per_node'), 0)
    WHERE json_valid(spec);
ALTER TABLE runs DROP COLUMN spec;
ALTER TABLE runs DROP COLUMN plan;
ALTER TABLE runs DROP COLUMN provenance;

ALTER TABLE experiments ADD COLUMN complete INTEGER NOT NULL DEFAULT 1;
CREATE INDEX runs_by_experiment ON runs(experiment, state);
CREATE INDEX needs_by_needed ON needs(needed);
