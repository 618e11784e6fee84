// How many jobs runs become on Slurm, and how many of these go out as elements of arrays: for `plan`, and for whoever submits them. It is told by
// what decides it when they are handed over (array.h): which runs may share an array, and how many go in one. If all may go at once, that is:
// of a sweep whose trials wait for a canary, or for a place, arrays are more and smaller.
#pragma once
#include "daemon/exec/launch.h"

struct slurm_tally {
    struct json *kinds; // array_key → how many; NULL: none yet
    size_t jobs;
};
void slurm_tally_add(struct slurm_tally *tally, const struct launch *launch, const char *run_directory);
// {"jobs", "arrays", "elements", "max_array_size", "max_submit_jobs"}, js_null() where there was none. Releases the tally.
struct json *slurm_tally_end(struct slurm_tally *tally, const struct config_slurm *site);
// The same in words; NULL for js_null(). free()
char *slurm_tally_words(const struct json *tally);
