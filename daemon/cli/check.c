// `switchyard check determinism SPEC`: tries here what a run promises, without a daemon. Each run gets a temporary run directory in the
// home, with the data and the ranks of its spec; the worker does the rest (switchyard-worker check).
#include "daemon/cli/command.h"
#include "daemon/cli/home.h"
#include "daemon/cli/spec_arguments.h"
#include "daemon/core/dataset.h"
#include "daemon/exec/launch.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/record/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_FILE_MAX = 64 << 20 };

struct place { // one run's
    const struct spec *spec;
    struct machine machine;
    char *worker, *home;
    char *directory;     // temporary; removed at the end, unless the worker left something to look at
    const char *document; // data.document, in words; lent from resolved
    struct json *resolved; // the spec
};

static int place_open(struct place *place, const struct spec *spec, struct error *err)
{
    *place = (struct place){.spec = spec, .worker = worker_path(err), .home = home_directory(), .resolved = spec_to_json(spec)};
    machine_look(&place->machine);
    place->document = js_string_of(js_get(js_get(place->resolved, "data"), "document"), "");
    place->directory = path_join(place->home, "check-XXXXXX");
    if (!place->worker || directory_make(place->home, err) != 0)
        return -1;
    return mkdtemp(place->directory) ? 0 : error_errno(err, "%s: cannot write here", place->home);
}

static void place_close(struct place *place, bool keep)
{
    if (!keep)
        directory_remove(place->directory, NULL);
    js_free(place->resolved);
    free(place->directory);
    free(place->home);
    free(place->worker);
}

static int write_run(const char *directory, const struct json *run, struct error *err)
{
    struct text text;
    text_init(&text, RUN_FILE_MAX);
    js_write_pretty(&text, run);
    char *path = path_join(directory, RUN_FILE);
    int status = directory_make(directory, err) == 0 ? file_write_atomic(path, text.at, text.length, 0600, err) : -1;
    free(path);
    text_release(&text);
    return status;
}

static struct json *run_of(const struct place *place, const char *kind)
{
    char identifier[33];
    random_hex(identifier, 32);
    struct json *run = js_object();
    js_set(run, "v", js_integer(1));
    js_set(run, "kind", js_string(kind));
    js_set(run, "project", js_string(place->spec->project));
    js_set(run, "name", js_string(place->spec->name));
    js_set(run, "run_id", js_string(identifier));
    return run;
}

static int tokenize(const struct place *place, const char *prefix, struct error *err)
{
    char *directory = path_join(place->directory, "tokenize");
    struct json *run = run_of(place, "tokenize");
    struct launch launch = {0};
    int code = 0;
    js_set(run, "tokenize", dataset_tokenize(&place->spec->data, place->document, place->spec->data.text, prefix));
    int status = write_run(directory, run, err);
    if (status == 0) {
        status = launch_tokenize(&launch, NULL, &place->machine, place->worker, directory, err);
        status = status == 0 ? launch_foreground(&launch, true, &code, err) : -1;
        launch_release(&launch);
    }
    if (status == 0 && code != EXIT_DONE)
        status = error_set(err, "%s: tokenising it ended with code %d", place->spec->data.text, code);
    js_free(run);
    free(directory);
    return status;
}

// The prefix of the spec's text: what the home has already, else made for this check alone. NULL with err, or where there is no text.
static char *text_prefix(const struct place *place, struct error *err)
{
    const struct spec_data *data = &place->spec->data;
    char key[DATASET_KEY];
    if (dataset_key(key, data->text, place->document, data->json_key, data->tokenizer, err) != 0) {
        error_context(err, "data.text");
        return NULL;
    }
    if (dataset_is_complete(place->home, key))
        return dataset_prefix(place->home, key);
    char *folder = path_join(place->directory, "data"), *prefix = path_join(folder, "data");
    int status = directory_make(folder, err) == 0 ? tokenize(place, prefix, err) : -1;
    free(folder);
    if (status == 0)
        return prefix;
    free(prefix);
    return NULL;
}

static int add_origin(const struct place *place, struct json *run, struct error *err)
{
    const struct spec_from *from = &place->spec->model.from;
    if (from->run)
        return error_set(err, "model.from.run: `check` asks no daemon for the run `%s`: name its checkpoint by model.from.path", from->run);
    struct json *origin = from->path ? js_object() : js_null();
    if (from->path) {
        js_set(origin, "run_directory", js_null());
        js_set(origin, "checkpoint", js_string(from->path));
        js_set(origin, "step", js_integer(from->step));
    }
    js_set(run, "from", origin);
    return 0;
}

