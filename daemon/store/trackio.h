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

// One batch of parsed record lines of kind metric, system_metric, alert (all of one project), in order. Opens or makes the database.
// Superseding: rows of the same run_id with step ≥ first_step and another attempt's log_id are given to `moved` and deleted in the same
// transaction, when first_step ≥ 0. Returns 0 when all is stored; 1 when the lock could not be had in time (try again later); -1 on error.
int trackio_write(struct trackio *trackio, const char *project, const struct json *const *lines, size_t count, struct error *err);
int trackio_supersede(struct trackio *trackio, const char *project, const char *run_id, int64_t first_step,
    void (*moved)(void *context, int64_t step, const char *timestamp, const char *metrics), void *context, struct error *err);
// Inserts the run's config and one `{}` row at step 0, so that it is listed from the start.
int trackio_announce(struct trackio *trackio, const char *project, const char *run, const char *run_id, const struct json *config, struct error *err);
// Rows of one run with id > after_id: visit(context, id, step, wall seconds, metrics JSON). For rebuilding series, and for reading theirs.
int trackio_each_row(struct trackio *trackio, const char *project, const char *run_id, int64_t after_id,
    void (*visit)(void *context, int64_t id, int64_t step, double time, const struct json *metrics), void *context, struct error *err);
