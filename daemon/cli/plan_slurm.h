// What `plan` says of a run that is to be a Slurm job: the very words that sbatch would be given, what the cluster's configuration has
// against it, and what Slurm itself says.
#pragma once
#include "daemon/exec/launch.h"

struct plan_slurm {
    struct json *estimates; // options → what Slurm said, so that runs that ask for the same are asked for once
    bool silent;            // it did not answer: not asked again
    char *silence;          // why it did not
};
void plan_slurm_init(struct plan_slurm *slurm);
void plan_slurm_release(struct plan_slurm *slurm);

// Adds "sbatch", "slurm" (null, or {"starts", "nodes", "refusal"}) and "slurm_silent" (null, or why Slurm did not say) to a run's plan.
void plan_slurm_add(struct plan_slurm *slurm, struct json *item, const struct launch *launch, const char *script, const char *run_directory);
// What the cluster, as config.yaml describes it, could not give this run: sentences.
struct json *plan_slurm_doubts(const struct spec *spec, const struct config_slurm *site);
