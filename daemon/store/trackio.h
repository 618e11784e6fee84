// TRACKIO_DIR/<project>.db: exactly Trackio's tables, indexes and user_version (schema/trackio.sql). A database is built under another
// name and renamed in; every write transaction holds Trackio's own <project>.lock for at most about 50 ms, with gaps as long. Writing a
// row twice changes nothing (log_id). Readers need no lock.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include <stdint.h>

struct trackio;
char *trackio_directory(void);                                     // $TRACKIO_DIR, else Trackio's own default; free()
int trackio_open(struct trackio **trackio, const char *directory, struct error *err); // refuses network file systems with the fix named
void trackio_close(struct trackio *trackio);

// Can this line be stored? 0, or -1 and why not: of another kind, no project, run, run_id or log_id, metrics that are no object, a step that is
// no integer. Lines that cannot are for state_keep_aside; trackio_write leaves them out, with a word on stderr.
int trackio_check_line(const struct json *line, struct error *err);
// A name under which Trackio keeps a project: its letters, digits, '-' and '_'. Refuses what Trackio's own init() refuses, and letters beyond
// ASCII (our specs have none).
char *trackio_canonical(const char *project, struct error *err); // free(); NULL on error

// The calls below return 0 when all is stored (and survives a power cut), 1 when the lock could not be had in time (try again later: what is stored already is not stored
// twice), -1 on error.

// One batch of parsed record lines of kind metric, system_metric, alert (all of one project), in order. Opens or makes the database. A run
// that was renamed in Trackio keeps its new name.
int trackio_write(struct trackio *trackio, const char *project, const struct json *const *lines, size_t count, struct error *err);
// A later attempt wins: the run's rows with step >= first_step are given to `moved` and then deleted. Call it when the new attempt starts,
// before its rows are written, and outside a state_begin: what `moved` stores must be stored before the rows go. After a crash it may be called
// again; rows already given may be given once more. moved may be NULL.
int trackio_supersede(struct trackio *trackio, const char *project, const char *run_id, int64_t first_step,
    void (*moved)(void *context, int64_t step, const char *timestamp, const char *metrics), void *context, struct error *err);
// Stores the run's config (_Username, _Created and _Group are added where it has none; a later call replaces it and keeps _Created) and one `{}` row at step 0,
// so that the run is listed from the start.
int trackio_announce(struct trackio *trackio, const char *project, const char *run, const char *run_id, const struct json *config, struct error *err);
// Rows of one run with id > after_id: visit(context, id, step, wall seconds, metrics JSON). For rebuilding series, and for reading theirs. No
// database: no rows, and none is made. visit makes no calls here.
int trackio_each_row(struct trackio *trackio, const char *project, const char *run_id, int64_t after_id,
    void (*visit)(void *context, int64_t id, int64_t step, double time, const struct json *metrics), void *context, struct error *err);
