// Handing a job over, exactly once. An errand for each run that is being submitted, in steps, none of which waits:
//
//   LOOK   an earlier call may have made a job (the file `submission` is there, from before a crash): squeue is asked, then accounting. A job
//          under the file's number is the run's job, whatever has become of it.
//   RAISE  the file gets the next number, as one that has not been sent ("8 unsent"): what an earlier call may yet bring about starts nothing.
//   FENCE  squeue is asked once more. A job of the number before is taken back: the file gets its number again, and it is the run's job.
//          What is older is cancelled, and its end is waited for. What squeue does not list but beats on disk is waited for too: an answer
//          may lack a job, and a controller may have forgotten one that runs.
//   SEND   the file says that the number is sent ("8"), then sbatch is called (send.c), for this run or for many of its kind together.
//   CHECK  sbatch did not say that there is a job, or did not say it clearly: squeue is asked, until some time has passed in which the job
//          may yet appear and be the run's, and accounting. If there is none, a refusal is a refusal, and anything else goes back to RAISE.
//
// An errand ends without an answer where the run is polled: an attempt of it has begun, and is watched from then on.
//
// A run's first call has nothing to look for, nor has one after a kill that found everything gone: they begin at RAISE or SEND.
//
// Why a job is never started twice. sbatch is called at most once with a number, so a number has one job at most, or several where something
// makes two jobs of one call: then job.sh lets one of them begin (claim.c). job.sh starts something only
// while the file holds its own number: where there is another, a higher one, it ends at once; where there is "8 unsent", it waits for
// what becomes of it, half a minute at most, and ends. So of all jobs of a run only those can begin whose number the file holds, and the file
// holds 8 as sent only after an answer of squeue that was asked for while no job of 7 or below could begin, and that listed none of them
// alive. To take 7 back is safe because 8 was never sent, and the file itself says so, to a daemon after us too: once it is marked as sent, it never goes
// back. A job of 7 that came to job.sh in between and lost its patience has ended with code 0 and claimed no attempt: it did nothing, which
// is how the judgement knows that the run is to be handed over again. A kill raises the file to a number that counts as sent: what was killed
// is never taken back.
#include "daemon/exec/slurm/errand.h"
#include "daemon/exec/slurm/inside.h"
#include "daemon/exec/word_list.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "schema/record/record.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SERIAL_BYTES_MAX = 64 };
#define UNSENT " unsent" // behind a number that sbatch has not been given
#define BEAT_SILENT 60.0 // seconds without a heartbeat after which an attempt is taken for dead

// ---- the file ----

int submission_read(struct entry *entry, struct error *err)
{
    char *path = path_join(entry->directory, SUBMISSION_FILE);
    struct text bytes;
    struct stat status;
    text_init(&bytes, SERIAL_BYTES_MAX);
    int fault = stat(path, &status) == 0 ? 0 : errno;
    int64_t serial = 0;
    bool unsent = false;
    int done = 0;
    if (fault && (fault != ENOENT || !file_exists(entry->directory))) { // a disk that is not mounted says nothing
        errno = fault;
        done = error_errno(err, "cannot read %s", path);
    } else if (!fault) {
        char *end = NULL;
        done = file_read(path, &bytes, err);
        if (done == 0)
            serial = strtoll(bytes.at, &end, 10);
        unsent = done == 0 && strcmp(end, UNSENT "\n") == 0;
        if (done == 0 && (serial <= 0 || serial > SUBMISSION_MAX || (!unsent && strcmp(end, "\n") != 0 && *end)))
            done = error_set(err, "%s does not hold the number of a submission", path);
    }
    if (done == 0) {
        entry->serial = serial;
        entry->unsent = unsent;
        entry->serial_known = true;
    }
    text_release(&bytes);
    free(path);
    return done;
}

static int write_number(struct entry *entry, int64_t serial, bool unsent, struct error *err)
{
    char number[SERIAL_BYTES_MAX];
    int length = snprintf(number, sizeof number, "%" PRId64 "%s\n", serial, unsent ? UNSENT : "");
    char *path = path_join(entry->directory, SUBMISSION_FILE);
    int done = file_write_atomic(path, number, (size_t)length, 0644, err);
    free(path);
    if (done == 0) {
        entry->serial = serial;
        entry->unsent = unsent;
        entry->clean = false;
    }
    return done;
}

int submission_raise(struct entry *entry, struct error *err)
{
    if (entry->serial >= SUBMISSION_MAX)
        return error_set(err, "%s/" SUBMISSION_FILE ": there is no higher number than %" PRId64, entry->directory, entry->serial);
    return write_number(entry, entry->serial + 1, false, err);
}

void submission_take_back(struct entry *entry)
{
    struct error err = {0};
    if (clock_steady() < entry->fault_until)
        return;
    if (write_number(entry, entry->serial - 1, false, &err) != 0)
        entry->fault_until = clock_steady() + FAULT_AGAIN;
}

// ---- errands ----

static void copy_words(struct word_list *list, const char *const *words)
{
    for (; words && *words; words++)
        word_list_add(list, *words);
}

void errand_begin(struct slurm *slurm, struct entry *entry, const struct job *job)
{
    struct errand *errand = allocate(1, sizeof *errand);
    copy_words(&errand->argv, job->argv);
    copy_words(&errand->environment, job->environment);
    copy_words(&errand->options, job->options);
    copy_words(&errand->modules, job->modules);
    errand->step = entry->serial == 0 ? RAISE : entry->clean ? SEND : LOOK;
    errand->since = errand->begun = clock_steady();
    errand->number = slurm->errands++;
    if (!array_key(errand->key, entry->directory, &errand->argv, &errand->options, &errand->environment, &errand->modules))
        errand->key[0] = 0;
    entry->errand = errand;
}

