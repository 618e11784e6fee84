// The rules that need the plan's arithmetic: what a rank holds against the memory that the spec says there is. State is exact and its
// excess a fault; activations are counted for balanced routing and only warn.
#include "daemon/cli/format.h"
#include "daemon/cli/spec_arguments.h"
#include "schema/shape/cost.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Bytes in the units in which the limit was written: powers of 1000 or of 1024.
struct units {
    bool decimal;
    char shown[6][FORMAT_MAX]; // room for the numbers of one sentence
    size_t used;
};

static struct units units_of(int64_t limit)
{
    return (struct units){.decimal = limit % 1000000 == 0 && limit % (1 << 20) != 0};
}

static const char *show(struct units *units, int64_t bytes)
{
    static const char *const names[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    char *out = units->shown[units->used++ % 6];
    double value = (double)bytes;
    size_t unit = 0;
    if (!units->decimal)
        return format_bytes(out, value);
    for (; value >= 1000 && unit < 5; unit++)
        value /= 1000;
    snprintf(out, FORMAT_MAX, unit ? "%.1f %s" : "%.0f %s", value, names[unit]);
    return out;
}

static void check_gpu(struct spec_file *file, size_t run, const struct spec *spec, const struct memory_cost *memory)
{
    int64_t has = spec->resources.gpu_memory;
    struct units units = units_of(has);
    if (memory->state > has)
        spec_file_fault(file, run, "resources.gpu_memory", false,
            "a rank's parameters, gradients and optimizer state need %s (%s + %s + %s), %s more than the %s of "
            "`resources.gpu_memory`: cut the model over more ranks, or use the distributed optimizer",
            show(&units, memory->state), show(&units, memory->parameters), show(&units, memory->gradients),
            show(&units, memory->optimizer), show(&units, memory->state - has), show(&units, has));
    else if (memory->total > has)
        spec_file_fault(file, run, "resources.gpu_memory", true,
            "a rank needs about %s with balanced routing (state %s, activations %s, dispatch %s), more than the %s of "
            "`resources.gpu_memory`",
            show(&units, memory->total), show(&units, memory->state), show(&units, memory->activations_balanced),
            show(&units, memory->dispatch_balanced), show(&units, has));
}

// Ranks on CPUs share a node's memory, and the worker's arenas are as large as the worst routing needs.
static void check_node(struct spec_file *file, size_t run, const struct spec *spec, const struct memory_cost *memory)
{
    int64_t needs = memory->total_worst * spec->resources.ranks_per_node, has = spec->resources.memory;
    const char *need = spec->resources.ranks_per_node == 1 ? "rank needs" : "ranks need";
    struct units units = units_of(has);
    if (has > 0 && needs > has)
        spec_file_fault(file, run, "resources.memory", true, "a node's %lld %s up to %s, more than the %s of `resources.memory`",
            (long long)spec->resources.ranks_per_node, need, show(&units, needs), show(&units, has));
    has = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGE_SIZE);
    units = units_of(has);
    if (spec->executor == EXECUTOR_LOCAL && has > 0 && needs > has)
        spec_file_fault(file, run, "resources.ranks_per_node", true, "%lld %s up to %s, and this machine has %s",
            (long long)spec->resources.ranks_per_node, need, show(&units, needs), show(&units, has));
}

// A limit above what this machine has limits nothing.
static void check_limit(struct spec_file *file, size_t run, const struct spec *spec)
{
    int64_t wanted = spec->resources.memory, has = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGE_SIZE);
    struct units units = units_of(wanted);
    if (spec->executor == EXECUTOR_LOCAL && has > 0 && wanted > has)
        spec_file_fault(file, run, "resources.memory", true,
            "a limit of %s is more than the %s that this machine has: its memory runs out before a run reaches the limit",
            show(&units, wanted), show(&units, has));
}

// Whether a trial needs as much as the one before it: of the same sweep, and they differ in nothing that has a size.
static bool needs_the_same(const struct spec_file *file, size_t run)
{
    static const char *const sizeless[] = {"training.seed", "training.learning_rate.", "training.optimizer.weight_decay", "training.iterations", "logging."};
    const struct spec_run *one = &file->runs[run];
    if (run == 0 || !one->sweep || file->runs[run - 1].entry != one->entry)
        return false;
    for (void *i = js_first(one->sweep); i; i = js_next(one->sweep, i)) {
        bool counts = true;
        for (size_t j = 0; j < sizeof sizeless / sizeof *sizeless; j++)
            counts &= strncmp(js_key(i), sizeless[j], strlen(sizeless[j])) != 0;
        const struct json *before = js_get(file->runs[run - 1].sweep, js_key(i));
        if (counts && (!before || !js_equal(before, js_value(i))))
            return false;
    }
    return js_count(one->sweep) == js_count(file->runs[run - 1].sweep);
}

void spec_check_memory(struct spec_file *file)
{
    static const char *const read[] = {"engine", "model", "data.sequence_length", "training.micro_batch_size", "training.global_batch_size",
        "training.precision", "training.recompute", "training.distributed_optimizer", "parallelism", "resources.nodes", "resources.gpus_per_node",
        "resources.ranks_per_node", "resources.gpu_memory", "resources.memory", NULL};
    bool known = false; // memory is the last run's
    struct memory_cost memory;
    for (size_t i = 0; i < file->count; i++) {
        const struct spec *spec = &file->runs[i].spec;
        bool same = known && needs_the_same(file, i);
        known = false;
        if (strcmp(file->entries[file->runs[i].entry].kind, "train") != 0)
            continue;
        check_limit(file, i, spec);
        struct layout layout;
        if (!spec_file_is_sound(file, i, read) || layout_from_spec(&layout, spec, NULL) != 0)
            continue; // the file's own rules have said so
        if (!same)
            memory_cost(&memory, spec, &layout);
        known = true;
        if (spec->resources.gpu_memory > 0)
            check_gpu(file, i, spec, &memory);
        if (spec->resources.gpus_per_node == 0)
            check_node(file, i, spec, &memory);
    }
    spec_file_faults_end(file);
}
