#include "daemon/cli/plan_slurm.h"
#include "daemon/cli/format.h"
#include "daemon/exec/slurm/ask.h"
#include "daemon/exec/slurm/options.h"
#include "schema/base/near.h"
#include "schema/base/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plan_slurm_init(struct plan_slurm *slurm)
{
    *slurm = (struct plan_slurm){.estimates = js_object()};
}

void plan_slurm_release(struct plan_slurm *slurm)
{
    js_free(slurm->estimates);
    free(slurm->silence);
}

// The options without those that differ from run to run and say nothing about nodes or time.
static char *key_of(const struct word_list *options)
{
    static const char *const own[] = {"--job-name=", "--chdir=", "--output="};
    struct text key;
    text_init(&key, 1 << 20);
    for (size_t i = 0; i < options->count; i++) {
        bool counts = true;
        for (size_t j = 0; j < sizeof own / sizeof *own; j++)
            counts &= strncmp(options->at[i], own[j], strlen(own[j])) != 0;
        if (counts)
            text_addf(&key, "%s\n", options->at[i]);
    }
    return text_take(&key);
}

static struct json *ask(struct plan_slurm *slurm, const struct word_list *options)
{
    struct slurm_estimate estimate;
    slurm->silent = !slurm_estimate(&estimate, (const char *const *)options->at);
    if (slurm->silent) {
        free(slurm->silence);
        slurm->silence = string_copy(estimate.silence);
        return js_null();
    }
    struct json *answer = js_object();
    js_set(answer, "starts", estimate.starts > 0 ? js_real(estimate.starts) : js_null());
    js_set(answer, "nodes", estimate.nodes[0] ? js_string(estimate.nodes) : js_null());
    js_set(answer, "refusal", estimate.refusal[0] ? js_string(estimate.refusal) : js_null());
    return answer;
}

void plan_slurm_add(struct plan_slurm *slurm, struct json *item, const struct launch *launch, const char *script, const char *run_directory)
{
    struct word_list words = {0};
    // The run's identifier and the number of the submission are made when it is submitted.
    slurm_sbatch(&words, (const char *const *)launch->options.at, "RUN_ID", 1, script, run_directory, (const char *const *)launch->modules.at,
        (const char *const *)launch->argv.at);
    js_set(item, "sbatch", word_list_to_json(&words));
    word_list_release(&words);
    char *key = key_of(&launch->options);
    if (!js_get(slurm->estimates, key) && !slurm->silent)
        js_set(slurm->estimates, key, ask(slurm, &launch->options));
    const struct json *known = js_get(slurm->estimates, key);
    js_set(item, "slurm", known ? js_keep(known) : js_null());
    js_set(item, "slurm_silent", slurm->silent ? js_string(slurm->silence) : js_null());
    free(key);
}

// ---- doubts ----

static void doubt(struct json *doubts, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void doubt(struct json *doubts, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *sentence = NULL;
    if (vasprintf(&sentence, format, args) < 0)
        abort();
    va_end(args);
    js_append(doubts, js_string(sentence));
    free(sentence);
}

enum { PARTITIONS_SAID = 12, KNOWN_MAX = 1024 };

static void doubt_partition(struct json *doubts, const char *name, const struct config_slurm *site)
{
    const char *names[CONFIG_PARTITIONS_MAX];
    for (size_t i = 0; i < site->partitions_count; i++)
        names[i] = site->partitions[i].name;
    const char *near = near_name(name, names, site->partitions_count);
    struct text known;
    text_init(&known, KNOWN_MAX);
    for (size_t i = 0; !near && i < site->partitions_count && i < PARTITIONS_SAID; i++)
        text_addf(&known, "%s%s", i ? ", " : ": it has ", names[i]);
    if (!near && site->partitions_count > PARTITIONS_SAID)
        text_addf(&known, " and %zu more", site->partitions_count - PARTITIONS_SAID);
    doubt(doubts, "the cluster has no partition %s%s%s%s", name, near ? " (did you mean " : "", near ? near : known.at, near ? "?)" : "");
    text_release(&known);
}

static void doubt_sizes(struct json *doubts, const struct spec *spec, const struct config_partition *partition)
{
    struct slurm_shape shape = slurm_shape_train(spec);
    const char *name = partition->name;
    int64_t cpus = shape.tasks_per_node * (shape.cpus_per_task ? shape.cpus_per_task : 1);
    if (partition->nodes && shape.nodes > partition->nodes)
        doubt(doubts, "%" PRId64 " nodes are more than the %" PRId64 " of partition %s", shape.nodes, partition->nodes, name);
    if (partition->cpus_per_node && cpus > partition->cpus_per_node)
        doubt(doubts, "%" PRId64 " CPUs a node are more than the %" PRId64 " of partition %s", cpus, partition->cpus_per_node, name);
    if (shape.gpus > partition->gpus_per_node)
        doubt(doubts, "%" PRId64 " GPU%s a node %s more than the %" PRId64 " of partition %s", shape.gpus, shape.gpus == 1 ? "" : "s",
            shape.gpus == 1 ? "is" : "are", partition->gpus_per_node, name);
    char wanted[FORMAT_MAX], given[FORMAT_MAX];
    if (partition->memory_per_node && shape.memory > partition->memory_per_node)
        doubt(doubts, "%s of memory a node are more than the %s of partition %s", format_bytes(wanted, (double)shape.memory),
            format_bytes(given, (double)partition->memory_per_node), name);
    if (partition->time_limit > 0 && spec->resources.time_limit > partition->time_limit)
        doubt(doubts, "a time limit of %s is more than the %s of partition %s: Slurm would let the job wait for ever",
            format_seconds(wanted, spec->resources.time_limit), format_seconds(given, partition->time_limit), name);
}

struct json *plan_slurm_doubts(const struct spec *spec, const struct config_slurm *site)
{
    struct json *doubts = js_array();
    const char *names = spec->slurm.partition ? spec->slurm.partition : site->partition;
    if (!names || site->partitions_count == 0)
        return doubts;
    char *copy = string_copy(names), *rest = NULL;
    for (char *name = strtok_r(copy, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        const struct config_partition *partition = config_find_partition(site, name);
        if (partition)
            doubt_sizes(doubts, spec, partition);
        else
            doubt_partition(doubts, name, site);
    }
    free(copy);
    return doubts;
}
