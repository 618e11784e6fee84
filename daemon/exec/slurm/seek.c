// A job that squeue does not list, and whose number is not known: sbatch's answer was lost, with the daemon perhaps, and meanwhile Slurm has
// purged the job, or it was away until then. Accounting is asked by the job's name before a successor is made. What it says to have ended
// is taken for the run's job, and its end is told; what it still calls alive squeue would list, so nothing follows from it. A job that was
// cancelled while it was held is not found: sacct shows what could have run in a window of time.
//
// Which of the run's jobs it is, the mark says, where accounting keeps comments; else the run directory and the time: the number was written
// down in the file `submission` just before sbatch was called. Whether the run went out with others, as an element of an array, is written in
// the array's list (array.h): then accounting is asked by the array's name, and the list says which element is the run's.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WINDOW 86400.0 // seconds before the file was written that sacct looks through: clocks differ, days have 23 hours
#define SLACK 2.0      // seconds by which the clocks of Slurm and of the file's disk may differ

double submission_written(const struct entry *entry)
{
    char *path = path_join(entry->directory, SUBMISSION_FILE);
    struct stat status;
    double when = stat(path, &status) == 0 ? (double)status.st_mtim.tv_sec + (double)status.st_mtim.tv_nsec * 1e-9 : 0;
    free(path);
    return when;
}

// The array's list was written after the number, and names it: no call but the array's was ever made with this number.
static void find_array(struct slurm *slurm, struct entry *entry)
{
    const struct array *array =
        array_of_run(&slurm->arrays, entry->directory, entry->tag, entry_lowest(entry), entry->unsent ? 0 : entry->written - SLACK, clock_steady());
    char *name = array ? array_job_name(array, entry->name, entry->directory) : NULL;
    snprintf(entry->array_name, sizeof entry->array_name, "%s", name ? name : "");
    free(name);
}

// What the job that is looked for is called.
static const char *name_of(const struct entry *entry)
{
    return entry->array_name[0] ? entry->array_name : entry->name;
}

bool seek_waits(struct slurm *slurm, struct entry *entry)
{
    double now = clock_steady();
    enum account_state state = account_state(slurm->account);
    if (state == ACCOUNT_ABSENT || !entry->name || entry->sought == entry_lowest(entry))
        return false;
    if (entry->seek_since == 0) {
        entry->seek_since = now;
        entry->written = submission_written(entry);
        find_array(slurm, entry);
    }
    if (entry->written == 0 || now - entry->seek_since >= slurm->settings.patience) {
        entry->sought = entry_lowest(entry);
        entry->seek_since = 0;
        return false;
    }
    account_seek(slurm->account, name_of(entry), entry->written - WINDOW);
    return true;
}

static bool is_sought(const struct entry *entry, const struct row *row)
{
    if (strcmp(row->name, name_of(entry)) != 0 || row_is_live(row) || claim_is_anothers(entry, entry_lowest(entry), row->id))
        return false;
    if (row->tag[0])
        return strcmp(row->tag, entry->tag) == 0 && row->submission == entry_lowest(entry);
    bool here = row->directory && strcmp(row->directory, entry->directory) == 0;
    return here && !entry->unsent && row->submitted >= entry->written - SLACK;
}

void seek_take(struct slurm *slurm, struct entry *entry)
{
    const struct rows *rows = account_answer(slurm->account);
    const struct row *found = NULL;
    if (entry->seek_since == 0 || !account_has_sought(slurm->account, name_of(entry)))
        return;
    entry->seek_since = 0;
    entry->sought = entry_lowest(entry);
    claim_look(entry, entry_lowest(entry));
    for (size_t i = 0; i < rows->count; i++)
        if (is_sought(entry, &rows->at[i]) && (!found || rows->at[i].submitted >= found->submitted))
            found = &rows->at[i];
    if (!found || entry->listed)
        return;
    if (entry->unsent)
        submission_take_back(entry);
    if (entry->unsent)
        return; // the disk is full, say: it is made anew
    entry_hand_over(entry, found->id, clock_steady());
    entry_note_end(entry, found);
    if (entry->errand)
        errand_end(slurm, entry);
}
