// From what is known of a run to what poll says of its job: phase, how it ended, why it waits, in words.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void moment(char out[40], double wall)
{
    struct tm parts;
    time_t seconds = (time_t)wall;
    gmtime_r(&seconds, &parts);
    strftime(out, 40, "%Y-%m-%d %H:%M:%S UTC", &parts);
}

// Numbers alone: a name would have to be asked for, somewhere that may not answer.
static void who(char *out, size_t size, long long by)
{
    if (by < 0)
        out[0] = 0;
    else if (by == 0)
        snprintf(out, size, " by root");
    else if (by == (long long)geteuid())
        snprintf(out, size, " by this user (%lld)", by);
    else
        snprintf(out, size, " by user %lld", by);
}

static void tell_end(const struct row *row, struct job *job)
{
    char more[300], by[40];
    job->phase = JOB_ENDED;
    job->end = row->word->end;
    job->code = job->end == END_COMPLETED ? 0 : row->code;
    job->signal = row->signal;
    reason_ended(more, sizeof more, row->reason);
    who(by, sizeof by, row->by);
    if (job->end == END_CANCELLED && more[0] == '(')
        more[0] = 0; // it still says why the job waited
    const char *blank = more[0] ? ", " : "";
    if (more[0] == '(')
        blank = " ";
    if (job->end == END_FAILED && row->signal)
        snprintf(job->reason, sizeof job->reason, "failed: ended by signal %d%s%.180s", row->signal, blank, more);
    else if (job->end == END_FAILED && row->code >= 0)
        snprintf(job->reason, sizeof job->reason, "failed with exit code %d%s%.180s", (int)row->code, blank, more);
    else
        snprintf(job->reason, sizeof job->reason, "%s%s%s%.160s", row->word->meaning, job->end == END_CANCELLED ? by : "", blank, more);
}

static void tell_live(const struct entry *entry, struct job *job)
{
    const struct row *row = &entry->row;
    if (!row->word) {
        job->strange = true;
        snprintf(job->reason, sizeof job->reason, "Slurm calls its state '%s', which this build does not know", row->state);
        return;
    }
    job->phase = row->word->phase;
    bool plain = strcmp(row->word->word, "PENDING") == 0 || strcmp(row->word->word, "RUNNING") == 0;
    if (job->phase == JOB_PENDING) {
        reason_waiting(job->reason, sizeof job->reason, row->reason);
        job->starts = row->starts;
    }
    if (!plain && job->phase == JOB_PENDING && job->reason[0]) {
        char why[256];
        memcpy(why, job->reason, sizeof why);
        snprintf(job->reason, sizeof job->reason, "%s: %.180s", row->word->meaning, why);
    } else if (!plain || !job->reason[0]) {
        snprintf(job->reason, sizeof job->reason, "%s", row->word->meaning);
    }
    if (job->phase == JOB_RUNNING && isfinite(row->used))
        job->ran = row->used + (strcmp(row->word->word, "RUNNING") == 0 ? clock_steady() - entry->seen : 0);
}

// True while somebody else has cancelled it and accounting may yet say who.
static bool waits_for_who(struct slurm *slurm, struct entry *entry)
{
    const struct row *end = &entry->end;
    enum account_state state = account_state(slurm->account);
    if (end->word->end != END_CANCELLED || end->by >= 0 || entry->killed || state == ACCOUNT_ABSENT || state == ACCOUNT_SILENT)
        return false;
    double now = clock_steady();
    if (entry->cancelled_since == 0)
        entry->cancelled_since = now;
    if (now - entry->cancelled_since >= WHO_WAIT)
        return false;
    account_want(slurm->account, entry->id);
    return true;
}

static void tell_ended(struct slurm *slurm, struct entry *entry, struct job *job)
{
    if (waits_for_who(slurm, entry)) {
        snprintf(job->reason, sizeof job->reason, "cancelled; accounting is asked by whom");
        return;
    }
    tell_end(&entry->end, job);
    job->if_unbegun = entry->presumed;
}

// An element of an array that is cancelled before it begins leaves no trace, neither in the queue nor in accounting: it waited, and is not
// listed any more for a good while, though its array is. One that had begun would still be listed, or known to accounting.
static bool is_out_of_array(const struct entry *entry)
{
    const struct row *row = &entry->row;
    bool unseen = !row->id[0]; // by a daemon that was not there: what had begun shows in the run's directory
    bool waited = unseen || (row->word && row->word->phase == JOB_PENDING && strcmp(row->id, entry->id) == 0 && row->restarts <= 0);
    return waited && entry->array_listed && entry->verdict != ACCOUNT_HAS_LIVE;
}

