#include "daemon/exec/slurm/options.h"
#include "schema/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRAGGLE_MAX = 30 }; // seconds between the ends of a step's first rank and its last

struct slurm_shape slurm_shape_train(const struct spec *spec)
{
    const struct spec_resources *resources = &spec->resources;
    return (struct slurm_shape){.nodes = resources->nodes, .tasks_per_node = resources->ranks_per_node, .cpus_per_task = resources->threads_per_rank,
        .gpus = resources->gpus_per_node, .memory = resources->memory};
}

struct slurm_shape slurm_shape_tokenize(const struct spec *spec)
{
    const struct spec_tokenize *tokenize = &spec->data.tokenize;
    return (struct slurm_shape){.nodes = 1, .tasks_per_node = 1, .cpus_per_task = tokenize->cpus_per_task, .memory = tokenize->memory_per_task};
}

static void add_gpus(struct word_list *words, const struct slurm_shape *shape, const struct config_slurm *site)
{
    if (!shape->gpus)
        return;
    const char *type = site ? site->gpu_type : NULL, *colon = type ? ":" : "";
    if (site && site->gpus == SLURM_GPUS_PER_NODE)
        word_list_addf(words, "--gpus-per-node=%s%s%" PRId64, type ? type : "", colon, shape->gpus);
    else
        word_list_addf(words, "--gres=gpu%s%s:%" PRId64, colon, type ? type : "", shape->gpus);
}

// Slurm counts memory in MiB and time in minutes: both are rounded up, never down.
static void add_limits(struct word_list *options, const struct spec *spec, const struct slurm_shape *shape)
{
    enum { MIB = 1 << 20 };
    if (shape->memory)
        word_list_addf(options, "--mem=%" PRId64 "M", shape->memory / MIB + (shape->memory % MIB != 0));
    if (!(spec->resources.time_limit > 0))
        return;
    int64_t minutes = (int64_t)ceil(spec->resources.time_limit / 60);
    char days[24] = "";
    if (minutes >= 24 * 60)
        snprintf(days, sizeof days, "%" PRId64 "-", minutes / (24 * 60));
    word_list_addf(options, "--time=%s%02d:%02d:00", days, (int)(minutes / 60 % 24), (int)(minutes % 60));
}

static void add_text(struct word_list *options, const char *name, const char *value, const char *otherwise)
{
    if (value || otherwise)
        word_list_addf(options, "--%s=%s", name, value ? value : otherwise);
}

// To the script (B:), which passes it on: sent to the steps it would reach the ranks alone, and the next attempt would not know why its
// predecessor stopped.
static void add_signal(struct word_list *options, const struct spec_slurm *slurm)
{
    const char *name = slurm->signal ? slurm->signal : "USR1";
    if (strncmp(name, "B:", 2) == 0)
        name += 2;
    if (strchr(name, '@'))
        word_list_addf(options, "--signal=B:%s", name);
    else
        word_list_addf(options, "--signal=B:%s@%.0f", name, ceil(slurm->grace));
}

// squeue shows it on one line, and Slurm reads a backslash as one of its own in names of files.
static bool can_be_shown(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7F || *text == '\\')
            return false;
    return true;
}

// Both streams, in the run directory: what Slurm and the script themselves say. In names of files %j and its like mean something to Slurm;
// part: one that is meant.
static void add_output(struct word_list *options, const char *directory, const char *part)
{
    struct text path;
    text_init(&path, 1 << 20);
    for (const char *at = directory; *at; at++)
        text_addf(&path, *at == '%' ? "%c%%" : "%c", *at);
    word_list_addf(options, "--output=%s%s/" SLURM_LOG, path.at, part);
    text_release(&path);
}

int slurm_options(struct word_list *options, const struct spec *spec, const struct slurm_shape *shape, const struct config_slurm *site,
    const char *run_directory, struct error *err)
{
    const struct spec_slurm *slurm = &spec->slurm;
    const char *slash = strrchr(run_directory, '/');
    if (run_directory[0] != '/' || !can_be_shown(run_directory))
        return error_set(err, "the run directory of a Slurm job is an absolute path without backslashes and control characters");
    word_list_addf(options, "--job-name=%s.%s", spec->project, slash + 1);
    word_list_addf(options, "--chdir=%s", run_directory);
    add_output(options, run_directory, "");
    word_list_add(options, "--open-mode=append");
    word_list_addf(options, "--nodes=%" PRId64, shape->nodes);
    word_list_addf(options, "--ntasks-per-node=%" PRId64, shape->tasks_per_node);
    if (shape->cpus_per_task)
        word_list_addf(options, "--cpus-per-task=%" PRId64, shape->cpus_per_task);
    add_gpus(options, shape, site);
    add_limits(options, spec, shape);
    add_text(options, "partition", slurm->partition, site ? site->partition : NULL);
    add_text(options, "account", slurm->account, site ? site->account : NULL);
    add_text(options, "qos", slurm->qos, NULL);
    add_text(options, "reservation", slurm->reservation, NULL);
    add_text(options, "constraint", slurm->constraint, NULL);
    add_text(options, "nodelist", slurm->nodelist, NULL);
    add_text(options, "exclude", slurm->exclude, NULL);
    if (slurm->exclusive)
        word_list_add(options, "--exclusive");
    word_list_add(options, slurm->requeue ? "--requeue" : "--no-requeue");
    add_signal(options, slurm);
    word_list_add(options, "--export=ALL");
    return 0;
}

