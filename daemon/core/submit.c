// A submission becomes runs: rows, directories and documents, all of it or nothing, in many small steps that hold nobody up. First rows that
// nobody sees, which give each run its name and tell a daemon after us what there is to undo; then the directories, beside their places;
// one wait for the disk; the names; and when the database calls the submission complete, it is.
#include "daemon/core/dataset.h"
#include "daemon/core/draft.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROWS_AT_ONCE = 128,     // in one transaction: a few milliseconds under the lock
    DOCUMENTS_AT_ONCE = 32, // long ones
    SYNC_EACH_MAX = 16,     // so few directories are waited for one by one, more by what the whole file system has to write
    OTHERS_WAIT_MS = 50
};

struct submitting { // one submission, from its drafts to the queue
    struct daemon *daemon;
    struct drafts drafts;
    struct submission submission;
    const struct json *body;
    int64_t experiment; // 0: no row of it is stored
    struct slurm_tally tally;
    struct answer *answer;
};

// Others that wait for the lock come in between: a mutex is not fair.
static void let_others(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

// ---- stages that others make ----

// A stage that somebody is working on already, or that has just been done, is not done again. Returns the run to wait for, 0 for none.
static int64_t shared_stage(struct daemon *daemon, const char *key)
{
    struct run_row row;
    if (!key[0] || state_dataset_run(daemon->state, key, &row, NULL) != 0)
        return 0;
    int64_t id = !run_state_ended(row.state) ? row.id : 0;
    run_row_release(&row);
    return id;
}

// Within a change. false: another submission is about to make one of them, and may be given up yet.
static bool drop_shared(struct daemon *daemon, struct drafts *drafts)
{
    bool alone = !daemon->submissions->next; // what lies there then is nobody's
    for (size_t i = 0; i < drafts->count; i++) {
        struct draft *draft = &drafts->at[i];
        if (draft->has_spec)
            continue;
        draft->instead = shared_stage(daemon, draft->key);
        draft->dropped = draft->instead != 0 || dataset_is_complete(daemon->home, draft->key);
        if (!draft->dropped && !alone && state_dataset_created(daemon->state, draft->key))
            return false;
    }
    return true;
}

// ---- names ----

// Within a change. Rows from *next on, at most ROWS_AT_ONCE; *next is then where to go on.
static int reserve_some(struct submitting *submitting, size_t *next)
{
    struct drafts *drafts = &submitting->drafts;
    struct state *state = submitting->daemon->state;
    struct error *err = &submitting->answer->error;
    int status = 0;
    if (!submitting->experiment) {
        const struct json *body = submitting->body;
        int64_t concurrency = js_integer_of(js_get(body, "concurrency"), 0);
        int64_t experiment = state_add_experiment(state, drafts->at[drafts->count - 1].row.project, js_string_of(js_get(body, "path"), NULL),
            js_string_of(js_get(body, "text"), NULL), err);
        status = experiment < 0 || (concurrency > 0 && state_set_concurrency(state, experiment, concurrency, err) != 0) ? -1 : 0;
        submitting->experiment = experiment < 0 ? 0 : experiment;
    }
    for (size_t taken = 0; status == 0 && *next < drafts->count && (taken < ROWS_AT_ONCE || *next < drafts->first); ++*next, taken++) {
        struct draft *draft = &drafts->at[*next];
        draft->row.experiment = submitting->experiment;
        if (!draft->dropped)
            status = state_reserve_run(state, &draft->row, draft->root, err);
    }
    return status;
}

// A stage that another submission is about to make is waited for: it may turn out to be nobody's.
static int reserve(struct submitting *submitting)
{
    struct daemon *daemon = submitting->daemon;
    size_t next = 0;
    int status = 0;
    submission_phase(&submitting->submission, "naming");
    while (status == 0 && next < submitting->drafts.count) {
        size_t before = next;
        status = change_begin_for(daemon, submitting->answer);
        if (status != 0)
            break;
        bool settled = next > 0 || drop_shared(daemon, &submitting->drafts);
        status = change_end_for(daemon, settled ? reserve_some(submitting, &next) : 0, submitting->answer);
        if (status == 0)
            status = submission_step(daemon, &submitting->submission, next - before, &submitting->answer->error);
        if (!settled)
            nanosleep(&(struct timespec){.tv_nsec = OTHERS_WAIT_MS * 1000000L}, NULL);
        let_others();
    }
    return status;
}

// ---- rows ----

static int add_needs(struct daemon *daemon, struct drafts *drafts, struct draft *draft, struct error *err)
{
    const struct json *maker = js_get(drafts->makers, draft->key);
    const struct draft *stage = maker ? &drafts->at[js_integer_of(maker, 0)] : NULL;
    int64_t needed[3] = {stage && !stage->dropped ? stage->row.id : shared_stage(daemon, draft->key), draft->from_run, draft->from_sibling != FROM_NONE ? drafts->at[draft->from_sibling].row.id : 0};
    for (size_t i = 0; i < 3; i++)
        if (needed[i] && needed[i] != draft->row.id && state_add_need(daemon->state, draft->row.id, needed[i], err) != 0)
            return -1;
    return 0;
}

// What is long about the drafts from first on, and their relations.
static int store_documents(struct submitting *submitting, size_t first, size_t last)
{
    struct daemon *daemon = submitting->daemon;
    struct error *err = &submitting->answer->error;
    int status = change_begin_for(daemon, submitting->answer);
    if (status != 0)
        return -1;
    for (size_t i = first; i < last && status == 0; i++) {
        struct draft *draft = &submitting->drafts.at[i];
        if (!draft->dropped && (state_put_documents(daemon->state, &draft->row, err) != 0 ||
                (draft->has_spec && add_needs(daemon, &submitting->drafts, draft, err) != 0) ||
                relations_store(daemon, &submitting->drafts, draft, err) != 0))
            status = -1;
    }
    return change_end_for(daemon, status, submitting->answer);
}

// ---- steps ----

// No fault of who asks, wherever it was met.
static bool is_full(const struct error *err)
{
    return strstr(err->text, strerror(ENOSPC)) || strstr(err->text, strerror(EDQUOT));
}

static int write_one(struct submitting *submitting, struct draft *draft, const struct draft *before)
{
    struct daemon *daemon = submitting->daemon;
    struct error *err = &submitting->answer->error;
    bool made = draft_make_directory(daemon, draft, before, submitting->body, err) == 0 && (!draft->has_spec || draft_make_plan(draft, err) == 0);
    if (made && draft_write_files(daemon, &submitting->drafts, draft, &submitting->tally, err) == 0)
        return 0;
    submitting->answer->status = is_full(err) ? 500 : 400;
    return is_full(err) ? error_context(err, "nothing was submitted") : -1;
}

// Directories and documents, in step, so that no more than some of them are in memory.
static int write_all(struct submitting *submitting)
{
    struct drafts *drafts = &submitting->drafts;
    struct draft *before = NULL;
    int status = 0;
    submission_phase(&submitting->submission, "writing");
    for (size_t first = 0, last; first < drafts->count && status == 0; first = last) {
        struct draft *kept = before;
        last = first + DOCUMENTS_AT_ONCE < drafts->count ? first + DOCUMENTS_AT_ONCE : drafts->count;
        for (size_t i = first; i < last && status == 0; i++) {
            struct draft *draft = &drafts->at[i];
            if (!draft->dropped)
                status = write_one(submitting, draft, before);
            before = draft->has_spec ? draft : before;
            if (status == 0)
                status = submission_step(submitting->daemon, &submitting->submission, 1, &submitting->answer->error);
        }
        if (status == 0)
            status = store_documents(submitting, first, last);
        for (size_t i = first; i < last; i++) // the next is compared with one of them
            if (&drafts->at[i] != before)
                draft_forget_documents(&drafts->at[i]);
        if (kept && kept != before)
            draft_forget_documents(kept);
        let_others();
    }
    return status;
}

// Waits for the disk: for all that is in the prepared directories, or, with placed, for their names.
static int wait_for_disk(struct submitting *submitting, bool placed)
{
    const struct drafts *drafts = &submitting->drafts;
    struct error *err = &submitting->answer->error;
    const struct draft *before = NULL;
    int status = 0;
    for (size_t i = 0; i < drafts->count && status == 0; i++) {
        const struct draft *draft = &drafts->at[i];
        if (draft->dropped)
            continue;
        char *project = path_join(draft->root, draft->row.project);
        if (!placed && drafts->count <= SYNC_EACH_MAX)
            status = directory_sync(draft->staging, err);
        else if (!draft_same_place(before, draft))
            status = placed ? directory_sync_entries(project, err) : file_system_sync(project, err);
        before = draft;
        free(project);
    }
    submitting->answer->status = 500;
    return status == 0 ? 0 : error_context(err, "nothing was submitted");
}

static int place_all(struct submitting *submitting)
{
    struct drafts *drafts = &submitting->drafts;
    submission_phase(&submitting->submission, "storing");
    if (wait_for_disk(submitting, false) != 0)
        return -1;
    for (size_t i = 0; i < drafts->count; i++) {
        submitting->answer->status = 400;
        if ((!drafts->at[i].dropped && draft_place(submitting->daemon, &drafts->at[i], &submitting->answer->error) != 0) ||
            submission_step(submitting->daemon, &submitting->submission, 1, &submitting->answer->error) != 0)
            return -1;
    }
    return wait_for_disk(submitting, true);
}

// The moment from which on it is there, and the first runs into the queue.
static int complete(struct submitting *submitting)
{
    struct daemon *daemon = submitting->daemon;
    struct error *err = &submitting->answer->error;
    if (change_begin_for(daemon, submitting->answer) != 0)
        return -1;
    int status = state_complete_experiment(daemon->state, submitting->experiment, err);
    if (status == 0 && state_queue_created(daemon->state, submitting->experiment, ROWS_AT_ONCE, clock_wall(), err) < 0)
        status = -1;
    submitting->answer->status = 500;
    return change_end_for(daemon, status, submitting->answer);
}

// The rest. What cannot be written now, the tick will.
static void queue_rest(struct submitting *submitting)
{
    struct daemon *daemon = submitting->daemon;
    int64_t queued = ROWS_AT_ONCE;
    while (queued == ROWS_AT_ONCE) {
        let_others();
        queued = submission_queue_some(daemon, submitting->experiment, ROWS_AT_ONCE, NULL);
    }
}

// The rows of what is not to be; what is on the disk has gone before.
static void forget_rows(struct submitting *submitting)
{
    struct daemon *daemon = submitting->daemon;
    int64_t dropped = submitting->experiment ? 1 : 0;
    while (dropped > 0) {
        dropped = submission_drop_some(daemon, submitting->experiment, ROWS_AT_ONCE, NULL);
        let_others();
    }
    if (dropped < 0)
        core_log("the rows of a submission that was given up stay until the next start: the database cannot be written");
}

// What became of it: the runs, and the stages that were asked for and whose data is there or on its way.
static struct json *describe(const struct drafts *drafts)
{
    struct json *answer = js_object(), *runs = js_array(), *left_out = js_array();
    for (size_t i = 0; i < drafts->count; i++) {
        const struct run_row *row = &drafts->at[i].row;
        if (drafts->at[i].dropped && i < drafts->first)
            continue; // nobody asked for it by name
        struct json *run = js_object();
        js_set(run, "project", js_string(row->project));
        size_t length = strlen(row->name);
        bool numbered = length && row->name[length - 1] != '-'; // what is left out got no number
        char *name = string_format("%.*s", (int)(numbered ? length : length - 1), row->name);
        js_set(run, "name", js_string(name));
        free(name);
        js_set(run, "run_id", js_string(row->run_id));
        js_set(run, "kind", js_string(row->kind));
        if (drafts->at[i].dropped)
            js_set(run, "reason", js_string(drafts->at[i].instead ? "another run makes its data already" : "its data is there already"));
        js_append(drafts->at[i].dropped ? left_out : runs, run);
    }
    js_set(answer, "runs", runs);
    js_set(answer, "left_out", left_out);
    return answer;
}

static struct json *tally(struct submitting *submitting)
{
    pthread_mutex_lock(&submitting->daemon->lock);
    struct json *jobs = slurm_tally_end(&submitting->tally, &submitting->daemon->settings.config.slurm);
    pthread_mutex_unlock(&submitting->daemon->lock);
    return jobs;
}

void daemon_submit(struct daemon *daemon, const struct json *body, struct answer *answer)
{
    struct submitting submitting = {.daemon = daemon, .body = body, .answer = answer};
    submission_open(daemon, &submitting.submission, body);
    if (drafts_prepare(daemon, &submitting.drafts, body, &submitting.submission, answer) == 0) {
        bool done = reserve(&submitting) == 0 && write_all(&submitting) == 0 && place_all(&submitting) == 0 && complete(&submitting) == 0;
        if (done) {
            queue_rest(&submitting);
            answer->body = describe(&submitting.drafts);
            js_set(answer->body, "slurm", tally(&submitting));
            answer->status = 201;
        }
        js_free(submitting.tally.kinds);
        drafts_release(&submitting.drafts, !done);
        if (!done)
            forget_rows(&submitting);
    }
    if (!answer->body && (atomic_load(&submitting.submission.cancelled) || atomic_load(&daemon->ending)))
        answer->status = atomic_load(&daemon->ending) ? 503 : 409;
    submission_close(daemon, &submitting.submission);
    malloc_trim(0); // ten thousand drafts are a hundred megabytes, which this thread would keep
    daemon_wake(daemon);
}
