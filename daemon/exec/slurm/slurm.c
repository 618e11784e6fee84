#include "daemon/exec/slurm/slurm.h"
#include "daemon/exec/slurm/inside.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_array_max(struct slurm *slurm, int64_t array_max)
{
    slurm->array_now = array_most(array_max);
    slurm->settings.array_max = (int64_t)slurm->array_now;
}

struct slurm *slurm_new(const struct slurm_settings *settings)
{
    struct slurm *slurm = allocate(1, sizeof *slurm);
    struct slurm_settings *own = &slurm->settings;
    *own = *settings;
    own->interval = own->interval > 0 ? own->interval : 3;
    own->interval_max = own->interval_max > 0 ? own->interval_max : 60;
    own->deadline = own->deadline > 0 ? own->deadline : 60;
    own->patience = own->patience > 0 ? own->patience : 60;
    own->submissions_max = own->submissions_max > 0 ? own->submissions_max : 4;
    slurm->job_script = string_copy(settings->job_script);
    slurm->swept = -INFINITY;
    set_array_max(slurm, own->array_max);
    struct queue_settings queue = {own->interval, own->interval_max, own->deadline};
    slurm->queue = queue_new(&queue);
    slurm->account = account_new(&queue);
    slurm->marks = marks_new(&queue);
    pthread_mutex_init(&slurm->lock, NULL);
    return slurm;
}

void slurm_free(struct slurm *slurm)
{
    if (!slurm)
        return;
    entries_free(slurm);
    arrays_free(&slurm->arrays);
    cancels_free(slurm);
    marks_free(slurm->marks);
    account_free(slurm->account);
    queue_free(slurm->queue);
    free(slurm->job_script);
    pthread_mutex_destroy(&slurm->lock);
    free(slurm);
}

static void turn_errand(struct slurm *slurm, struct entry *entry)
{
    if (entry->errand)
        errand_turn(slurm, entry);
}

static void turn(struct slurm *slurm)
{
    if (queue_turn(slurm->queue))
        entries_take_rows(slurm);
    if (account_turn(slurm->account))
        entries_take_accounts(slurm);
    marks_turn(slurm->marks);
    entries_each(slurm, turn_errand);
    errands_send(slurm);
    cancel_turn(slurm);
}

// False: the file cannot be read just now. Nothing is decided without it.
static bool knows_serial(struct entry *entry, struct error *err)
{
    return entry->serial_known || (entry->directory && submission_read(entry, err) == 0);
}

// A job that is in Slurm's hands has a phase, also where squeue does not know it yet.
static void tell_handed(struct slurm *slurm, struct entry *entry, struct job *job)
{
    entry_tell(slurm, entry, job);
    job->started = 0;
    if (job->phase == JOB_UNKNOWN || job->phase == JOB_GONE)
        job->phase = JOB_PENDING;
}

// ---- submit ----

// A variable that would change what sbatch is asked for.
static const char *forbidden_variable(const struct job *job)
{
    for (const char *const *at = job->environment; at && *at; at++)
        if (strncmp(*at, "SBATCH_", 7) == 0 || strncmp(*at, "SLURM_CONF", 10) == 0 || strncmp(*at, "SLURM_CLUSTERS", 14) == 0)
            return *at;
    return NULL;
}

static int submit(struct slurm *slurm, struct job *job, struct error *err)
{
    struct entry *entry = entry_of(slurm, job);
    const char *fault = NULL, *forbidden = forbidden_variable(job);
    job->phase = JOB_UNKNOWN;
    if (errand_is_refused(entry, &fault)) {
        error_set(err, "%s", fault);
        errand_end(slurm, entry);
        return -1;
    }
    if (entry->errand) {
        snprintf(job->reason, sizeof job->reason, "%s", errand_words(entry));
        return 0;
    }
    if (!job->argv && !entry->handed) {
        job->phase = JOB_GONE;
        return 0;
    }
    if (forbidden)
        return error_set(err, "the job's environment may not set %.*s, which sbatch itself would read", (int)strcspn(forbidden, "="), forbidden);
    if (entry->handed) {
        tell_handed(slurm, entry, job);
        return 0;
    }
    struct error unread = {0};
    if (!knows_serial(entry, &unread)) {
        snprintf(job->reason, sizeof job->reason, "%.250s", unread.text);
        return 0;
    }
    errand_begin(slurm, entry, job);
    return 0;
}

// ---- find ----

