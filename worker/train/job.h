// What a worker was asked to do: run.json of a run directory, read and checked, and which attempt this is.
#pragma once
#include "schema/base/json.h"
#include "schema/spec/spec.h"
#include "worker/data/data.h"
#include "worker/parallel/comm.h"

struct job {
    char *run_directory;    // absolute
    struct json *run;       // run.json
    const char *project, *name, *run_id; // lent from run
    struct spec spec;       // kind "train" only
    struct blend_part *parts; // the pairs to train on; prefixes lent from run
    size_t part_count;
    char *from;             // checkpoint directory to take weights from; NULL: initial values
    int64_t attempt;        // 0 until job_claim
};

// kind: "train" or "tokenize". Everything wrong is an error of the input (exit 2).
int job_open(struct job *job, const char *run_directory, const char *kind, struct error *err);
void job_release(struct job *job);

// The attempt that job.sh claimed (SWITCHYARD_ATTEMPT), else the next free one, claimed here by mkdir. One process of a job calls it.
int job_claim(struct job *job, struct error *err);
bool job_is_fenced(const struct job *job); // a newer attempt exists: this one writes nothing any more

// Makes one outcome of many: if any rank has status != 0, all return -1 with the sentence of the lowest such rank. Collective.
int agree(struct comm *world, int status, struct error *err);
