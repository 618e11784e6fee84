// A run that asks this machine for more cores than it has: not refused, since it comes to the same numbers, but it waits until it is alone, and every
// step takes longer.
#include "daemon/cli/spec_arguments.h"
#include "daemon/exec/launch.h"

#include <string.h>

static void check_cores(struct spec_file *file, size_t run, const struct machine *machine)
{
    const struct spec *spec = &file->runs[run].spec;
    long long ranks = (long long)spec_world_size(spec), threads = (long long)launch_threads(spec, machine), cores = (long long)machine->cores;
    if (ranks * threads <= cores)
        return;
    spec_file_fault(file, run, threads > 1 ? "resources.threads_per_rank" : "resources.ranks_per_node", true,
        "%lld rank%s of %lld thread%s want%s %lld cores, and this machine has %lld: it runs alone, oversubscribed", ranks,
        ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s", ranks == 1 ? "s" : "", ranks * threads, cores);
}

void spec_check_cores(struct spec_file *file)
{
    static const char *const read[] = {"resources.nodes", "resources.ranks_per_node", "resources.threads_per_rank", NULL};
    struct machine machine;
    machine_look(&machine);
    for (size_t i = 0; i < file->count; i++)
        if (strcmp(file->entries[file->runs[i].entry].kind, "train") == 0 && file->runs[i].spec.executor == EXECUTOR_LOCAL && spec_file_is_sound(file, i, read))
            check_cores(file, i, &machine);
    spec_file_faults_end(file);
}
