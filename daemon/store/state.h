// switchyard.db: what the daemon knows of experiments, runs, attempts and events. One connection, used under the daemon's lock; one
// transaction a call. Migrations are numbered (schema/switchyard.sql holds version 1; PRAGMA user_version says where a file is).
// Strings inside rows belong to the row (state_run_release).
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>

enum run_state {
    RUN_CREATED, RUN_QUEUED, RUN_SUBMITTED, RUN_PENDING, RUN_RUNNING, RUN_FINISHING, // alive
    RUN_SUCCEEDED, RUN_FAILED, RUN_CANCELLED, RUN_TIMED_OUT, RUN_OUT_OF_MEMORY, RUN_LOST // ended
};
const char *run_state_name(enum run_state state);                  // "queued", …
bool run_state_parse(enum run_state *state, const char *name);
static inline bool run_state_ended(enum run_state state)
{
    return state >= RUN_SUCCEEDED;
}

struct state;
int state_open(struct state **state, const char *path, struct error *err); // makes or migrates; refuses network file systems and newer versions
void state_close(struct state *state);
// Looks whether the file and its log are still those that are open. 0: they are; 1: one was removed, and the file has been written anew from
// what is open; -1: another file is in its place, or it cannot be written.
int state_keep_file(struct state *state, struct error *err);

struct run_row {
    int64_t id;
    int64_t experiment;            // the submission it came with
    char project[65], name[65];    // unique together
    char run_id[33];               // random, also the tag of its processes
    char kind[16];                 // train, tokenize, check
    enum run_state state;
    char *reason;                  // why it is in this state, a sentence; may be NULL
    char *directory;               // absolute
    char *executor;                // local, …
    char *dataset_key;             // kind tokenize: content key of what it makes; NULL otherwise
    double created, started, ended; // wall seconds, 0: not yet
    int64_t attempt;               // last attempt, 0: none yet
    int64_t iterations;            // planned steps (train), 0 otherwise
    struct json *spec, *plan, *provenance; // the documents; NULL where only the row was read
    char *commit;                  // of the code, out of the provenance; may be NULL
    int64_t dirty;                 // 1, 0, or -1: not known
    int64_t experts;
    bool cancel_requested;
    int64_t retries;               // automatic ones since a person last asked
    double retry_at;               // wall seconds: not handed over before; 0: at once
    char *excluded;                // nodes that failed under it, with commas between; NULL: none
};
void run_row_release(struct run_row *row);

struct attempt_row {
    int64_t run, number;
    char *job;                     // executor's job id: pid for local
    double job_started;            // the scheduler's or process table's start time of that job: (job, job_started) is never reused
    char *state;                   // running, succeeded, …
    double started, ended;
    int64_t code;                  // exit code, -1: none
    int64_t ended_by_signal;
    int64_t ingest_offset, ingest_sequence; // cursor into this attempt's records.jsonl
};

// Of a submission that is being taken in: not complete before state_complete_experiment.
int64_t state_add_experiment(struct state *state, const char *project, const char *spec_path, const char *spec_text, struct error *err);
// Stores the run in state created; row->name may end in "-" : then the next free number is appended and written back. Fails if the name is taken.
int state_add_run(struct state *state, struct run_row *row, struct error *err);
// ---- submissions (state_submissions.c): many runs by and by, each call a small transaction or part of the caller's ----
// The row alone, with its name and its directory (root/project/name): nothing that is shown.
int state_reserve_run(struct state *state, struct run_row *row, const char *root, struct error *err);
int state_put_documents(struct state *state, const struct run_row *row, struct error *err);
int state_complete_experiment(struct state *state, int64_t experiment, struct error *err); // from here on it will not be undone
// At most limit of an experiment's created runs into the queue, each with its events. How many, or -1.
int64_t state_queue_created(struct state *state, int64_t experiment, int64_t limit, double now, struct error *err);
// Forgets at most limit created runs, and where there are none the experiment too, if it is not complete. How many, or -1.
int64_t state_drop_created(struct state *state, int64_t experiment, int64_t limit, struct error *err);
struct json *state_leftovers(struct state *state, struct error *err); // [{experiment, complete}] whose runs are created
struct json *state_created_directories(struct state *state, int64_t experiment, struct error *err); // {run_id: directory}

