// Whether a run that ended without success is tried again by itself: by the cause of its end, within a budget, after a pause that doubles.
// Pure, but for reading a spec's JSON.
#pragma once
#include "daemon/core/judge.h"
#include "schema/base/json.h"

#define RETRY_DELAY_MAX 3600.0 // seconds
enum { RETRY_EXCLUDED_MAX = 2048, NODE_NAME_MAX = 64 };

struct retry_policy {
    int64_t limit;  // tries by itself, between two that a person asked for
    double delay;   // seconds before the first; doubles with each
    unsigned causes; // a bit each, by enum cause
};

struct retry_policy retry_policy_of(const struct json *spec);
bool retry_wanted(const struct retry_policy *policy, int64_t used, enum cause cause);
double retry_delay(const struct retry_policy *policy, int64_t used);

// The nodes that failed under a job, added to those that are left out already (NULL: none): the job's only node, or those that its launcher
// named in its last words. Of several nodes without a word, none: the scheduler knows which of them is down. free()
char *retry_exclude(const char *excluded, const char *nodes, const char *last_words);