static int find(struct slurm *slurm, struct job *job)
{
    struct entry *entry = entry_of(slurm, job);
    struct error err = {0};
    job->phase = JOB_UNKNOWN;
    if (entry->errand) {
        job->phase = errand_is_refused(entry, NULL) ? JOB_GONE : JOB_UNKNOWN;
        return 0;
    }
    if (entry->handed) {
        tell_handed(slurm, entry, job);
        return 0;
    }
    if (!knows_serial(entry, &err)) {
        snprintf(job->reason, sizeof job->reason, "%.250s", err.text);
        return 0;
    }
    if (entry->serial == 0 || entry->clean) {
        job->phase = JOB_GONE;
        return 0;
    }
    if (entry->find_since == 0) {
        entry->find_since = clock_steady();
        entry->lacking = 0;
    }
    if (entry->seen >= entry->find_since && entry_is_listed(entry)) {
        entry_hand_over(entry, entry->row.id, entry->seen);
        tell_handed(slurm, entry, job);
    } else if (entry->seen >= entry->find_since && (entry->listed || entry->lacking >= LACKING_MIN) && entry->live == 0) {
        if (seek_waits(slurm, entry))
            snprintf(job->reason, sizeof job->reason, "Slurm does not list it; accounting is asked whether it knows it");
        else
            job->phase = JOB_GONE;
    } else {
        queue_want(slurm->queue, entry->seen >= entry->find_since ? clock_steady() : entry->find_since, true);
    }
    return 0;
}

// ---- poll ----

// Who asks how it goes has handed it over: it has begun, say, although neither sbatch nor squeue has told of it. No other job is made of it.
static void end_open_errands(struct slurm *slurm, struct job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = entry_of(slurm, &jobs[i]);
        if (entry->errand && !errand_is_sending(entry))
            errand_end(slurm, entry);
    }
}

static void poll_jobs(struct slurm *slurm, struct job *jobs, size_t count)
{
    slurm->polls++;
    end_open_errands(slurm, jobs, count);
    turn(slurm);
    for (size_t i = 0; i < count; i++) {
        struct entry *entry = entry_of(slurm, &jobs[i]);
        knows_serial(entry, NULL);
        entry->polled = slurm->polls;
        entry_tell(slurm, entry, &jobs[i]);
    }
    // Also while it is silent and nobody has a job: that it answers again is worth knowing.
    if (count || queue_health(slurm->queue)->silent_since > 0)
        queue_want(slurm->queue, clock_steady(), false);
}

// ---- stop, kill ----

// Slurm is told to signal job.sh alone; whether that comes about does not matter: the file is the request.
static int stop(struct slurm *slurm, struct job *job, struct error *err)
{
    struct entry *entry = entry_of(slurm, job);
    char *path = path_join(job->directory, STOP_FILE);
    int status = file_exists(path) ? 0 : file_write_atomic(path, "", 0, 0644, err);
    free(path);
    if (entry->id[0] && entry->listed && entry->row.word && entry->row.word->phase == JOB_RUNNING)
        signal_job(slurm, entry);
    return status;
}

// Every job of the run that may still come does nothing, from here on.
static int begin_kill(struct entry *entry, struct error *err)
{
    double now = clock_steady();
    if (now < entry->fault_until)
        return 1;
    bool away = entry->directory && !file_exists(entry->directory);
    if (away) { // no number can be raised, nor a job begin that sees the same: Slurm is told to end whatever has the tag
        entry->serial = SUBMISSION_MAX;
        entry->serial_known = true;
        entry->unsent = false;
    } else if ((!knows_serial(entry, err)) || submission_raise(entry, err) != 0) {
        entry->fault_until = now + FAULT_AGAIN;
        return -1;
    }
    entry->kill_since = now;
    entry->lacking = 0;
    entry->cancel_asked = 0;
    return 1;
}

static int kill_all(struct slurm *slurm, struct job *job, struct error *err)
{
    struct entry *entry = entry_of(slurm, job);
    if (errand_is_sending(entry))
        return 1; // there may be a job in a moment
    if (entry->errand) {
        errand_end(slurm, entry);
        entry->kill_since = 0;
    }
    if (knows_serial(entry, NULL) && (entry->serial == 0 || (entry->clean && entry->live == 0)))
        return 0;
    entry->killed = true;
    if (entry->kill_since == 0) {
        int begun = begin_kill(entry, err);
        if (begun < 0 || entry->kill_since == 0)
            return begun;
    }
    bool gone = entry->listed ? entry->live == 0 : entry->lacking >= LACKING_MIN && entry->live == 0;
    if (entry->seen < entry->kill_since || !gone) {
        queue_want(slurm->queue, entry->seen < entry->kill_since ? entry->kill_since : clock_steady(), true);
        return 1;
    }
    entry->kill_since = 0;
    entry->handed = false;
    entry->clean = entry->serial < SUBMISSION_MAX;
    entry->serial_known = entry->clean; // what the file says is read when it is there again
    return 0;
}

// ---- the calls ----