int state_add_need(struct state *state, int64_t run, int64_t needed_run, struct error *err);


// ---- trials (state_trials.c): the runs of a sweep, and how many of a submission may go at once ----
int state_set_concurrency(struct state *state, int64_t experiment, int64_t concurrency, struct error *err);
// sweep: {key: value}, the swept keys. entry: what they are trials of.
int state_add_trial(struct state *state, int64_t run, int64_t experiment, const char *entry, const struct json *sweep, struct error *err);
struct trial_row {
    int64_t experiment, concurrency; // concurrency 0: no limit
    char entry[65];
    struct json *sweep; // js_free()
};
int state_get_trial(struct state *state, int64_t run, struct trial_row *trial, struct error *err); // 0 found, 1 none
int64_t state_trials_started(struct state *state, int64_t experiment); // handed to an executor and not over

// ---- outcomes (state_outcomes.c): what lists say of runs that have ended. A run that goes on again has none ----
struct outcome_row {
    int64_t step, diverged_step; // 0: none
    struct json *last; // {metric: value}; js_free()
};
int state_put_outcome(struct state *state, int64_t run, const struct outcome_row *outcome, struct error *err);
int state_get_outcome(struct state *state, int64_t run, struct outcome_row *outcome, struct error *err); // 0 found, 1 none

typedef void state_run_visitor(void *context, const struct run_row *row);
int state_find_run(struct state *state, const char *project, const char *name, struct run_row *row, struct error *err); // 0 found, 1 none
int state_find_run_id(struct state *state, const char *run_id, struct run_row *row, struct error *err);                // 0 found, 1 none
int state_get_run(struct state *state, int64_t id, struct run_row *row, struct error *err);                            // 0 found, 1 none
// A run by what a person types: "project/name", or "name" where it names one run only (2 = several; err lists them).
int state_resolve_run(struct state *state, const char *text, struct run_row *row, struct error *err);
// What may have been meant by such a word that names no run ("; did you mean p/moe-1?"), or "". free()
char *state_run_meant(struct state *state, const char *text);
bool state_has_project(struct state *state, const char *project); // whether a run of it is there
int state_read_documents(struct state *state, struct run_row *row, struct error *err);
// A page of rows with an id above `after`, oldest first, without their documents: at most limit, into rows. The last page is a short one.
int state_runs_after(struct state *state, const char *project, int64_t after, size_t limit, struct run_row *rows, size_t *count, struct error *err);
// What a tick needs to know of a run, without what its spec, plan and provenance hold. The strings are valid
// during the visit only, and the visitor may not change state.
struct run_head {
    int64_t id, attempt, retries;
    double retry_at;
    enum run_state state;
    bool cancel_requested;
    const char *project, *name, *run_id, *kind;
    const char *reason, *directory, *executor, *dataset_key, *excluded; // may be NULL
    const char *job; // of its last attempt; NULL: it has none, or none was handed over
    double job_started;
};
typedef void state_head_visitor(void *context, const struct run_head *head);
int state_each_active(struct state *state, state_head_visitor *visit, void *context, struct error *err); // with an executor; oldest first
int state_head(struct state *state, int64_t run, state_head_visitor *visit, void *context, struct error *err); // of one, in whatever state
// ---- the queue (state_queue.c) ----
struct queued {
    int64_t run, experiment, concurrency; // experiment: of a trial, 0: none; concurrency 0: no limit
    int64_t need;       // a run that it needs and that has not succeeded; 0: none
    int64_t gpus;       // of a node
    double retry_at;
    uint64_t reason;    // string_hash of it; 0: none
    bool here;          // of this machine's executor
};
// All of it, oldest first. free(*queue)
int state_queue(struct state *state, struct queued **queue, size_t *count, struct error *err);
int64_t state_changes(const struct state *state); // grows with every change of a run's state: what has not grown needs no second look
int64_t state_count_alive(struct state *state);
// Runs that are alive with an id below `before`, newest first, of a project (NULL: any) and a submission (0: any).
int state_alive_before(struct state *state, const char *project, int64_t experiment, int64_t before, size_t limit, int64_t *runs,
    enum run_state *states, size_t *count, struct error *err);