void errand_end(struct slurm *slurm, struct entry *entry)
{
    struct errand *errand = entry->errand;
    if (!errand)
        return;
    errand_leave_parcel(slurm, errand);
    word_list_release(&errand->argv);
    word_list_release(&errand->environment);
    word_list_release(&errand->options);
    word_list_release(&errand->modules);
    free(errand);
    entry->errand = NULL;
}

bool errand_is_refused(const struct entry *entry, const char **fault)
{
    if (entry->errand && fault)
        *fault = entry->errand->fault;
    return entry->errand && entry->errand->step == REFUSED;
}

bool errand_is_sending(const struct entry *entry)
{
    return entry->errand && entry->errand->step == SENDING;
}

const char *errand_words(const struct entry *entry)
{
    switch (entry->errand->step) {
    case LOOK: return "looks whether it was submitted before";
    case RAISE: return entry->errand->fault[0] ? entry->errand->fault : "about to be submitted";
    case FENCE: return "waits for the end of an earlier submission";
    case SEND: return entry->errand->fault[0] ? entry->errand->fault : "waits for its turn to be submitted";
    case SENDING: return entry->errand->fault[0] ? entry->errand->fault : "is being submitted";
    case CHECK: return entry->errand->fault;
    case REFUSED: break;
    }
    return entry->errand->fault;
}

void errand_go(struct errand *errand, enum step step)
{
    errand->step = step;
    errand->since = clock_steady();
}

static void raise_number(struct entry *entry)
{
    struct errand *errand = entry->errand;
    struct error err = {0};
    bool first = entry->serial == 0;
    if (clock_steady() < entry->fault_until)
        return;
    if (!entry->unsent && write_number(entry, entry->serial + 1, !first, &err) != 0) {
        snprintf(errand->fault, sizeof errand->fault, "%.500s", err.text);
        entry->fault_until = clock_steady() + FAULT_AGAIN;
        return;
    }
    errand_go(errand, first ? SEND : FENCE);
}

// From here on a job of this number may come.
bool errand_mark_sent(struct entry *entry)
{
    struct error err = {0};
    if (!entry->unsent || write_number(entry, entry->serial, false, &err) == 0)
        return true;
    snprintf(entry->errand->fault, sizeof entry->errand->fault, "%.500s", err.text);
    entry->fault_until = clock_steady() + FAULT_AGAIN;
    return false;
}

// ---- turns ----

// The newest attempt has begun and not ended, and it beats, or has only just begun.
static bool is_beating(const struct entry *entry)
{
    int64_t attempt = run_last_attempt(entry->directory);
    if (attempt == 0)
        return false;
    return clock_wall() - attempt_last_beat(entry->directory, attempt) < BEAT_SILENT; // not of NAN: it is over
}

// An answer has come to a question that was asked after this step began.
static bool is_answered(struct slurm *slurm, struct entry *entry)
{
    if (entry->seen >= entry->errand->since)
        return true;
    queue_want(slurm->queue, entry->errand->since, true);
    return false;
}

static void take_listed(struct slurm *slurm, struct entry *entry)
{
    entry_hand_over(entry, entry->row.id, entry->seen);
    errand_end(slurm, entry);
}

static void check(struct slurm *slurm, struct entry *entry)
{
    struct errand *errand = entry->errand;
    struct error err = {0};
    double now = clock_steady();
    if (entry_is_listed(entry)) {
        take_listed(slurm, entry);
    } else if (entry->lacking < LACKING_MIN && !entry->listed) {
        errand->since = now; // it may come in a moment
    } else if (errand->refused) {
        submission_raise(entry, &err); // it will not run, whatever comes; if that cannot be written, sbatch's own no must do
        errand_go(errand, REFUSED);
    } else if (errand->not_before == 0) {
        double pause = slurm->settings.interval * (1 << (errand->tries < 10 ? errand->tries : 10));
        errand->tries++;
        errand->not_before = now + fmin(pause, slurm->settings.interval_max);
    } else if (now >= errand->not_before && !seek_waits(slurm, entry)) {
        errand->not_before = 0;
        errand_go(errand, RAISE);
    } else {
        queue_want(slurm->queue, now, false);
    }
}

static void look(struct slurm *slurm, struct entry *entry)
{
    if (entry_is_listed(entry))
        take_listed(slurm, entry);
    else if (entry->lacking < LACKING_MIN && !entry->listed)
        entry->errand->since = clock_steady();
    else if (!seek_waits(slurm, entry))
        errand_go(entry->errand, RAISE);
}

static void fence(struct slurm *slurm, struct entry *entry)
{
    if (entry_is_listed(entry))
        take_listed(slurm, entry);
    else if (entry->live == 0 && !entry_may_take_back(entry) && !is_beating(entry))
        errand_go(entry->errand, SEND);
    else
        entry->errand->since = clock_steady();
}

void errand_turn(struct slurm *slurm, struct entry *entry)
{
    switch (entry->errand->step) {
    case LOOK:
        if (is_answered(slurm, entry))
            look(slurm, entry);
        return;
    case RAISE: raise_number(entry); return;
    case FENCE:
        if (is_answered(slurm, entry))
            fence(slurm, entry);
        return;
    case SEND: // in their order: errands_send
        if (entry_is_listed(entry)) // its number was taken back while it waited for its turn
            take_listed(slurm, entry);
        else if (entry_may_take_back(entry))
            errand_go(entry->errand, FENCE);
        return;
    case SENDING: errand_take_answer(slurm, entry); return;
    case CHECK:
        if (is_answered(slurm, entry))
            check(slurm, entry);
        return;
    case REFUSED: return;
    }
}