// run.json of the run that is tried: as a submission would write it, but for its record.
static int make_run(const struct place *place, const char *directory, struct error *err)
{
    struct json *run = run_of(place, "train"), *data = js_object();
    char *prefix = place->spec->data.text ? text_prefix(place, err) : NULL;
    struct json *prefixes = place->spec->data.text && !prefix ? NULL : dataset_prefixes(&place->spec->data, prefix, err);
    int status = prefixes ? 0 : -1;
    js_set(run, "spec", js_keep(place->resolved));
    js_set(data, "prefixes", prefixes ? prefixes : js_array());
    js_set(data, "key", js_null());
    js_set(run, "data", data);
    if (status == 0 && (status = add_origin(place, run, err)) == 0)
        status = write_run(directory, run, err);
    js_free(run);
    free(prefix);
    return status;
}

// One run: its result (determinism.json), or NULL where it came to none. *code: the worker's.
static struct json *try_run(struct place *place, bool as_json, int *code, struct error *err)
{
    char *directory = path_join(place->directory, "run"), *path = path_join(directory, "determinism.json");
    struct launch launch = {0};
    struct spec here = *place->spec; // lends: whatever starts the run's own jobs, this is tried on this machine
    here.executor = EXECUTOR_LOCAL;
    struct json *result = NULL;
    int status = make_run(place, directory, err);
    if (status == 0)
        status = launch_check(&launch, &here, &place->machine, place->worker, "determinism", directory, err);
    if (status == 0) {
        status = launch_foreground(&launch, as_json, code, err);
        launch_release(&launch);
    }
    if (status == 0 && file_exists(path))
        result = js_read_file(path, RUN_FILE_MAX, err);
    else if (status == 0)
        error_set(err, "the runs ended with code %d; what they said is above", *code);
    free(path);
    free(directory);
    return result;
}

static int check_run(const struct spec *spec, bool as_json, struct json *results)
{
    struct place place;
    struct error err = {0};
    int code = EXIT_BAD_INPUT;
    fprintf(stderr, "%s: the first 12 iterations, twice\n", spec->name);
    struct json *result = place_open(&place, spec, &err) == 0 ? try_run(&place, as_json, &code, &err) : NULL;
    bool different = result && !js_boolean_of(js_get(result, "equal"), false);
    place_close(&place, different);
    if (!result) {
        fprintf(stderr, "switchyard: %s: %s\n", spec->name, err.text);
        return code == EXIT_BAD_INPUT ? CLI_USAGE : code == CLI_INTERRUPTED ? CLI_INTERRUPTED : CLI_RUN_FAILED;
    }
    js_set(result, "name", js_string(spec->name));
    js_append(results, result);
    return different ? CLI_RUN_FAILED : CLI_DONE;
}

static int run_check(const struct arguments *arguments)
{
    if (strcmp(arguments->words[0], "determinism") != 0)
        return usage_error("there is no check '%s'; there is: determinism", arguments->words[0]);
    struct arguments rest = *arguments; // the spec is the second word
    rest.words++;
    rest.count--;
    struct spec_file file;
    bool as_json = argument_flag(arguments, "json");
    int code = spec_arguments_load(&file, &rest);
    if (code == CLI_DONE)
        code = spec_arguments_require_runnable(&file);
    struct json *answer = js_object(), *results = js_array();
    js_set(answer, "runs", results);
    for (size_t i = 0; i < file.count && code != CLI_USAGE && code != CLI_INTERRUPTED; i++) {
        int one = check_run(&file.runs[i].spec, as_json, results);
        code = one == CLI_DONE ? code : one;
    }
    if (as_json && code != CLI_USAGE)
        print_json(answer);
    js_free(answer);
    spec_file_release(&file);
    return code;
}

static const struct command_option options[] = {
    SPEC_OPTION_ROWS,
    {"json", 0, NULL, false, "the same as JSON: {\"runs\": [{\"name\", \"equal\", \"iterations\", \"steps\", \"state\", \"differences\"}]}"},
    {0},
};

const struct command command_check = {
    .name = "check",
    .summary = "Try here whether runs of a spec give the same bits each time",
    .usage = "determinism SPEC",
    .least = 2,
    .most = 2,
    .options = options,
    .description = "Trains the first 12 iterations of each run twice, on this machine, with the spec's own data, ranks and threads, in temporary\n"
                   "directories, and compares bit for bit: loss, balance loss, gradient norm, gradient zeros and samples of every iteration, and\n"
                   "all parameters and the optimizer's state at the end. Prints a table and the first difference by name. Needs no daemon, and\n"
                   "takes no place in its queue. Exit code 0: all equal; 1: a difference, or a run failed.",
    .run = run_check,
};
