// The first iterations of a run, twice, from the same run.json: the promise of training.deterministic, tried and not argued.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/check/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN_FILE_MAX = 64 << 20, PATH_BYTES = 4096 };

static int write_json(const char *directory, const char *name, const struct json *json, struct error *err)
{
    struct text text;
    text_init(&text, RUN_FILE_MAX);
    js_write_pretty(&text, json);
    char *path = path_join(directory, name);
    int status = text.overflowed ? error_set(err, "%s: too large", path) : file_write_atomic(path, text.at, text.length, 0600, err);
    free(path);
    text_release(&text);
    return status;
}

// The schedule stays as long as it was; the rest is what makes a short run tell all that it does.
static void shorten(struct json *run)
{
    struct json *training = js_get(js_get(run, "spec"), "training"), *checkpoint = js_object(), *logging = js_object();
    const struct json *given = js_get(js_get(run, "spec"), "logging");
    struct json *rate = js_get(training, "learning_rate");
    if (rate && !js_get(rate, "total_iterations"))
        js_set(rate, "total_iterations", js_keep(js_get(training, "iterations")));
    js_set(training, "iterations", js_integer(DETERMINISM_ITERATIONS));
    js_set(checkpoint, "interval", js_integer(DETERMINISM_ITERATIONS));
    js_set(js_get(run, "spec"), "checkpoint", checkpoint);
    for (void *i = js_first(given); i; i = js_next(given, i))
        js_set(logging, js_key(i), js_keep(js_value(i)));
    js_set(logging, "interval", js_integer(1));
    js_set(js_get(run, "spec"), "logging", logging);
}

// Rank 0: two run directories inside the run's own, which every rank can reach.
static int make_directories(const char *run_directory, char place[PATH_BYTES], struct error *err)
{
    static const char *const names[] = {"first", "second"};
    char *path = path_join(run_directory, RUN_FILE);
    struct json *run = js_read_file(path, RUN_FILE_MAX, err);
    int status = run ? 0 : -1;
    if (status == 0 && js_kind(js_get(js_get(run, "spec"), "training")) != JSON_KIND_OBJECT)
        status = error_set(err, "%s: no spec of a training run", path);
    if (status == 0 && snprintf(place, PATH_BYTES, "%s/determinism-XXXXXX", run_directory) >= PATH_BYTES)
        status = error_set(err, "%s: the path is too long", run_directory);
    if (status == 0 && !mkdtemp(place))
        status = error_errno(err, "%s: cannot write here", run_directory);
    if (status == 0)
        shorten(run);
    for (size_t i = 0; i < 2 && status == 0; i++) {
        char *directory = path_join(place, names[i]);
        status = directory_make(directory, err) == 0 ? write_json(directory, RUN_FILE, run, err) : -1;
        free(directory);
    }
    js_free(run);
    free(path);
    return status;
}

// Rank 0. What differs is kept for a look.
static int judge(const char *run_directory, const char *place, const char *first, const char *second)
{
    struct error err = {0};
    struct json *result = determinism_compare(first, second, &err);
    if (!result || write_json(run_directory, DETERMINISM_FILE, result, &err) != 0) {
        fprintf(stderr, "switchyard-worker: %s\n", err.text);
        js_free(result);
        return EXIT_FAILED;
    }
    bool equal = js_boolean_of(js_get(result, "equal"), false);
    determinism_print(result);
    fflush(stdout);
    js_free(result);
    if (!equal)
        fprintf(stderr, "switchyard-worker: both runs are kept in %s\n", place);
    else if (directory_remove(place, &err) != 0)
        fprintf(stderr, "switchyard-worker: %s\n", err.text);
    return equal ? EXIT_DONE : EXIT_FAILED;
}

int determinism_try(struct comm *world, const char *run_directory, int (*train)(struct comm *world, const char *run_directory))
{
    char place[PATH_BYTES] = "";
    struct error err = {0};
    int64_t code = EXIT_DONE;
    if (world->rank == 0 && make_directories(run_directory, place, &err) != 0) {
        fprintf(stderr, "switchyard-worker: %s\n", err.text);
        code = EXIT_BAD_INPUT;
    }
    world->ops->broadcast(world, &code, sizeof code, 0);
    if (code != EXIT_DONE)
        return (int)code;
    world->ops->broadcast(world, place, sizeof place, 0);
    char *first = path_join(place, "first"), *second = path_join(place, "second");
    code = train(world, first);
    if (code == EXIT_DONE)
        code = train(world, second);
    if (code == EXIT_DONE && world->rank == 0)
        code = judge(run_directory, place, first, second);
    else if (code != EXIT_DONE && world->rank == 0)
        directory_remove(place, NULL);
    world->ops->broadcast(world, &code, sizeof code, 0);
    free(first);
    free(second);
    return (int)code;
}
