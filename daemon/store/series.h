// Curves in memory: per run and metric a column of (step, time, value), fed by ingest, rebuilt from Trackio's database at will. A chart
// asks for at most so many points and gets an exact min/max/last envelope per bucket of steps.
#pragma once
#include "schema/base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct series;
struct series *series_new(void);
void series_free(struct series *series);
// One logged row: every finite or non-finite number in metrics goes to its column. Equal steps: the later value wins.
void series_add(struct series *series, const char *run_id, int64_t step, double time, const struct json *metrics);
void series_forget_from(struct series *series, const char *run_id, int64_t first_step); // superseded
void series_forget(struct series *series, const char *run_id);
// Until when a run's curve counts as looked at: steady seconds, or INFINITY. One that was never held counts as looked at for ever.
void series_hold(struct series *series, const char *run_id, double seen);
// Forgets those that were last looked at before that moment, where may(context, run_id) has nothing against it; one that it wants kept is held for ever.
void series_forget_unseen(struct series *series, double before, bool (*may)(void *context, const char *run_id), void *context);
bool series_has(const struct series *series, const char *run_id);
struct json *series_last(const struct series *series, const char *run_id);              // {metric: value}
double series_last_value(const struct series *series, const char *run_id, const char *metric, double fallback);
int64_t series_last_finite_step(const struct series *series, const char *run_id, const char *metric); // 0: none
int64_t series_last_step(const struct series *series, const char *run_id);              // 0: none
struct json *series_names(const struct series *series, const char *run_id);             // [names], sorted
// {metric: {"step":[…],"time":[…],"value":[…],"min":[…],"max":[…],"total":N}} for steps > after_step; min/max absent when every row is there.
// Non-finite values are Trackio's strings. names NULL: all metrics.
struct json *series_read(const struct series *series, const char *run_id, const char *const *names, size_t count, int64_t after_step, int64_t max_points);