int state_dataset_run(struct state *state, const char *dataset_key, struct run_row *row, struct error *err);            // newest tokenize run of that key; 1 none
bool state_dataset_created(struct state *state, const char *dataset_key); // a submission that is not complete has a run of that key
int state_needs(struct state *state, int64_t run, int64_t *needed, size_t max, size_t *count, struct error *err);
// What is said of a run that others wait for. 0 found, 1 none.
struct needed_run {
    enum run_state state;
    char project[65], name[65];
    char reason[512]; // empty: none
};
int state_needed(struct state *state, int64_t run, struct needed_run *needed, struct error *err);
// The names ("project/name") of its needs that have not succeeded, at most max.
struct json *state_open_needs(struct state *state, int64_t run, int64_t max);

// The only way a state changes: run and event in one transaction. Sets started (first time running) and ended; leaving an ended state (a
// retry) clears ended and cancel_requested. The same state with the same reason again changes nothing and is no event. witness: "scheduler", "exit record", "heartbeat", "user", "daemon".
int state_change(struct state *state, int64_t run, enum run_state to, const char *reason, const char *witness, struct error *err);
// A new reason for the same state that is no event: of a run in a queue, which changes its mind every few seconds.
int state_set_reason(struct state *state, int64_t run, const char *reason, struct error *err);
int state_set_retry(struct state *state, int64_t run, int64_t retries, double retry_at, const char *excluded, struct error *err);
int state_set_spec(struct state *state, int64_t run, const struct json *spec, struct error *err);
int state_request_cancel(struct state *state, int64_t run, struct error *err);
// An event that changes no state (non-finite loss, resumed, checkpoint, warning).
int state_add_event(struct state *state, int64_t run, const char *kind, const char *text, const char *witness, double when, struct error *err);
struct json *state_events(struct state *state, int64_t run, struct error *err);         // [{id, time, kind, from, to, reason, witness}]
int64_t state_last_event(struct state *state); // 0: none
// Events of all runs with id > after, oldest first: the live stream. At most 500.
struct json *state_events_after(struct state *state, int64_t after, struct error *err); // […, "run": "project/name"]

int state_put_attempt(struct state *state, const struct attempt_row *attempt, struct error *err); // insert or update; raises the run's attempt
int state_get_attempt(struct state *state, int64_t run, int64_t number, struct attempt_row *attempt, struct error *err); // 1 none
void attempt_row_release(struct attempt_row *attempt);
// Whether an attempt with a lower number ended with exit code 0: 1, 0, or -1.
int state_done_before(struct state *state, int64_t run, int64_t number, struct error *err);
struct json *state_attempts(struct state *state, int64_t run, struct error *err); // [{number, job, job_started, state, started, ended, code|null, signal|null, ingest_offset, ingest_sequence}]
int state_set_provenance(struct state *state, int64_t run, const struct json *provenance, struct error *err);

// Records that do not belong in Trackio: kept aside lines, superseded rows, expert loads, data hashes. Storing one twice changes nothing.
int state_keep_aside(struct state *state, int64_t run, int64_t attempt, int64_t offset, const char *raw, size_t bytes, const char *why, struct error *err);
int state_add_note(struct state *state, int64_t run, int64_t attempt, int64_t step, const char *kind, const struct json *body, struct error *err); // expert_load, data, checkpoint, start, end, superseded
// [{attempt, step, kind, body}], by step; kind NULL: all.
struct json *state_notes(struct state *state, int64_t run, const char *kind, int64_t after_step, int64_t limit, struct error *err);
struct json *state_kept_aside(struct state *state, int64_t run, struct error *err); // [{attempt, offset, raw (at most 4 KiB), why}]
// Batches of the calls above: one transaction, all or nothing.
int state_begin(struct state *state, struct error *err);
int state_end(struct state *state, int status, struct error *err); // stores it where status is 0, else undoes it; -1: nothing of it is stored
// What has kept changes from being stored since a moment of the wall clock; NULL: the last one was. state_try finds out whether that is over.
const char *state_stuck(const struct state *state, double *since);
void state_try(struct state *state);
