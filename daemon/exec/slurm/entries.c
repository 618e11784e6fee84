// All that is known of each run, by its tag, and how the answers of squeue and sacct add to it.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Tags are random: their first digits are as good as a hash.
static struct entry **bucket_of(struct slurm *slurm, const char *tag)
{
    size_t number = 0;
    for (size_t i = 0; i < 4 && tag[i]; i++)
        number = number * 16 + ((unsigned char)tag[i] & 15) + (tag[i] > '9' ? 9 : 0);
    return &slurm->buckets[number % BUCKETS];
}

struct entry *entry_find(struct slurm *slurm, const char *tag)
{
    for (struct entry *entry = *bucket_of(slurm, tag); entry; entry = entry->next)
        if (strcmp(entry->tag, tag) == 0)
            return entry;
    return NULL;
}

struct entry *entry_of(struct slurm *slurm, const struct job *job)
{
    struct entry *entry = entry_find(slurm, job->tag);
    if (!entry) {
        struct entry **bucket = bucket_of(slurm, job->tag);
        entry = allocate(1, sizeof *entry);
        entry->next = *bucket;
        *bucket = entry;
        memcpy(entry->tag, job->tag, sizeof entry->tag);
        entry->seen = -INFINITY;
    }
    if (job->directory && (!entry->directory || strcmp(entry->directory, job->directory) != 0)) {
        free(entry->directory);
        entry->directory = string_copy(job->directory);
    }
    if (job->name && (!entry->name || strcmp(entry->name, job->name) != 0)) {
        free(entry->name);
        entry->name = string_copy(job->name);
    }
    if (!entry->id[0] && job->id[0] && strcmp(job->id, "0") != 0 && strlen(job->id) < sizeof entry->id)
        strcpy(entry->id, job->id);
    entry->touched = clock_steady();
    return entry;
}

void entries_each(struct slurm *slurm, void (*visit)(struct slurm *slurm, struct entry *entry))
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = slurm->buckets[i]; entry; entry = entry->next)
            visit(slurm, entry);
}

static void entry_free(struct slurm *slurm, struct entry *entry)
{
    errand_end(slurm, entry);
    free(entry->directory);
    free(entry->name);
    free(entry);
}

void entries_free(struct slurm *slurm)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = slurm->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            entry_free(slurm, entry);
        }
}

static void forget_old(struct slurm *slurm)
{
    double now = clock_steady();
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry **at = &slurm->buckets[i]; *at;) {
            struct entry *entry = *at;
            if (errand_is_sending(entry) || now - entry->touched < ENTRY_KEPT) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            entry_free(slurm, entry);
        }
}

bool row_is_live(const struct row *row)
{
    return !row->word || row->word->phase != JOB_ENDED;
}

bool entry_is_listed(const struct entry *entry)
{
    return entry->listed && entry->row.submission >= entry->serial;
}

bool entry_may_take_back(const struct entry *entry)
{
    return entry->unsent && entry->listed && entry->row.submission == entry->serial - 1;
}

void entry_hand_over(struct entry *entry, const char *id, double when)
{
    bool listed = entry_is_listed(entry);
    snprintf(entry->id, sizeof entry->id, "%s", id);
    entry->told = entry->serial;
    entry->handed = true;
    entry->handed_over = when;
    entry->clean = entry->killed = false;
    entry->find_since = entry->kill_since = 0;
    entry->listed = listed;
    if (!listed)
        entry->ended = false;
    entry->lacking = 0;
    entry->verdict = ACCOUNT_NOT_ASKED;
    entry->cancelled_since = entry->refusal_since = 0;
    entry->refusal = REFUSAL_NONE;
}

// ---- squeue's answer ----

// Of several jobs with one tag the last submission is the job; of two with the same, the one that lives, then the newer.
static bool is_better(const struct row *row, const struct row *best)
{
    if (!best || row->submission != best->submission)
        return !best || row->submission > best->submission;
    if (row_is_live(row) != row_is_live(best))
        return row_is_live(row);
    return strtoll(row->id, NULL, 10) > strtoll(best->id, NULL, 10);
}

