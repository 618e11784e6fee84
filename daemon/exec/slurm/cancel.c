// Ending jobs and signalling them. scancel takes numbers, and a number can be another job's in the next moment, where the controller was
// killed and has forgotten ours: so each number goes with the name of its job, as squeue has just told it, and scancel, which holds both
// against what the controller has then, leaves alone what is called otherwise. Jobs of one name share a call; a few calls run at a time.
//
// An array's element that waits takes two calls. It has no record of its own, only the array has, for all that wait, and a scancel that is to
// look at names (22.05, by any filter) ends that record: all of them, for the sake of one. But whatever `scontrol update` is to change for one
// element, Slurm first gives it a record of its own. So it is told to set what is set already, the count of switches that nobody asks for (what
// it would be, too, for somebody else's element of this number), and then scancel, which looks at the name, ends this one alone. The number
// alone goes to scancel only where a site does not let its users update jobs: somebody's array that has got ours' number in between would lose
// the element of the same number then.
//
// Whether a job has gone is for squeue to say: what is still there is cancelled once more after a while.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 << 10, WORDS_MAX = CANCELS_MAX + 5 };

// False where there is no room: it will be asked for again.
static bool add(struct cancels *cancels, const struct row *row, const char *tag, bool signal)
{
    for (size_t i = 0; i < cancels->count; i++)
        if (strcmp(cancels->at[i].id, row->id) == 0 && cancels->at[i].signal == signal)
            return true;
    if (cancels->count == CANCELS_MAX)
        return false;
    struct cancel *cancel = &cancels->at[cancels->count++];
    *cancel = (struct cancel){.signal = signal, .waits = row->element >= 0 && !(row->word && row->word->phase == JOB_RUNNING)};
    memcpy(cancel->id, row->id, sizeof cancel->id);
    memcpy(cancel->name, row->name, sizeof cancel->name);
    memcpy(cancel->tag, tag, sizeof cancel->tag);
    return true;
}

void cancel_job(struct slurm *slurm, struct entry *entry, const struct row *row, double now)
{
    if (now - entry->cancel_asked < CANCEL_AGAIN && now > entry->cancel_asked)
        return;
    if (add(&slurm->cancels, row, entry->tag, false))
        entry->cancel_asked = now;
}

void signal_job(struct slurm *slurm, const struct entry *entry)
{
    add(&slurm->cancels, &entry->row, entry->tag, true);
}

static bool has_tag(const struct cancels *cancels, const char *tag)
{
    for (size_t i = 0; i < cancels->count; i++)
        if (strcmp(cancels->at[i].tag, tag) == 0)
            return true;
    return false;
}

bool cancel_is_open(const struct slurm *slurm, const char *tag)
{
    bool open = has_tag(&slurm->cancels, tag);
    for (size_t i = 0; i < SCANCELS_MAX && !open; i++)
        open = slurm->scancels[i].command && has_tag(&slurm->scancels[i].told, tag);
    return open;
}

// The first that waits, and all that can go with it.
static void take_first(struct cancels *waiting, struct cancels *told)
{
    const struct cancel first = waiting->at[0];
    size_t left = 0;
    told->count = 0;
    for (size_t i = 0; i < waiting->count; i++) {
        const struct cancel *cancel = &waiting->at[i];
        bool together = cancel->signal == first.signal && cancel->waits == first.waits && strcmp(cancel->name, first.name) == 0;
        if (together)
            told->at[told->count++] = *cancel;
        else
            waiting->at[left++] = *cancel;
    }
    waiting->count = left;
}

static void call(struct slurm *slurm, struct scancel *scancel, const char *const *argv)
{
    const char **environment = command_environment();
    struct command_request request = {
        .argv = argv, .environment = environment, .deadline = slurm->settings.deadline, .output_max = ANSWER_MAX};
    struct error err = {0};
    scancel->command = command_start(&request, &err);
    if (!scancel->command)
        snprintf(slurm->cancel_fault, sizeof slurm->cancel_fault, "%.500s", err.text);
    free(environment);
}

