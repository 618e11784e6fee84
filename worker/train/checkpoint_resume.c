// Going on from the run's newest checkpoint that is whole.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/checkpoint_read.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { JSON_MAX = 64 << 20, DAMAGED_MAX = 64 };

struct choice {             // of rank 0
    int64_t step;           // the newest that is whole; -1: none
    int64_t damaged[DAMAGED_MAX]; // newer ones that are not, newest first
    size_t count;
    struct text why;        // what is wrong with them
};

// A place that cannot be looked at (a disk that is not mounted, a file system that fails) holds who knows what: no reason to begin anew.
static int check_place(const char *run_directory, struct error *err)
{
    char *path = path_join(run_directory, "checkpoints");
    struct stat info;
    DIR *listing = opendir(path);
    bool absent = !listing && (errno == ENOTDIR || (errno == ENOENT && lstat(path, &info) != 0)); // a file in its place: saving says so
    int status = listing || absent ? 0 : error_errno(err, "%s: whether this run has checkpoints cannot be told", path);
    if (listing)
        closedir(listing);
    free(path);
    return status;
}

// Reads everything once: what a resume rests on must have the bytes that were written.
static int choose(struct choice *choice, const char *run_directory, struct error *err)
{
    int64_t below = INT64_MAX;
    if (check_place(run_directory, err) != 0)
        return -1;
    while ((choice->step = run_last_checkpoint_before(run_directory, below)) >= 0) {
        struct error fault = {0};
        char *directory = run_checkpoint_directory(run_directory, choice->step);
        int status = checkpoint_verify(directory, VERIFY_ALL, &fault);
        free(directory);
        if (status == 0)
            return 0;
        text_addf(&choice->why, "%s%s", choice->count ? "; " : "", fault.text);
        if (choice->count == DAMAGED_MAX)
            break;
        choice->damaged[choice->count++] = below = choice->step;
    }
    if (choice->count == 0)
        return 0;
    return error_set(err, "no checkpoint of this run is whole: %s. Move %s/checkpoints away to begin anew", choice->why.at, run_directory);
}

// A damaged one is kept under another name: its step will be saved again.
static int set_aside(const char *run_directory, int64_t step, struct error *err)
{
    char *directory = run_checkpoint_directory(run_directory, step), *aside = string_format("%s.damaged", directory);
    int status = directory_remove(aside, err);
    if (status == 0 && rename(directory, aside) != 0)
        status = error_errno(err, "%s", aside);
    free(aside);
    free(directory);
    return status;
}

static int check_trainer(const struct training_state *state, const char *directory, int64_t step, char **changed, struct error *err)
{
    char *path = path_join(directory, "trainer.json");
    struct json *trainer = js_read_file(path, JSON_MAX, err);
    int status = trainer ? 0 : -1;
    if (status == 0 && js_integer_of(js_get(trainer, "step"), -1) != step)
        status = error_set(err, "%s: its step is not that of its directory", path);
    if (status == 0)
        status = identity_check(state, trainer, directory, changed, err);
    js_free(trainer);
    free(path);
    return status;
}

// Rank 0: which checkpoint, that it fits this run, and the damaged ones out of the way.
static int prepare(const struct training_state *state, struct resumed *resumed, struct error *err)
{
    const char *run_directory = state->job->run_directory;
    struct choice choice = {.step = -1};
    text_init(&choice.why, ERROR_TEXT_MAX / 2);
    int status = choose(&choice, run_directory, err);
    if (status == 0 && choice.step >= 0) {
        char *directory = run_checkpoint_directory(run_directory, choice.step);
        status = check_trainer(state, directory, choice.step, &resumed->changed, err);
        free(directory);
    }
    for (size_t i = 0; i < choice.count && status == 0; i++)
        status = set_aside(run_directory, choice.damaged[i], err);
    if (status == 0 && choice.count > 0)
        resumed->damaged = string_copy(choice.why.at);
    resumed->step = choice.step;
    text_release(&choice.why);
    return status;
}

int checkpoint_resume(struct training_state *state, struct resumed *resumed, struct error *err)
{
    struct comm *world = state->world;
    *resumed = (struct resumed){.step = -1};
    int status = agree(world, world->rank == 0 ? prepare(state, resumed, err) : 0, err);
    world->ops->broadcast(world, &resumed->step, sizeof resumed->step, 0); // one answer for all: a slow file system may show each rank another
    if (status != 0 || resumed->step < 0)
        return status;
    char *directory = run_checkpoint_directory(state->job->run_directory, resumed->step);
    const struct spec *spec = &state->job->spec;
    bool may_lack[] = {[EXTRA_SCHEDULE] = change_is_accepted(spec, "schedule"), [EXTRA_MODEL] = change_is_accepted(spec, "model")};
    if (checkpoint_weights(state->model, directory, err) != 0 || checkpoint_moments(state, directory, err) != 0 ||
        extra_states_load(state->extra, directory, may_lack, err) != 0)
        status = -1;
    status = agree(world, status, err);
    if (status == 0)
        state->step = resumed->step;
    free(directory);
    return status;
}
