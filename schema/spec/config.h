// config.yaml of a home: what a person says once about this machine and its cluster. Read strictly, by the reader of specs: an unknown key,
// a duplicate, a value of another type is an error with file, line, column and caret. A home without the file has the defaults.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include "schema/base/text.h"
#include "schema/spec/spec.h"
#include <stdbool.h>
#include <stdint.h>

#define CONFIG_FILE "config.yaml"

enum config_gpus { SLURM_GRES, SLURM_GPUS_PER_NODE }; // --gres=gpu:N, --gpus-per-node=N

enum { CONFIG_PARTITIONS_MAX = 256, CONFIG_GPUS_MAX = 64, CONFIG_HOSTS_MAX = 32 };

struct config_partition {
    char *name;
    int64_t nodes, cpus_per_node; // 0: not stated
    int64_t gpus_per_node;        // 0: none
    int64_t memory_per_node;                     // bytes; 0: not stated
    double time_limit;                           // seconds; 0: none, or not stated
};

struct config_slurm {
    char *mpi;                // srun's --mpi; NULL: pmix
    enum config_gpus gpus;
    char *gpu_type;           // NULL: any
    char *partition, *account; // of runs that name none; NULL: Slurm's own default
    int64_t max_submit_jobs;  // jobs that a user may have at once; 0: not stated
    int64_t max_array_size;   // 0: not stated
    struct config_partition *partitions;
    size_t partitions_count;
};

struct config {
    char *path;                     // of the file
    bool found;                     // there is one
    struct spec_list allowed_hosts; // more names that browsers may call the daemon by
    int64_t gpus;                   // of this machine, for local runs; -1: those that are found
    struct config_slurm slurm;
};

// Reads home/config.yaml. 0 also where there is none; -1 with all that is wrong in err. Release in both cases.
int config_load(struct config *config, const char *home, struct error *err);
void config_release(struct config *config);
const struct config_partition *config_find_partition(const struct config_slurm *slurm, const char *name); // NULL if it is not listed

// The effective configuration, defaults filled in: as JSON, and as a config.yaml.
struct json *config_to_json(const struct config *config);