static void tell_cancelled_pending(struct slurm *slurm, struct entry *entry, struct job *job)
{
    long long by;
    entry->end = entry->row;
    snprintf(entry->end.state, sizeof entry->end.state, "CANCELLED");
    entry->end.word = state_word_of("CANCELLED", &by);
    entry->end.reason[0] = entry->end.nodes[0] = 0;
    entry->end.by = -1; // nobody says who
    entry->ended = entry->presumed = true;
    tell_ended(slurm, entry, job);
}

// squeue lists it no longer, or not yet.
static void tell_lacking(struct slurm *slurm, struct entry *entry, struct job *job)
{
    if (entry->handed && entry->handed_over > entry->seen) {
        job->phase = JOB_PENDING;
        job->asked = entry->handed_over;
        snprintf(job->reason, sizeof job->reason, "handed over to Slurm");
        return;
    }
    if (entry->live) {
        snprintf(job->reason, sizeof job->reason, "an earlier submission of it is being ended");
        return;
    }
    if (entry->lacking < LACKING_MIN) {
        snprintf(job->reason, sizeof job->reason, "Slurm does not list it; asked again");
        return;
    }
    bool patient = clock_steady() - entry->lacking_since < slurm->settings.patience;
    enum account_state state = account_state(slurm->account);
    bool asks = entry->id[0] && state != ACCOUNT_ABSENT;
    if (asks && patient)
        account_want(slurm->account, entry->id);
    if (asks && patient && entry->verdict != ACCOUNT_HAS_NONE) {
        snprintf(job->reason, sizeof job->reason, "Slurm does not list it any more; accounting is asked what became of it");
        return;
    }
    if (is_out_of_array(entry)) {
        bool may_be_told = asks && state != ACCOUNT_SILENT && entry->verdict != ACCOUNT_HAS_NONE;
        if (may_be_told)
            account_want(slurm->account, entry->id);
        if (patient || may_be_told)
            snprintf(job->reason, sizeof job->reason, "Slurm does not list it any more, only others of its array; asked again");
        else
            tell_cancelled_pending(slurm, entry, job);
        return;
    }
    job->phase = JOB_GONE;
    const char *more = "";
    if (asks && state == ACCOUNT_SILENT)
        more = ", and accounting does not answer";
    else if (asks && entry->verdict == ACCOUNT_HAS_NONE)
        more = ", nor does accounting";
    if (asks && entry->verdict == ACCOUNT_HAS_LIVE)
        snprintf(job->reason, sizeof job->reason, "Slurm does not know job %s any more; accounting still calls it %s", entry->id,
            entry->account_state);
    else if (entry->id[0])
        snprintf(job->reason, sizeof job->reason, "Slurm does not know job %s any more%s", entry->id, more);
    else
        snprintf(job->reason, sizeof job->reason, "Slurm knows no job of this run");
}

static void tell_silence(const struct queue_health *health, struct job *job)
{
    char since[40];
    moment(since, health->silent_since);
    snprintf(job->reason, sizeof job->reason, "Slurm has not answered since %s (%.150s)", since, health->fault);
}

void entry_tell(struct slurm *slurm, struct entry *entry, struct job *job)
{
    const struct queue_health *health = queue_health(slurm->queue);
    job->phase = JOB_UNKNOWN;
    job->strange = job->if_unbegun = false;
    job->reason[0] = job->nodes[0] = 0;
    job->ran = NAN;
    job->starts = 0;
    job->code = -1;
    job->signal = 0;
    job->asked = entry->seen > -INFINITY ? entry->seen : 0;
    if (entry->listed || entry->ended) {
        const struct row *row = entry->ended ? &entry->end : &entry->row;
        snprintf(job->nodes, sizeof job->nodes, "%s", row->nodes);
        if (row->restarts >= 0)
            job->restarts = row->restarts;
    }
    if (entry->id[0])
        snprintf(job->id, sizeof job->id, "%s", entry->id);
    if (entry->ended)
        tell_ended(slurm, entry, job);
    else if (health->silent_since > 0)
        tell_silence(health, job);
    else if (entry->listed)
        tell_live(entry, job);
    else if (entry->seen > -INFINITY || entry->handed)
        tell_lacking(slurm, entry, job);
    else
        snprintf(job->reason, sizeof job->reason, "Slurm is being asked");
}
