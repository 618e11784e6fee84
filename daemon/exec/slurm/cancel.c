// Ending jobs and signalling them: many with one scancel, one scancel at a time. Whether a job has gone is for squeue to say: what is still
// there is cancelled once more after a while.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 << 10 };

static void add(struct ids_list *list, const char *id)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->at[i], id) == 0)
            return;
    if (list->count < CANCELS_MAX && strlen(id) < sizeof list->at[0])
        strcpy(list->at[list->count++], id);
}

void cancel_job(struct slurm *slurm, struct entry *entry, const char *id, double now)
{
    if (now - entry->cancel_asked < CANCEL_AGAIN && now > entry->cancel_asked)
        return;
    entry->cancel_asked = now;
    add(&slurm->cancels, id);
}

void signal_job(struct slurm *slurm, const char *id)
{
    add(&slurm->signals, id);
}

static void start(struct slurm *slurm, struct ids_list *list, bool signal)
{
    const char *argv[CANCELS_MAX + 4] = {"scancel"};
    size_t count = 1;
    if (signal) {
        argv[count++] = "--signal=USR1";
        argv[count++] = "--batch"; // job.sh alone: it knows what to make of it
    }
    for (size_t i = 0; i < list->count; i++)
        argv[count++] = list->at[i];
    const char **environment = command_environment();
    struct command_request request = {
        .argv = argv, .environment = environment, .deadline = slurm->settings.deadline, .output_max = ANSWER_MAX};
    struct error err = {0};
    slurm->scancel = command_start(&request, &err);
    if (!slurm->scancel)
        snprintf(slurm->cancel_fault, sizeof slurm->cancel_fault, "%.500s", err.text);
    free(environment);
    list->count = 0;
}

void cancel_turn(struct slurm *slurm)
{
    if (slurm->scancel) {
        const struct command_result *result = command_poll(slurm->scancel);
        if (!result)
            return;
        slurm->cancel_fault[0] = 0;
        if (result->end != COMMAND_EXITED || result->code != 0)
            command_describe(slurm->cancel_fault, sizeof slurm->cancel_fault, result);
        command_free(slurm->scancel);
        slurm->scancel = NULL;
    }
    if (slurm->cancels.count)
        start(slurm, &slurm->cancels, false);
    else if (slurm->signals.count)
        start(slurm, &slurm->signals, true);
}
