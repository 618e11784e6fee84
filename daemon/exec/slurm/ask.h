// One question to Slurm from the command line, waited for: what the daemon itself never does.
#pragma once
#include "schema/base/text.h"
#include <stdbool.h>

struct slurm_answer {
    int code;                 // exit code
    struct text output, talk; // standard output; standard error
};

// argv[0] is looked for on PATH. False where there is no such command, or it did not come to an end within `seconds`. Release in both cases.
bool slurm_ask(struct slurm_answer *answer, const char *const *argv, double seconds);
void slurm_answer_release(struct slurm_answer *answer);

// When Slurm would start a job with these options of sbatch, by its own estimate.
struct slurm_estimate {
    double starts;        // seconds since 1970; 0: it does not say
    char nodes[256];      // where
    char refusal[512];    // why it would not take the job at all; empty: it would
    char silence[512];    // why there is no estimate
};
// False, with `silence`, where there is no Slurm here, or none that answers.
bool slurm_estimate(struct slurm_estimate *estimate, const char *const *options);
