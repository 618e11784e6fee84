// What many runs wrote in a tick, read together and stored in few transactions: a transaction a run is what a tick of hundreds would be made of.
// In the same order as for one run (ingest.c): Trackio first, then ours with the cursors.
#include "daemon/core/chunk.h"
#include "schema/record/layout.h"

#include <stdlib.h>
#include <string.h>

enum { RUN_LINES = 16, LINES = 256 }; // of a run, where they are many, and of all of them, in a group

struct share { // what one run has written since
    const struct view *view;
    struct attempt_row *attempt;
    struct item *items;
    size_t count;
    struct record_reader reader; // behind it
    bool full;                   // there may be more
};

// Plain lines only: whatever needs thought is left to the run's own turn.
static bool read_share(const struct view *view, struct attempt_row *attempt, size_t most, struct chunk *chunk, struct share *share)
{
    *share = (struct share){.view = view, .attempt = attempt, .reader = {attempt->ingest_offset, attempt->ingest_sequence}};
    if (!view->watch->announced || view->watch->ingest_attempt != attempt->number)
        return false;
    char *path = run_attempt_file(view->directory, attempt->number, RECORDS_FILE);
    chunk->view = view;
    int64_t got = record_read(&share->reader, path, (int64_t)most, chunk_take, chunk, NULL);
    free(path);
    bool plain = got > 0;
    for (size_t i = 0; i < chunk->count; i++)
        plain &= chunk->items[i].line && !item_is(&chunk->items[i], "start");
    if (plain) {
        share->count = chunk->count;
        share->full = chunk->count == most;
        share->items = allocate(chunk->count, sizeof *share->items);
        memcpy(share->items, chunk->items, chunk->count * sizeof *share->items);
        chunk->count = 0;
        chunk->bytes = 0;
    }
    chunk_clear(chunk);
    return plain;
}

// All lines for Trackio of the runs of one project, those from first on. false: later, or a fault that the run's own turn will tell.
static bool share_to_trackio(struct daemon *daemon, const struct share *shares, size_t first, size_t count)
{
    const char *project = shares[first].view->project;
    size_t used = 0, all = 0;
    for (size_t i = first; i < count; i++)
        all += shares[i].count;
    const struct json **lines = allocate(all, sizeof *lines);
    for (size_t i = first; i < count; i++)
        for (size_t j = 0; j < shares[i].count && strcmp(shares[i].view->project, project) == 0; j++)
            if (item_is_trackio(&shares[i].items[j]))
                lines[used++] = shares[i].items[j].line;
    bool written = !used || trackio_write(daemon->writer, project, lines, used, NULL) == 0;
    free(lines);
    return written;
}

// Ours, with the cursors behind, of the project's runs from first on.
static void share_to_state(struct daemon *daemon, const char *project, struct share *shares, size_t first, size_t count)
{
    if (change_begin(daemon, NULL) != 0)
        return;
    int status = 0;
    for (size_t next = first; next < count && status == 0; next++) {
        struct share *share = &shares[next];
        if (strcmp(share->view->project, project) != 0)
            continue;
        struct attempt_row moved = *share->attempt;
        moved.ingest_offset = share->reader.offset;
        moved.ingest_sequence = share->reader.sequence;
        for (size_t i = 0; i < share->count && status == 0; i++)
            status = store_line(daemon, share->view, share->view->watch, moved.number, share->items[i].line, NULL);
        if (status == 0)
            status = state_put_attempt(daemon->state, &moved, NULL);
    }
    status = change_end(daemon, status, NULL);
    for (size_t i = first; i < count && status == 0; i++)
        if (strcmp(shares[i].view->project, project) == 0) {
            shares[i].attempt->ingest_offset = shares[i].reader.offset;
            shares[i].attempt->ingest_sequence = shares[i].reader.sequence;
            shares[i].view->watch->behind = shares[i].full;
        }
}

static bool is_first_of_project(const struct share *shares, size_t index)
{
    for (size_t i = index; i-- > 0;)
        if (strcmp(shares[i].view->project, shares[index].view->project) == 0)
            return false;
    return true;
}

size_t ingest_together(struct daemon *daemon, const struct view *const *views, struct attempt_row *const *attempts, size_t count)
{
    struct share *shares = allocate(count + 1, sizeof *shares);
    struct chunk *chunk = allocate(1, sizeof *chunk);
    size_t found = 0, lines = 0, looked = 0, most = count * RUN_LINES < LINES ? LINES / (count + !count) : RUN_LINES;
    for (; looked < count && lines < LINES; looked++) {
        struct watch *watch = views[looked]->watch;
        watch->shared = count > 1 && read_share(views[looked], attempts[looked], most, chunk, &shares[found]);
        if (!watch->shared)
            continue;
        watch->behind = false;
        lines += shares[found++].count;
    }
    for (size_t i = 0; i < found && lines < LINES; i++)
        shares[i].view->watch->shared = !shares[i].full; // there is time for those few that write fast: they go on in their own turn
    for (size_t i = 0; i < found; i++) {
        if (is_first_of_project(shares, i) && share_to_trackio(daemon, shares, i, found))
            share_to_state(daemon, shares[i].view->project, shares, i, found);
    }
    for (size_t i = 0; i < found; i++) {
        for (size_t j = 0; j < shares[i].count; j++)
            js_free(shares[i].items[j].line);
        free(shares[i].items);
    }
    free(chunk);
    free(shares);
    return looked;
}
