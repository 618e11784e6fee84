// What a run asks Slurm for, in words: sbatch's options and srun's, worked out from a spec's values alone. Pure, so that `plan` shows what
// the daemon will hand over. Each option is one word (--name=value): no value, whatever it holds, can become an option of its own, and
// none is ever read by a shell.
#pragma once
#include "daemon/exec/word_list.h"
#include "schema/base/error.h"
#include "schema/spec/config.h"
#include "schema/spec/spec.h"

#define SLURM_LOG "submit.log" // in the run directory: what the script and Slurm themselves say

struct slurm_shape { // of one job
    int64_t nodes, tasks_per_node;
    int64_t cpus_per_task; // 0: not stated
    int64_t gpus;          // of a node; 0: none
    int64_t memory;        // bytes of a node; 0: not stated
};
struct slurm_shape slurm_shape_train(const struct spec *spec);
struct slurm_shape slurm_shape_tokenize(const struct spec *spec); // one process

// sbatch's options. The job's name is project.run, run being the last word of the run directory. site: what config.yaml says of the
// cluster; NULL: nothing. -1 where the run directory cannot be a job's.
int slurm_options(struct word_list *options, const struct spec *spec, const struct slurm_shape *shape, const struct config_slurm *site,
    const char *run_directory, struct error *err);

// Leaves these nodes (with commas between) out too, unless the run names the nodes that it wants.
void slurm_leave_out(struct word_list *options, const char *nodes);

// srun and its options, for a command that is started once a rank.
void slurm_srun(struct word_list *argv, const struct spec *spec, const struct slurm_shape *shape, const struct config_slurm *site);

// The whole of it: sbatch --parsable --comment=switchyard:RUN_ID:SUBMISSION options… script run_directory [-m MODULE]… -- argv….
// The last four may be NULL where there are none; so is options.
void slurm_sbatch(struct word_list *words, const char *const *options, const char *run_id, long long submission, const char *script,
    const char *run_directory, const char *const *modules, const char *const *argv);

// The options without those that name the run (job's name, directory, output): what runs must have in common that are elements of one array.
void slurm_options_shared(struct word_list *shared, const char *const *options);

struct slurm_array_words {
    const char *id, *directory; // of the array (array.h)
    const char *name;           // the job's
    size_t count;               // elements
    const char *const *options; // what they share
};
// The same for many runs at once: sbatch … --comment=switchyard:array:ID --array=0-N options… script -a DIRECTORY [-m MODULE]… -- argv….
// In argv the array's directory stands for the run's.
void slurm_sbatch_array(struct word_list *words, const struct slurm_array_words *array, const char *script, const char *const *modules,
    const char *const *argv);
