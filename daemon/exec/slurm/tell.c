// From what is known of a run to what poll says of its job: phase, how it ended, why it waits, in words.
#include "daemon/exec/slurm/inside.h"
#include "daemon/exec/slurm/options.h"
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
    if (job->end == END_FAILED && row->barred)
        snprintf(job->reason, sizeof job->reason,
            "its node could not enter its run directory, or not write %s there: is the directory there, on every node, with room? (%.60s)", SLURM_LOG,
            row->reason[0] ? row->reason : row->state);
    else if (job->end == END_FAILED && strcmp(row->reason, "BadConstraints") == 0) // where it waited: its 0:1 is no process's signal
        snprintf(job->reason, sizeof job->reason, "Slurm would not start it: %.180s", more);
    else if (job->end == END_FAILED && row->signal)
        snprintf(job->reason, sizeof job->reason, "failed: ended by signal %d%s%.180s", row->signal, blank, more);
    else if (job->end == END_FAILED && row->code >= 0)
        snprintf(job->reason, sizeof job->reason, "failed with exit code %d%s%.180s", (int)row->code, blank, more);
    else
        snprintf(job->reason, sizeof job->reason, "%s%s%s%.160s", row->word->meaning, job->end == END_CANCELLED ? by : "", blank, more);
}

// Slurm could not start it: its successor is to be handed over. Of a start that was not the job's first, only this start came to nothing.
static void tell_refused(struct entry *entry, const struct row *row, struct job *job)
{
    bool failed = row->word->phase == JOB_ENDED && row->word->end == END_FAILED, unbegun = refusal_is_unbegun(entry, row);
    job->unlaunched = true;
    if (failed) {
        tell_end(row, job);
        snprintf(job->reason, sizeof job->reason, "Slurm could not start job %s on %.100s: failed%s at once", row->id, row->nodes,
            row->code < 0 ? "" : " with exit code 1");
    } else {
        snprintf(job->reason, sizeof job->reason, "%s%.100s refused job %s: it still ran another one of that number, which Slurm had forgotten, and Slurm %s",
            row->nodes[0] ? "" : "its node", row->nodes, row->id, row->word->phase == JOB_ENDED ? "cancelled it" : "holds it");
    }
    if (unbegun)
        job->phase = JOB_GONE;
}

static void tell_live(struct slurm *slurm, struct entry *entry, struct job *job)
{
    const struct row *row = &entry->row;
    if (refusal_look(slurm, entry, row) == REFUSAL_CERTAIN) {
        tell_refused(entry, row, job);
        return;
    }
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
    } else if (!plain || (job->phase == JOB_PENDING && !job->reason[0])) {
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
    enum refusal refusal = refusal_look(slurm, entry, &entry->end);
    if (refusal == REFUSAL_ASKED) {
        snprintf(job->reason, sizeof job->reason, "cancelled before it began; its node is asked whether it refused it");
        return;
    }
    if (refusal == REFUSAL_CERTAIN) {
        tell_refused(entry, &entry->end, job);
        return;
    }
    tell_end(&entry->end, job);
    size_t said = strlen(job->reason);
    if (refusal == REFUSAL_UNPROVEN)
        snprintf(job->reason + said, sizeof job->reason - said,
            " before anything of it began: by a person, or by Slurm itself, of which its node shows no sign");
    job->if_unbegun = entry->presumed;
}

// Accounting keeps each start of a job: this one's end may have been followed by another start, of which squeue would know. Its silence ends no run.
static bool may_be_put_back(const struct entry *entry)
{
    enum job_end end = entry->end.word->end;
    return !entry->listed && entry->accounted > entry->seen && (end == END_NODE_FAILED || end == END_PREEMPTED);
}

static void tell_former_end(struct slurm *slurm, const struct entry *entry, struct job *job)
{
    queue_want(slurm->queue, clock_steady(), false);
    snprintf(job->reason, sizeof job->reason, "%s, says accounting; Slurm is asked whether it is to be started again", entry->end.word->meaning);
}

// An element of an array that is cancelled before it begins leaves no trace, neither in the queue nor in accounting: it waited, and is not
// listed any more for a good while, though its array is, by more than one answer: one may lack lines, and then the controller forget them all. One
// that had begun would still be listed, or known to accounting.
static bool is_out_of_array(const struct entry *entry)
{
    const struct row *row = &entry->row;
    bool unseen = !row->id[0]; // by a daemon that was not there: what had begun shows in the run's directory
    bool waited = unseen || (row->word && row->word->phase == JOB_PENDING && strcmp(row->id, entry->id) == 0 && row->restarts <= 0);
    return waited && entry->array_listed >= LACKING_MIN && entry->verdict != ACCOUNT_HAS_LIVE;
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
    job->strange = job->if_unbegun = job->unlaunched = false;
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
    if (entry->ended && may_be_put_back(entry))
        tell_former_end(slurm, entry, job);
    else if (entry->ended)
        tell_ended(slurm, entry, job);
    else if (health->silent_since > 0)
        tell_silence(health, job);
    else if (entry->listed)
        tell_live(slurm, entry, job);
    else if (entry->seen > -INFINITY || entry->handed)
        tell_lacking(slurm, entry, job);
    else
        snprintf(job->reason, sizeof job->reason, "Slurm is being asked");
}