static void call_scancel(struct slurm *slurm, struct scancel *scancel, bool by_name)
{
    const struct cancel *first = &scancel->told.at[0];
    char name[sizeof first->name + 8];
    snprintf(name, sizeof name, "--name=%s", first->name);
    const char *argv[WORDS_MAX] = {"scancel"};
    size_t count = 1;
    if (by_name)
        argv[count++] = name;
    if (first->signal) {
        argv[count++] = "--signal=USR1";
        argv[count++] = "--batch"; // job.sh alone: it knows what to make of it
    }
    for (size_t i = 0; i < scancel->told.count; i++)
        argv[count++] = scancel->told.at[i].id;
    scancel->parts = false;
    call(slurm, scancel, argv);
}

// Gives each a record of its own.
static void call_update(struct slurm *slurm, struct scancel *scancel)
{
    struct text jobs;
    text_init(&jobs, CANCELS_MAX * sizeof scancel->told.at->id + 16);
    for (size_t i = 0; i < scancel->told.count; i++)
        text_addf(&jobs, "%s%s", i ? "," : "JobId=", scancel->told.at[i].id);
    scancel->parts = true;
    call(slurm, scancel, (const char *const[]){"scontrol", "update", jobs.at, "Switches=0", NULL});
    text_release(&jobs);
    if (!scancel->command)
        call_scancel(slurm, scancel, false);
}

static void start(struct slurm *slurm, struct scancel *scancel)
{
    take_first(&slurm->cancels, &scancel->told);
    if (scancel->told.at[0].waits && !scancel->told.at[0].signal)
        call_update(slurm, scancel);
    else
        call_scancel(slurm, scancel, true);
}

// Whether all lines hold one of these words.
static bool all_say(const char *talk, const char *const *words, size_t count)
{
    for (size_t length; *talk; talk += length + (talk[length] == '\n')) {
        bool says = false;
        length = strcspn(talk, "\n");
        for (size_t i = 0; i < count; i++) {
            const char *at = strstr(talk, words[i]);
            says |= at && (size_t)(at - talk) < length;
        }
        if (!says)
            return false;
    }
    return true;
}

// Those have a record of their own, or are not there any more.
static bool is_parted(const struct command_result *result)
{
    static const char *const words[] = {"Invalid job id specified", "Job is no longer pending execution", "Job has already finished"};
    bool all = result->talk.length && all_say(result->talk.at, words, sizeof words / sizeof *words);
    return result->end == COMMAND_EXITED && (result->code == 0 || all);
}

// Slurm may take it another time: they are asked to be cancelled again then.
static bool is_silent(const struct command_result *result)
{
    static const char *const words[] = {"ontact slurm controller", "timed out", "onnection", "receive failure", "send failure"};
    return result->end != COMMAND_EXITED || (result->talk.length && all_say(result->talk.at, words, sizeof words / sizeof *words));
}

static void look(struct slurm *slurm, struct scancel *scancel)
{
    const struct command_result *result = command_poll(scancel->command);
    if (!result)
        return;
    bool parted = scancel->parts && is_parted(result), next = parted || (scancel->parts && !is_silent(result));
    slurm->cancel_fault[0] = 0;
    if (!parted && (result->end != COMMAND_EXITED || result->code != 0))
        command_describe(slurm->cancel_fault, sizeof slurm->cancel_fault, result);
    command_free(scancel->command);
    scancel->command = NULL;
    if (next)
        call_scancel(slurm, scancel, parted);
}

void cancel_turn(struct slurm *slurm)
{
    for (size_t i = 0; i < SCANCELS_MAX; i++) {
        struct scancel *scancel = &slurm->scancels[i];
        if (scancel->command)
            look(slurm, scancel);
        if (!scancel->command && slurm->cancels.count)
            start(slurm, scancel);
    }
}

void cancels_free(struct slurm *slurm)
{
    for (size_t i = 0; i < SCANCELS_MAX; i++)
        command_free(slurm->scancels[i].command);
}
