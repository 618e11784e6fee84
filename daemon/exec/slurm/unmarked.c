// Jobs whose comment is not our mark any more: an administrator has written there (scontrol update), or the site's own plugin or epilogue
// does. Slurm knows such a job, and to take it for forgotten would hand its run over again. It is told by its number and its run directory.
// Of one whose number was never learnt nobody can say which submission it is: it is left to job.sh, which lets only the last one begin.
#include "daemon/exec/slurm/inside.h"

#include <string.h>

static struct entry *entry_with(struct slurm *slurm, const struct row *row)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = slurm->buckets[i]; entry; entry = entry->next)
            if (strcmp(entry->id, row->id) == 0 && entry->directory && strcmp(entry->directory, row->directory) == 0)
                return entry;
    return NULL;
}

void unmarked_complete(struct slurm *slurm, struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        struct row *row = &rows->at[i];
        const struct entry *entry = row->tag[0] || row->array[0] || !row->directory ? NULL : entry_with(slurm, row);
        if (!entry)
            continue;
        memcpy(row->tag, entry->tag, sizeof row->tag);
        row->submission = entry->told > 0 ? entry->told : entry_lowest(entry);
    }
}
