// The rules that need the plan's arithmetic: what a rank holds against the memory that the spec says there is. State is exact and its
// excess a fault; activations are counted for balanced routing and only warn.
#include "daemon/cli/spec_arguments.h"
#include "schema/shape/cost.h"

#include <unistd.h>

static void check_gpu(struct spec_file *file, size_t run, const struct spec *spec, const struct memory_cost *memory)
{
    long long has = (long long)spec->resources.gpu_memory;
    if (memory->state > has)
        spec_file_fault(file, run, "resources.gpu_memory", false,
            "parameters, gradients and optimizer state need %lld bytes a rank (%lld + %lld + %lld), `resources.gpu_memory` is %lld: "
            "cut the model over more ranks, or use the distributed optimizer", (long long)memory->state, (long long)memory->parameters,
            (long long)memory->gradients, (long long)memory->optimizer, has);
    else if (memory->total > has)
        spec_file_fault(file, run, "resources.gpu_memory", true,
            "a rank needs about %lld bytes with balanced routing (state %lld, activations %lld, dispatch %lld), `resources.gpu_memory` is "
            "%lld",
            (long long)memory->total, (long long)memory->state, (long long)memory->activations_balanced,
            (long long)memory->dispatch_balanced, has);
}

// Ranks on CPUs share a node's memory, and the worker's arenas are as large as the worst routing needs.
static void check_node(struct spec_file *file, size_t run, const struct spec *spec, const struct memory_cost *memory)
{
    int64_t needs = memory->total_worst * spec->resources.ranks_per_node, has = spec->resources.memory;
    if (has > 0 && needs > has)
        spec_file_fault(file, run, "resources.memory", true, "a node's %lld ranks need up to %lld bytes, `resources.memory` is %lld",
            (long long)spec->resources.ranks_per_node, (long long)needs, (long long)has);
    has = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGE_SIZE);
    if (spec->executor == EXECUTOR_LOCAL && has > 0 && needs > has)
        spec_file_fault(file, run, "resources.ranks_per_node", true, "%lld ranks need up to %lld bytes, this machine has %lld",
            (long long)spec->resources.ranks_per_node, (long long)needs, (long long)has);
}

void spec_check_memory(struct spec_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const struct spec *spec = &file->runs[i].spec;
        struct layout layout;
        struct memory_cost memory;
        if (layout_from_spec(&layout, spec, NULL) != 0)
            continue; // the file's own rules have said so
        memory_cost(&memory, spec, &layout);
        if (spec->resources.gpu_memory > 0)
            check_gpu(file, i, spec, &memory);
        if (spec->resources.gpus_per_node == 0)
            check_node(file, i, spec, &memory);
    }
}