int64_t entry_lowest(const struct entry *entry)
{
    return entry->serial - (entry->unsent ? 1 : 0);
}

// Whether the row is of the job that counts, not of one that was given up for a later submission, whose end is nobody's. Which job that is may
// have been learnt by a daemon before us: then the file's number says it, or the job's own where its number has since been raised to end it.
static bool row_counts(const struct entry *entry, const struct row *row)
{
    if (entry->told > 0)
        return row->submission >= entry->told;
    return !entry->serial_known || row->submission >= entry_lowest(entry) || strcmp(row->id, entry->id) == 0;
}

// Of a job that is alone, alive, and the one that was told of, nobody has to ask whether it is the one that began.
static bool row_is_own(struct entry *entry, const struct row *row)
{
    bool several = entry->best && entry->best->submission == row->submission;
    if (several || !row_is_live(row) || strcmp(row->id, entry->id) != 0)
        claim_look(entry, row->submission);
    if (several && claim_is_anothers(entry, entry->best->submission, entry->best->id))
        entry->best = NULL;
    return !claim_is_anothers(entry, row->submission, row->id);
}

// No job is listed, or none that began: the one that did is to be asked for, whichever sbatch spoke of.
static void take_claimant(struct entry *entry)
{
    const char *id = claim_look(entry, entry->told > 0 ? entry->told : entry->serial);
    if (id)
        snprintf(entry->id, sizeof entry->id, "%s", id);
}

static void begin_entry(struct slurm *slurm, struct entry *entry)
{
    (void)slurm;
    entry->best = NULL;
    entry->live = 0;
}

void entry_note_end(struct entry *entry, const struct row *row)
{
    long long by = entry->ended && strcmp(entry->end.id, row->id) == 0 ? entry->end.by : -1;
    entry->end = *row;
    entry->end.directory = NULL;
    if (entry->end.by < 0)
        entry->end.by = by;
    entry->ended = true;
    entry->presumed = false;
}

// whole: rows that are not the entry's are not its for certain.
static void close_entry(struct slurm *slurm, struct entry *entry, double asked, bool whole)
{
    if (!entry->best && !whole)
        return; // nothing is known of it by this answer
    entry->seen = asked;
    entry->listed = entry->best != NULL;
    if (!entry->listed) {
        if (entry->handed_over > asked)
            return; // it was asked before there was such a job
        if (entry->lacking++ == 0) {
            entry->lacking_since = asked;
            entry->array_listed = 0;
        }
        entry->array_listed += entry_array_is_listed(slurm, entry);
        take_claimant(entry);
        return;
    }
    entry->row = *entry->best;
    entry->row.directory = NULL;
    entry->best = NULL;
    entry->lacking = 0;
    entry->verdict = ACCOUNT_NOT_ASKED;
    snprintf(entry->id, sizeof entry->id, "%s", entry->row.id);
    if (entry->serial_known && entry->row.submission > entry->serial) {
        entry->serial = entry->row.submission; // somebody has put an old file there: what Slurm has is newer
        entry->unsent = false;
    }
    if (!row_is_live(&entry->row)) {
        entry_note_end(entry, &entry->row);
        return;
    }
    entry->ended = false;
    entry->cancelled_since = 0;
}

static void take_back(struct slurm *slurm, struct entry *entry)
{
    (void)slurm;
    if (entry_may_take_back(entry))
        submission_take_back(entry);
}

// Whose job the row is; NULL: nobody's that was asked for. A mark can be copied, by who submits another job with a comment that was found at one
// of ours. A job with another name in another directory was not made by us: it is left alone, and what becomes of it is told of no run. One that
// has either of them cannot be told from ours; job.sh lets one of them begin (claim.c).
static struct entry *entry_of_row(struct slurm *slurm, const struct row *row)
{
    struct entry *entry = entry_find(slurm, row->tag);
    bool named = !entry || row->array[0] || !entry->name || strcmp(row->name, entry->name) == 0;
    bool there = !entry || !row->directory || !entry->directory || strcmp(row->directory, entry->directory) == 0;
    return named || there ? entry : NULL;
}