static int slurm_submit(void *context, struct job *job, struct error *err)
{
    struct slurm *slurm = context;
    pthread_mutex_lock(&slurm->lock);
    int status = submit(slurm, job, err);
    pthread_mutex_unlock(&slurm->lock);
    return status;
}

static int slurm_poll(void *context, struct job *jobs, size_t count, struct error *err)
{
    struct slurm *slurm = context;
    (void)err;
    pthread_mutex_lock(&slurm->lock);
    poll_jobs(slurm, jobs, count);
    pthread_mutex_unlock(&slurm->lock);
    return 0;
}

static int slurm_stop(void *context, struct job *job, struct error *err)
{
    struct slurm *slurm = context;
    pthread_mutex_lock(&slurm->lock);
    int status = stop(slurm, job, err);
    pthread_mutex_unlock(&slurm->lock);
    return status;
}

static int slurm_kill(void *context, struct job *job, struct error *err)
{
    struct slurm *slurm = context;
    pthread_mutex_lock(&slurm->lock);
    int status = kill_all(slurm, job, err);
    pthread_mutex_unlock(&slurm->lock);
    return status;
}

static int slurm_find(void *context, struct job *job, struct error *err)
{
    struct slurm *slurm = context;
    (void)err;
    pthread_mutex_lock(&slurm->lock);
    int status = find(slurm, job);
    pthread_mutex_unlock(&slurm->lock);
    return status;
}

const struct executor *executor_slurm(void)
{
    static const struct executor executor = {"slurm", slurm_submit, slurm_poll, slurm_stop, slurm_kill, slurm_find};
    return &executor;
}

// ---- what the daemon shows ----

void slurm_set_array_max(struct slurm *slurm, int64_t array_max)
{
    pthread_mutex_lock(&slurm->lock);
    set_array_max(slurm, array_max);
    pthread_mutex_unlock(&slurm->lock);
}

void slurm_health(struct slurm *slurm, struct slurm_health *health)
{
    pthread_mutex_lock(&slurm->lock);
    *health = (struct slurm_health){
        .queue = *queue_health(slurm->queue),
        .accounting = account_state(slurm->account),
        .accounting_silent_since = account_silent_since(slurm->account),
    };
    snprintf(health->accounting_fault, sizeof health->accounting_fault, "%s", account_fault(slurm->account));
    snprintf(health->cancel_fault, sizeof health->cancel_fault, "%s", slurm->cancel_fault);
    double asked;
    const struct rows *rows = queue_answer(slurm->queue, &asked);
    health->jobs = rows ? rows->count : 0;
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct entry *entry = slurm->buckets[i]; entry; entry = entry->next)
            health->submissions += entry->errand != NULL;
    pthread_mutex_unlock(&slurm->lock);
}

static void add_stranger(struct slurm_stranger *stranger, const struct row *row)
{
    *stranger = (struct slurm_stranger){.submission = row->submission, .phase = row->word ? row->word->phase : JOB_UNKNOWN};
    memcpy(stranger->id, row->id, sizeof stranger->id);
    memcpy(stranger->tag, row->tag, sizeof stranger->tag);
    memcpy(stranger->state, row->state, sizeof stranger->state);
    memcpy(stranger->name, row->name, sizeof stranger->name);
    stranger->directory = string_copy(row->directory);
}

// squeue lists by state and priority: whoever looks for a number wants them in order.
static int by_number(const void *a, const void *b)
{
    return strverscmp(((const struct slurm_stranger *)a)->id, ((const struct slurm_stranger *)b)->id);
}

int slurm_strangers(struct slurm *slurm, struct slurm_stranger **list, size_t *count)
{
    *list = NULL;
    *count = 0;
    pthread_mutex_lock(&slurm->lock);
    double asked = -INFINITY, now = clock_steady();
    const struct rows *rows = queue_answer(slurm->queue, &asked);
    bool fresh = rows && now - asked <= 2 * slurm->settings.interval && queue_health(slurm->queue)->silent_since == 0;
    if (!fresh)
        queue_want(slurm->queue, now, true);
    else
        *list = allocate(rows->count + 1, sizeof **list);
    for (size_t i = 0; fresh && i < rows->count; i++) {
        if (rows->at[i].array[0] && rows->at[i].element < 0)
            continue; // an array that ended before it began is nobody's job
        if (!rows->at[i].array[0] && !rows->at[i].tag[0])
            continue; // no mark of ours
        const struct entry *entry = entry_find(slurm, rows->at[i].tag);
        if (!entry || (entry->polled != slurm->polls && !entry->errand))
            add_stranger(&(*list)[(*count)++], &rows->at[i]);
    }
    pthread_mutex_unlock(&slurm->lock);
    if (*count)
        qsort(*list, *count, sizeof **list, by_number);
    return fresh ? 0 : 1;
}

void slurm_strangers_free(struct slurm_stranger *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].directory);
    free(list);
}
