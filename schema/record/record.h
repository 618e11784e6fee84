// The log line: one JSON object a line in records.jsonl, written by rank 0 of the worker, read by the daemon. Lines of kind "metric",
// "system_metric" and "alert" have exactly the form of Trackio's inbox fragments, so the file imports there without us; all others
// ("event", "checkpoint", "data", "expert_load", "start", "end") are ours and are skipped by Trackio.
//
//   metric      {"kind":"metric","v":1,"project","run","run_id","metrics":{…},"step":N,"timestamp":"…","config":null,"log_id"}
//   alert       {"kind":"alert","v":1,"project","run","run_id","title","text","level":"info|warn|error","step","timestamp","alert_id"}
//   event       {"kind":"event","v":1,"run_id","attempt","event":"non_finite_loss|resumed|stopped|…","text","step","timestamp"}
//   checkpoint  {"kind":"checkpoint","v":1,"run_id","attempt","step","directory","bytes","timestamp"}
//   data        {"kind":"data","v":1,"run_id","step","samples_sha256"}            hash of the step's token rows, in sample order
//   expert_load {"kind":"expert_load","v":1,"run_id","step","counts":[[layer 0's E counts],…]}
//   start       {"kind":"start","v":1,"run_id","attempt","timestamp","worker":{version, device, isa, threads, ranks, libraries…},
//                "resumed_from":step|null}
//   end         {"kind":"end","v":1,"run_id","attempt","timestamp","code":N,"alltoall_bytes_per_step":N,
//                "peak_memory_bytes":N (own memory of the rank that has most),"parameters":{…}}
//
// log_id and alert_id: the first 32 hex digits of SHA-256 of "<run_id>/<attempt>/<sequence>", sequence counting metric (or alert) lines of
// the attempt from 0: ingesting a line twice changes nothing.
#pragma once
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>

enum { RECORD_LINE_MAX = 4 << 20 }; // bytes a line, newline included

struct record_writer;

// Opens run_directory/attempt-N/records.jsonl for appending. project, name, run_id are stamped on lines. Opened a second time within an
// attempt, identifiers go on where the file's lines left off, and a torn last line is closed so that it harms no other.
struct record_writer *record_writer_open(const char *run_directory, int64_t attempt, const char *project, const char *name,
    const char *run_id, struct error *err);
void record_writer_close(struct record_writer *writer);

// Each appends one whole line by one write(2), while no newer attempt directory exists; afterwards returns -1 and record_fenced() is
// true for good. A line that the disk took only in part is cut off again. Takes its JSON, in every case.
int record_metrics(struct record_writer *writer, int64_t step, struct json *metrics, struct error *err);
int record_alert(struct record_writer *writer, int64_t step, const char *level, const char *title, const char *text, struct error *err);
int record_event(struct record_writer *writer, int64_t step, const char *event, const char *text, struct error *err);
// Adds kind, v, run_id, attempt, timestamp.
int record_other(struct record_writer *writer, const char *kind, struct json *members, struct error *err);
bool record_fenced(const struct record_writer *writer);

// The identifier described above. Metrics and alerts count apart: Trackio keeps them in separate tables.
enum { RECORD_IDENTIFIER = 33 };
void record_identifier(char out[RECORD_IDENTIFIER], const char *run_id, int64_t attempt, int64_t sequence);

// ---- reading: a cursor over a growing file ----

struct record_reader { // all zero: from the start
    int64_t offset;    // bytes consumed: everything before it has been delivered
    int64_t sequence;  // lines delivered
};

// Calls take for each whole line after reader->offset: parsed, and the raw text without its newline, and where it began. A line that is
// not one JSON object has line NULL: the caller keeps it aside, it is never dropped and stops nothing. A line longer than RECORD_LINE_MAX
// comes in pieces of that size, each malformed. A torn last line is waited for. At most max_lines. Returns lines taken, or -1 (the
// reader then stands after the last line taken). A missing file is 0 lines; one shorter than reader->offset is an error.
int64_t record_read(struct record_reader *reader, const char *path, int64_t max_lines,
    void (*take)(void *context, const struct json *line, const char *raw, size_t raw_bytes, int64_t offset), void *context,
    struct error *err);

// ---- exit record, heartbeat ----

struct exit_record {
    int64_t attempt, code;
    int signal;            // 0: none
    bool cancelled;        // its job was cancelled while it ran, by its scheduler's word in the job's log
    double started, ended; // seconds since 1970
    double ran;            // seconds by the machine's own clock, which nobody sets; NAN: not told
};
// Times in the file are numbers or ISO text as clock_text writes it. 0; -1 also when absent or torn.
int exit_record_read(struct exit_record *record, const char *path, struct error *err);

// The names of an attempt's nodes, an array of strings: by its exit record, else by what job.sh wrote at its begin, else by the heartbeat's host.
// Empty where nothing says it. js_free()
struct json *attempt_nodes(const char *run_directory, int64_t attempt);

// {"v":1,"time":seconds,"step":…,"pid":…,"host":…,"boot":…,"pid_namespace":…}: the last two, for job.sh, where the machine tells them
int heartbeat_write(const char *path, int64_t step, int64_t pid, struct error *err);
double heartbeat_time(const char *path);  // its time, seconds since 1970; NAN if absent or unreadable
int64_t heartbeat_step(const char *path); // its step; -1 if absent or unreadable
// When an attempt last beat, seconds since 1970; before its first beat, when its directory last changed. NAN: it is over, by its exit record, and
// no heartbeat is newer than that: srun ends without a worker whose node was given up, which may go on.
double attempt_last_beat(const char *run_directory, int64_t attempt);