void entries_take_rows(struct slurm *slurm)
{
    double asked, now = clock_steady();
    struct rows *rows = queue_answer(slurm->queue, &asked);
    bool whole = arrays_complete(&slurm->arrays, rows, now) && !rows->doubtful;
    unmarked_complete(slurm, rows);
    entries_each(slurm, begin_entry);
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        struct entry *entry = entry_of_row(slurm, row);
        if (!entry)
            continue;
        if (row_is_live(row))
            entry->live++;
        if (row_counts(entry, row) && row_is_own(entry, row) && is_better(row, entry->best))
            entry->best = row;
    }
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = slurm->buckets[i]; entry; entry = entry->next)
            close_entry(slurm, entry, asked, whole);
    entries_each(slurm, take_back);
    // Jobs that were given up, what Slurm made of a call that it said had failed, and what was made of one call twice.
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        struct entry *entry = entry_of_row(slurm, row);
        bool ending = row->word && strcmp(row->word->word, "COMPLETING") == 0, waits = row->word && row->word->phase == JOB_PENDING;
        if (!entry || !row_is_live(row) || ending)
            continue;
        if (row->submission < entry_lowest(entry) || (waits && claim_is_anothers(entry, row->submission, row->id)))
            cancel_job(slurm, entry, row, now);
    }
    forget_old(slurm);
    arrays_forget(&slurm->arrays, now, ARRAY_KEPT);
}

bool entry_array_is_listed(struct slurm *slurm, const struct entry *entry)
{
    double asked;
    const struct rows *rows = queue_answer(slurm->queue, &asked);
    size_t length = strcspn(entry->id, "_");
    int64_t number = entry->told > 0 ? entry->told : entry_lowest(entry);
    if (!rows || !entry->id[length])
        return false;
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        bool whole = row->array[0] && row->element < 0 && !row_is_live(row);
        bool numbered = strncmp(row->id, entry->id, length) == 0 && (row->id[length] == '_' || (whole && !row->id[length]));
        if (numbered && array_has(&slurm->arrays, row, entry->tag, number, clock_steady()))
            return true; // not another array that has got its number since
    }
    return false;
}

// ---- sacct's answer ----

// The newest line of the job that is ours: its number may have been another's before. Where there is a comment, it decides; else the name.
static const struct row *account_of(const struct rows *rows, const struct entry *entry)
{
    const struct row *found = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        if (strcmp(row->id, entry->id) != 0)
            continue;
        bool own = row->tag[0] ? strcmp(row->tag, entry->tag) == 0 : !entry->name || strcmp(row->name, entry->name) == 0;
        if (own)
            found = row;
    }
    return found;
}

static void take_account(struct slurm *slurm, struct entry *entry)
{
    if (!entry->id[0] || !account_has_asked(slurm->account, entry->id))
        return;
    const struct row *row = account_of(account_answer(slurm->account), entry);
    if (!row && account_answer(slurm->account)->doubtful)
        return; // one of the lines may be its
    entry->verdict = !row ? ACCOUNT_HAS_NONE : row_is_live(row) ? ACCOUNT_HAS_LIVE : ACCOUNT_HAS_END;
    snprintf(entry->account_state, sizeof entry->account_state, "%s", row ? row->state : "");
    if (entry->verdict != ACCOUNT_HAS_END)
        return;
    if (!entry->listed) {
        entry_note_end(entry, row);
        entry->accounted = clock_steady();
    } else if (entry->ended && row->word->end == END_CANCELLED && entry->end.word->end == END_CANCELLED)
        entry->end.by = row->by;
}

void entries_take_accounts(struct slurm *slurm)
{
    arrays_complete(&slurm->arrays, account_answer(slurm->account), clock_steady());
    entries_each(slurm, take_account);
    entries_each(slurm, seek_take);
}
