// The daemon's heart: one struct, one lock, one tick. The HTTP threads and the tick thread meet only here. Requests answer with JSON that
// the HTTP layer sends unchanged and the CLI prints with --json, so each shape is described once: here, and in schema/openapi.yaml.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct daemon;

struct daemon_options {
    const char *home;       // SWITCHYARD_HOME, absolute
    const char *trackio;    // TRACKIO_DIR, absolute
    const char *worker;     // path of switchyard-worker
    const char *job_script; // path of job.sh (written to home at start from an embedded copy)
    int64_t gpus;           // of this machine, as the command line declares them; -1: as config.yaml says, else those that are found
};

// Reads config.yaml, takes the home's flock (one daemon a home), opens the stores, finds running jobs again.
int daemon_open(struct daemon **daemon, const struct daemon_options *options, struct error *err);
void daemon_close(struct daemon *daemon);
// One round: poll executors, ingest records, judge states, start what is ready. Returns milliseconds until the next one should
// run; -1: its database is gone, and it cannot go on.
int daemon_tick(struct daemon *daemon);
// Wakes the tick loop (after a submission or a cancel). daemon_wait sleeps until then or the timeout.
void daemon_wake(struct daemon *daemon);
void daemon_wait(struct daemon *daemon, int timeout_ms);

// HTTP status that a failed request should answer with: 400 bad request, 404 no such run, 409 not possible in this state, 500.
struct answer {
    int status;
    struct json *body;
    struct error error;
};
void answer_release(struct answer *answer);

// body: {"id": a word for it|absent, "path", "text", "name"|null, "environment": {…}, "runs": [resolved spec JSON, or {"like": index of one that is
// given in full, "change": a merge patch}, …], "relations": [{"kind", "needs": [indices of runs],
// "entry", "sweep": {key: value}|null}, …] (of each run, or none), "concurrency": most trials at once}. 201: {"runs":
// [{"project","name","run_id","kind"}], "left_out": stages that need not run, with their "reason"}
void daemon_submit(struct daemon *daemon, const struct json *body, struct answer *answer);
// {"submissions": [{"id": the client's word or null, "runs", "done", "phase": checking, naming, writing, storing}]} that are under way
void daemon_submissions(struct daemon *daemon, struct answer *answer);
void daemon_submission_cancel(struct daemon *daemon, const char *id, struct answer *answer); // 202; asked while it is not complete, nothing of it stays
void daemon_end_submissions(struct daemon *daemon); // none will be completed any more: the daemon is about to end
// {"runs": [{project, name, run_id, kind, state, reason, attempt, submission, step, iterations, progress 0..1, eta_seconds|null, loss|null,
//   diverged_step|null (from which on its loss is not finite), validation_loss|null, tokens_per_second|null, commit, dirty, created, started, ended, directory, experts}]}  newest first
void daemon_list(struct daemon *daemon, const char *project, struct answer *answer);
// The list's members and attempts [{number, job_id, state, started, ended, code, signal}], provenance {}, plan {}, measured {the worker's end record}|null, spec {}, last
// {metric:value}, events […, of checkpoints also "step"], events_left_out {checkpoints, others}: how many, the oldest of each, argv […],
// metrics [names], needs […]
void daemon_show(struct daemon *daemon, const char *run, struct answer *answer);
// series_read's object under "metrics", and "run", "last_step"
void daemon_metrics(struct daemon *daemon, const char *run, const char *const *names, size_t count, int64_t after_step, int64_t max_points,
    struct answer *answer);
// {"a","b": summaries, "step": last common step, "metrics": {name: {"a","b","difference"}}, "configuration": [{"key","a","b"}] (differences
// only),
//  "predicted": [{"name","a","b","measured_a","measured_b","unit"}], "same_data": true|false|null (sample hashes of common steps), "facts":
//  {code, image, data: same or both}}
void daemon_compare(struct daemon *daemon, const char *a, const char *b, struct answer *answer);
// {"project", "groups": [{"name", "sweep": {key: value}|null, "runs": [names], "seeds": […], "parameters": {total, active}, "metrics": {name: {"mean","least","most"}|null}}],
//  "left_out": [{"name","state","diverged_step"}]}: succeeded runs that did not diverge, those together that differ in name and seed only; oldest first
void daemon_report(struct daemon *daemon, const char *project, struct answer *answer);
void daemon_cancel(struct daemon *daemon, const char *run, struct answer *answer); // 202
// 202: every run of a project (NULL: of all), or of the submission that a run came with (NULL: of all). {"cancelled": that had not begun,
// "stopping": that finish their step}
void daemon_cancel_many(struct daemon *daemon, const char *project, const char *with, struct answer *answer);
// 202; a new attempt that resumes, by the stored argv and options. accepted (an array; NULL: nothing) of "data", "schedule", "model": what may
// differ from the checkpoint from now on.
void daemon_retry(struct daemon *daemon, const char *run, const struct json *accepted, struct answer *answer);
// {"answered": bool, "jobs": [{job_id, run_id, state, name, directory|null}]}: the scheduler's jobs that carry a mark of ours and are no run of
// this database. answered false: it is being asked, come again.
void daemon_strangers(struct daemon *daemon, struct answer *answer);
// 201; takes in a run that this database does not know, from its directory, with everything it recorded.
void daemon_adopt(struct daemon *daemon, const char *directory, struct answer *answer);
// Events after `after` (all runs; -1: none, and which is the last one), waiting up to wait_ms for the first: {"events": […], "last": id}
void daemon_events(struct daemon *daemon, int64_t after, int wait_ms, struct answer *answer);
// Opens a file of the run for reading (logs): stream "stdout" | "stderr" of attempt (0: last). Opened beneath the run directory only. -1
// and answer on failure.
int daemon_open_log(struct daemon *daemon, const char *run, int64_t attempt, const char *stream, struct answer *answer);
// {version, pid, started, home, trackio, config {file|null, read, fault|null}, scheduler {name, answers, silent_since|null, faults […], …}|null, cores,
// gpus, runs_alive, curve_rows_read, ticks {count, recent, cpu_ms_mean, cpu_ms_largest}}
void daemon_health(struct daemon *daemon, struct answer *answer);
// Calls use with the names that config.yaml allows browsers to call this daemon by, as it says now; they are gone when it returns.
void daemon_allowed_hosts(struct daemon *daemon, void (*use)(void *context, const char *const *hosts, size_t count), void *context);
