#include "daemon/exec/launch.h"
#include "daemon/exec/slurm/options.h"

#include <assert.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void machine_look(struct machine *machine)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    machine->cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : online > 0 ? online : 1;
    machine->root = geteuid() == 0;
    gpus_look(&machine->gpus, "/dev", getenv(GPUS_VARIABLE));
    machine->slurm = NULL;
    FILE *scope = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int restricted = 0;
    if (scope && fscanf(scope, "%d", &restricted) != 1)
        restricted = 0;
    if (scope)
        fclose(scope);
    machine->ptrace_restricted = restricted > 0;
}

static void add_word(struct launch *launch, const char *word)
{
    word_list_add(&launch->argv, word);
}

static void add_variable(struct launch *launch, const char *name, const char *value)
{
    word_list_addf(&launch->environment, "%s=%s", name, value);
}

// One process a rank, one machine: no daemon of mpirun's own, shared memory only. Also read by a rank that runs without mpirun.
static void add_mpi_environment(struct launch *launch, const struct machine *machine)
{
    add_variable(launch, "OMPI_MCA_plm", "isolated");
    add_variable(launch, "OMPI_MCA_pml", "ob1");
    add_variable(launch, "OMPI_MCA_btl", "self,vader");
    if (machine->ptrace_restricted)
        add_variable(launch, "OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    if (machine->root) {
        add_variable(launch, "OMPI_ALLOW_RUN_AS_ROOT", "1");
        add_variable(launch, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
}

// Threads stay where their rank is bound; unbound ones may wander, and must not spin where there are more of them than cores. malloc keeps
// its memory instead of giving it back and touching it anew each step, and asks for huge pages.
static void add_thread_environment(struct launch *launch, bool bound)
{
    char threads[32];
    snprintf(threads, sizeof threads, "%lld", (long long)launch->threads);
    add_variable(launch, "OMP_NUM_THREADS", threads);
    add_variable(launch, "OMP_DYNAMIC", "false");
    add_variable(launch, "OMP_PROC_BIND", bound && launch->threads > 1 ? "close" : "false");
    if (launch->oversubscribed)
        add_variable(launch, "OMP_WAIT_POLICY", "passive");
    add_variable(launch, "MALLOC_MMAP_MAX_", "0");
    add_variable(launch, "MALLOC_TRIM_THRESHOLD_", "68719476736");
    add_variable(launch, "GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
}

// Ranks are bound only where the run has the whole machine: mpirun binds from core 0 on, so two runs side by side would share cores.
static bool add_mpirun(struct launch *launch, const struct machine *machine)
{
    bool bound = !launch->oversubscribed && launch->ranks * launch->threads == machine->cores;
    char number[64];
    add_word(launch, "mpirun");
    add_word(launch, "-n");
    snprintf(number, sizeof number, "%lld", (long long)launch->ranks);
    add_word(launch, number);
    if (bound) {
        snprintf(number, sizeof number, "slot:PE=%lld", (long long)launch->threads);
        add_word(launch, "--map-by");
        add_word(launch, number);
        add_word(launch, "--bind-to");
        add_word(launch, "core:overload-allowed"); // two hardware threads of one core are two CPUs for us, one core for mpirun
    } else {
        add_word(launch, "--bind-to");
        add_word(launch, "none");
    }
    // Also where ranks fit: mpirun counts cores, we count the CPUs that we may use, and the queue has already decided.
    add_word(launch, "--oversubscribe");
    return bound;
}

static int add_user_variables(struct launch *launch, const struct spec_pairs *variables, struct error *err)
{
    if (variables->count > WORD_LIST_MAX / 2)
        return error_set(err, "environment.variables: more than %d variables", WORD_LIST_MAX / 2);
    for (size_t i = 0; i < variables->count; i++) {
        if (!spec_is_variable_name(variables->keys[i]))
            return error_set(err, "environment.variables: '%s' is not a name that a job may set (" SPEC_VARIABLE_NAMES ")", variables->keys[i]);
        add_variable(launch, variables->keys[i], variables->values[i]);
    }
    return 0;
}

// Last, so that the user's word wins. Releases launch where it fails.
static int add_environment(struct launch *launch, const struct spec *spec, struct error *err)
{
    for (size_t i = 0; i < spec->environment.modules.count; i++)
        word_list_add(&launch->modules, spec->environment.modules.items[i]);
    if (add_user_variables(launch, &spec->environment.variables, err) == 0)
        return 0;
    launch_release(launch);
    return -1;
}

// ---- a Slurm job ----

// How ranks talk is the cluster's own business (UCX, libfabric), but for those that compute on one node and share its memory as they do here.
static void add_node_mpi_environment(struct launch *launch, const struct slurm_shape *shape)
{
    if (shape->nodes > 1 || shape->gpus > 0)
        return;
    add_variable(launch, "OMPI_MCA_pml", "ob1");
    add_variable(launch, "OMPI_MCA_btl", "self,vader");
}

// Threads stay on the cores that srun gives their rank; binding each to one of them is left to nobody: a cluster without task affinity
// gives all ranks all cores.
static int launch_slurm(struct launch *launch, const struct spec *spec, const struct slurm_shape *shape, const struct machine *machine, bool ranks,
    const char *const *words, const char *run_directory, struct error *err)
{
    *launch = (struct launch){.ranks = shape->nodes * shape->tasks_per_node, .threads = shape->cpus_per_task ? shape->cpus_per_task : 1};
    if (ranks)
        slurm_srun(&launch->argv, spec, shape, machine->slurm);
    for (; *words; words++)
        add_word(launch, *words);
    if (ranks)
        add_node_mpi_environment(launch, shape);
    add_thread_environment(launch, false);
    if (slurm_options(&launch->options, spec, shape, machine->slurm, run_directory, err) == 0)
        return 0;
    launch_release(launch);
    return -1;
}

// ---- a run, wherever it is ----

int64_t launch_threads(const struct spec *spec, const struct machine *machine)
{
    int64_t share = machine->cores / spec_world_size(spec);
    return spec->resources.threads_per_rank > 0 ? spec->resources.threads_per_rank : share > 0 ? share : 1;
}

static int launch_here(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *const *words)
{
    assert(spec_world_size(spec) >= 1);
    *launch = (struct launch){.ranks = spec_world_size(spec), .threads = launch_threads(spec, machine)};
    launch->oversubscribed = launch->ranks * launch->threads > machine->cores;
    launch->slots = launch->oversubscribed ? machine->cores : launch->ranks * launch->threads;
    launch->gpus = spec->resources.gpus_per_node;
    bool bound = launch->ranks > 1 && add_mpirun(launch, machine);
    for (; *words; words++)
        add_word(launch, *words);
    add_mpi_environment(launch, machine);
    add_thread_environment(launch, bound);
    return 0;
}

static int launch_ranks(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *const *words,
    const char *run_directory, struct error *err)
{
    struct slurm_shape shape = slurm_shape_train(spec);
    int status = spec->executor == EXECUTOR_SLURM ? launch_slurm(launch, spec, &shape, machine, true, words, run_directory, err)
                                                  : launch_here(launch, spec, machine, words);
    return status == 0 ? add_environment(launch, spec, err) : -1;
}

int launch_train(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker,
    const char *run_directory, struct error *err)
{
    return launch_ranks(launch, spec, machine, (const char *const[]){worker, "train", run_directory, NULL}, run_directory, err);
}

int launch_check(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker, const char *check,
    const char *run_directory, struct error *err)
{
    return launch_ranks(launch, spec, machine, (const char *const[]){worker, "check", check, run_directory, NULL}, run_directory, err);
}

int launch_tokenize(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker,
    const char *run_directory, struct error *err)
{
    const char *const words[] = {worker, "tokenize", run_directory, NULL};
    if (spec && spec->executor == EXECUTOR_SLURM) {
        struct slurm_shape shape = slurm_shape_tokenize(spec);
        // The worker's libraries may come from the run's modules and variables.
        return launch_slurm(launch, spec, &shape, machine, false, words, run_directory, err) == 0 ? add_environment(launch, spec, err) : -1;
    }
    *launch = (struct launch){.ranks = 1, .threads = 1, .slots = 1};
    for (const char *const *word = words; *word; word++)
        add_word(launch, *word);
    add_mpi_environment(launch, machine);
    add_thread_environment(launch, false);
    return 0;
}

void launch_show_gpus(struct launch *launch, const struct machine *machine)
{
    if (launch->held.count == 0 && machine->gpus.count == 0)
        return;
    char *words = gpus_text(&launch->held);
    add_variable(launch, GPUS_VARIABLE, words);
    free(words);
}

void launch_leave_out(struct launch *launch, const char *nodes)
{
    if (launch->options.count)
        slurm_leave_out(&launch->options, nodes);
}

void launch_release(struct launch *launch)
{
    word_list_release(&launch->argv);
    word_list_release(&launch->environment);
    word_list_release(&launch->options);
    word_list_release(&launch->modules);
    *launch = (struct launch){0};
}

struct json *launch_to_json(const struct launch *launch)
{
    struct json *json = js_object();
    js_set(json, "argv", word_list_to_json(&launch->argv));
    js_set(json, "environment", word_list_to_json(&launch->environment));
    js_set(json, "options", word_list_to_json(&launch->options));
    js_set(json, "modules", word_list_to_json(&launch->modules));
    js_set(json, "ranks", js_integer(launch->ranks));
    js_set(json, "threads", js_integer(launch->threads));
    js_set(json, "slots", js_integer(launch->slots));
    js_set(json, "oversubscribed", js_boolean(launch->oversubscribed));
    js_set(json, "gpus", js_integer(launch->gpus));
    return json;
}

// A list that descriptions of older daemons do not have.
static int optional_words(struct word_list *list, const struct json *array)
{
    return array ? word_list_from_json(list, array) : 0;
}

int launch_from_json(struct launch *launch, const struct json *json, struct error *err)
{
    *launch = (struct launch){
        .ranks = js_integer_of(js_get(json, "ranks"), 0),
        .threads = js_integer_of(js_get(json, "threads"), 0),
        .slots = js_integer_of(js_get(json, "slots"), -1),
        .oversubscribed = js_boolean_of(js_get(json, "oversubscribed"), false),
        .gpus = js_integer_of(js_get(json, "gpus"), 0),
    };
    if (gpus_from_json(&launch->held, js_get(json, "gpu_devices"), err) != 0)
        return -1;
    if (word_list_from_json(&launch->argv, js_get(json, "argv")) == 0 && word_list_from_json(&launch->environment, js_get(json, "environment")) == 0 &&
        optional_words(&launch->options, js_get(json, "options")) == 0 && optional_words(&launch->modules, js_get(json, "modules")) == 0 &&
        launch->argv.count > 0 && launch->ranks > 0 && launch->slots >= 0 && launch->gpus >= 0)
        return 0;
    launch_release(launch);
    return error_set(err, "not a job description: argv, environment, ranks or slots is missing");
}
