#include "daemon/exec/launch.h"
#include "schema/base/text.h"

#include <assert.h>
#include <ctype.h>
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
    FILE *scope = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    int restricted = 0;
    if (scope && fscanf(scope, "%d", &restricted) != 1)
        restricted = 0;
    if (scope)
        fclose(scope);
    machine->ptrace_restricted = restricted > 0;
}

static void take_word(char ***list, size_t *count, char *word)
{
    assert(*count < LAUNCH_WORDS_MAX);
    *list = reallocate(*list, *count + 2, sizeof **list);
    (*list)[(*count)++] = word;
    (*list)[*count] = NULL;
}

static void add_word(struct launch *launch, const char *word)
{
    take_word(&launch->argv, &launch->argv_count, string_copy(word));
}

static void add_variable(struct launch *launch, const char *name, const char *value)
{
    take_word(&launch->environment, &launch->environment_count, string_format("%s=%s", name, value));
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

static bool is_variable_name(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (const char *at = name; *at; at++)
        if (!isalnum((unsigned char)*at) && *at != '_')
            return false;
    return strncmp(name, "SWITCHYARD_", 11) != 0;
}

static int add_user_variables(struct launch *launch, const struct spec_pairs *variables, struct error *err)
{
    if (variables->count > LAUNCH_WORDS_MAX / 2)
        return error_set(err, "environment.variables: more than %d variables", LAUNCH_WORDS_MAX / 2);
    for (size_t i = 0; i < variables->count; i++) {
        if (!is_variable_name(variables->keys[i]))
            return error_set(err, "environment.variables: '%s' is not a name that a job may set (letters, digits and _, not SWITCHYARD_…)",
                variables->keys[i]);
        add_variable(launch, variables->keys[i], variables->values[i]);
    }
    return 0;
}

static int launch_ranks(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *const *words, struct error *err)
{
    *launch = (struct launch){.ranks = spec_world_size(spec), .threads = spec->resources.threads_per_rank};
    assert(launch->ranks >= 1);
    int64_t share = machine->cores / launch->ranks;
    if (launch->threads <= 0)
        launch->threads = share > 0 ? share : 1;
    launch->oversubscribed = launch->ranks * launch->threads > machine->cores;
    launch->slots = launch->oversubscribed ? machine->cores : launch->ranks * launch->threads;
    launch->gpus = spec->resources.gpus_per_node;
    bool bound = launch->ranks > 1 && add_mpirun(launch, machine);
    for (; *words; words++)
        add_word(launch, *words);
    add_mpi_environment(launch, machine);
    add_thread_environment(launch, bound);
    if (add_user_variables(launch, &spec->environment.variables, err) == 0)
        return 0;
    launch_release(launch);
    return -1;
}

int launch_train(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker,
    const char *run_directory, struct error *err)
{
    return launch_ranks(launch, spec, machine, (const char *const[]){worker, "train", run_directory, NULL}, err);
}

int launch_check(struct launch *launch, const struct spec *spec, const struct machine *machine, const char *worker, const char *check,
    const char *run_directory, struct error *err)
{
    return launch_ranks(launch, spec, machine, (const char *const[]){worker, "check", check, run_directory, NULL}, err);
}

void launch_tokenize(struct launch *launch, const struct machine *machine, const char *worker, const char *run_directory)
{
    *launch = (struct launch){.ranks = 1, .threads = 1, .slots = 1};
    add_word(launch, worker);
    add_word(launch, "tokenize");
    add_word(launch, run_directory);
    add_mpi_environment(launch, machine);
    add_thread_environment(launch, false);
}

void launch_show_gpus(struct launch *launch, const struct machine *machine)
{
    if (launch->held.count == 0 && machine->gpus.count == 0)
        return;
    char *words = gpus_text(&launch->held);
    add_variable(launch, GPUS_VARIABLE, words);
    free(words);
}

void launch_release(struct launch *launch)
{
    for (size_t i = 0; i < launch->argv_count; i++)
        free(launch->argv[i]);
    for (size_t i = 0; i < launch->environment_count; i++)
        free(launch->environment[i]);
    free(launch->argv);
    free(launch->environment);
    *launch = (struct launch){0};
}

static struct json *words_to_json(char *const *words, size_t count)
{
    struct json *list = js_array();
    for (size_t i = 0; i < count; i++)
        js_append(list, js_string(words[i]));
    return list;
}

struct json *launch_argv_json(const struct launch *launch)
{
    return words_to_json(launch->argv, launch->argv_count);
}

struct json *launch_to_json(const struct launch *launch)
{
    struct json *json = js_object();
    js_set(json, "argv", launch_argv_json(launch));
    js_set(json, "environment", words_to_json(launch->environment, launch->environment_count));
    js_set(json, "ranks", js_integer(launch->ranks));
    js_set(json, "threads", js_integer(launch->threads));
    js_set(json, "slots", js_integer(launch->slots));
    js_set(json, "oversubscribed", js_boolean(launch->oversubscribed));
    js_set(json, "gpus", js_integer(launch->gpus));
    return json;
}

static int words_from_json(char ***words, size_t *count, const struct json *list)
{
    if (js_kind(list) != JSON_KIND_ARRAY || js_count(list) > LAUNCH_WORDS_MAX)
        return -1;
    for (size_t i = 0; i < js_count(list); i++) {
        const char *word = js_string_of(js_at(list, i), NULL);
        if (!word)
            return -1;
        take_word(words, count, string_copy(word));
    }
    return 0;
}

int launch_from_json(struct launch *launch, const struct json *json, struct error *err)
{
    *launch = (struct launch){
        .ranks = js_integer_of(js_get(json, "ranks"), 0),
        .threads = js_integer_of(js_get(json, "threads"), 0),
        .slots = js_integer_of(js_get(json, "slots"), 0),
        .oversubscribed = js_boolean_of(js_get(json, "oversubscribed"), false),
        .gpus = js_integer_of(js_get(json, "gpus"), 0),
    };
    if (gpus_from_json(&launch->held, js_get(json, "gpu_devices"), err) != 0)
        return -1;
    if (words_from_json(&launch->argv, &launch->argv_count, js_get(json, "argv")) == 0 &&
        words_from_json(&launch->environment, &launch->environment_count, js_get(json, "environment")) == 0 && launch->argv_count > 0 &&
        launch->ranks > 0 && launch->slots > 0 && launch->gpus >= 0)
        return 0;
    launch_release(launch);
    return error_set(err, "not a job description: argv, environment, ranks or slots is missing");
}