void slurm_leave_out(struct word_list *options, const char *nodes)
{
    char **there = NULL;
    for (size_t i = 0; i < options->count; i++) {
        if (strncmp(options->at[i], "--nodelist=", strlen("--nodelist=")) == 0)
            return;
        if (strncmp(options->at[i], "--exclude=", strlen("--exclude=")) == 0)
            there = &options->at[i];
    }
    if (!there) {
        word_list_addf(options, "--exclude=%s", nodes);
        return;
    }
    char *longer = string_format("%s,%s", *there, nodes);
    free(*there);
    *there = longer;
}

void slurm_srun(struct word_list *argv, const struct spec *spec, const struct slurm_shape *shape, const struct config_slurm *site)
{
    word_list_add(argv, "srun");
    word_list_addf(argv, "--nodes=%" PRId64, shape->nodes);
    word_list_addf(argv, "--ntasks=%" PRId64, shape->nodes * shape->tasks_per_node);
    word_list_addf(argv, "--ntasks-per-node=%" PRId64, shape->tasks_per_node);
    if (shape->cpus_per_task) // srun no longer takes it from sbatch
        word_list_addf(argv, "--cpus-per-task=%" PRId64, shape->cpus_per_task);
    add_gpus(argv, shape, site);
    add_text(argv, "mpi", spec->slurm.mpi, site && site->mpi ? site->mpi : "pmix");
    // Ranks that drive GPUs may run anywhere on their node; ranks that compute keep the cores that are theirs.
    word_list_add(argv, shape->gpus ? "--cpu-bind=none" : "--cpu-bind=cores");
    // Ranks leave MPI_Finalize together. One that is gone long before the others has died (within MPI_Init nobody tells them): they are ended.
    // --kill-on-bad-exit would not wait for those that still end after saving, and its own SIGTERM would be the exit code.
    word_list_addf(argv, "--wait=%d", STRAGGLE_MAX);
}

// What names the run among the options.
static bool names_run(const char *option)
{
    static const char *const names[] = {"--job-name=", "--chdir=", "--output="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(option, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

void slurm_options_shared(struct word_list *shared, const char *const *options)
{
    for (; options && *options; options++)
        if (!names_run(*options))
            word_list_add(shared, *options);
}

static void add_script(struct word_list *words, const char *directory, const char *const *modules, const char *const *argv)
{
    word_list_add(words, directory);
    for (; modules && *modules; modules++) {
        word_list_add(words, "-m");
        word_list_add(words, *modules);
    }
    word_list_add(words, "--");
    for (; argv && *argv; argv++)
        word_list_add(words, *argv);
}

void slurm_sbatch(struct word_list *words, const char *const *options, const char *run_id, long long submission, const char *script,
    const char *run_directory, const char *const *modules, const char *const *argv)
{
    word_list_add(words, "sbatch");
    word_list_add(words, "--parsable");
    word_list_addf(words, "--comment=switchyard:%s:%lld", run_id, submission);
    for (; options && *options; options++)
        word_list_add(words, *options);
    word_list_add(words, script);
    add_script(words, run_directory, modules, argv);
}

void slurm_sbatch_array(struct word_list *words, const struct slurm_array_words *array, const char *script, const char *const *modules,
    const char *const *argv)
{
    word_list_add(words, "sbatch");
    word_list_add(words, "--parsable");
    word_list_addf(words, "--comment=switchyard:array:%s", array->id);
    word_list_addf(words, "--array=0-%zu", array->count - 1);
    word_list_addf(words, "--job-name=%s", array->name);
    word_list_addf(words, "--chdir=%s", array->directory);
    add_output(words, array->directory, "/%a");
    for (const char *const *option = array->options; option && *option; option++)
        word_list_add(words, *option);
    word_list_add(words, script);
    word_list_add(words, "-a");
    add_script(words, array->directory, modules, argv);
}
