// What a job's processes find around them.
#include "daemon/exec/environment.h"
#include "schema/base/text.h"

#include <stdbool.h>
#include <string.h>

extern char **environ;

// Variables that belong to a launcher or to another job around the daemon, or that are the daemon's own secrets.
static bool is_inherited(const char *entry)
{
    static const char *const dropped[] = {"OMPI_", "PMIX_", "PMI_", "PRTE_", "SLURM_", "SWITCHYARD_", "OMP_", "MALLOC_", NULL};
    for (size_t i = 0; dropped[i]; i++)
        if (strncmp(entry, dropped[i], strlen(dropped[i])) == 0)
            return false;
    return true;
}

static void put_variable(const char **list, size_t *count, const char *entry)
{
    size_t name = strcspn(entry, "=") + 1;
    for (size_t i = 0; i < *count; i++)
        if (strncmp(list[i], entry, name) == 0) {
            list[i] = entry;
            return;
        }
    list[(*count)++] = entry;
}

const char **job_environment(const char *const *on_top, const char *const *last)
{
    size_t most = 1, count = 0;
    for (char **at = environ; *at; at++)
        most++;
    for (const char *const *at = on_top; at && *at; at++)
        most++;
    for (const char *const *at = last; at && *at; at++)
        most++;
    const char **list = allocate(most, sizeof *list);
    for (char **at = environ; *at; at++)
        if (is_inherited(*at))
            put_variable(list, &count, *at);
    for (const char *const *at = on_top; at && *at; at++)
        put_variable(list, &count, *at);
    for (const char *const *at = last; at && *at; at++)
        put_variable(list, &count, *at);
    return list;
}
