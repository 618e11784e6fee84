// `switchyard plan SPEC`: all that is known about each run before it starts. One JSON object a run is made first; the table that people
// read is drawn from it (plan_show.c), so that the two cannot differ.
#include "daemon/cli/plan.h"
#include "daemon/cli/cost.h"
#include "daemon/cli/home.h"
#include "daemon/cli/plan_slurm.h"
#include "daemon/cli/spec_arguments.h"
#include "daemon/cli/warnings.h"
#include "daemon/exec/slurm/tally.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"
#include "schema/shape/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RUN_NUMBER_MAX = 1000000 };

struct planner {
    struct machine machine;
    char *home;
    char *worker;        // its path, or its bare name where it is not installed
    struct json *images; // path → {"path", "size", "sha256"}, so that runs that share an image read it once
    struct config config;
    struct plan_slurm slurm;
    struct warnings warnings;
    bool as_json;
};

static void warn(struct planner *planner, struct json *item, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void warn(struct planner *planner, struct json *item, const char *format, ...)
{
    char *sentence = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&sentence, format, args) < 0)
        abort();
    va_end(args);
    warnings_add(&planner->warnings, js_string_of(js_get(item, "name"), "?"), sentence);
    js_append(js_get(item, "warnings"), js_string(sentence));
    free(sentence);
}

// ---- the image ----

static struct json *describe_image(const char *path, struct error *err)
{
    char digest[HASH_HEX];
    fprintf(stderr, "reading %s for its digest\n", path);
    if (hash_file(digest, path, err) != 0)
        return NULL;
    struct json *image = js_object();
    js_set(image, "path", js_string(path));
    js_set(image, "size", js_integer(file_size(path)));
    js_set(image, "sha256", js_string(digest));
    return image;
}

static void add_image(struct planner *planner, struct json *item, const struct spec *spec)
{
    const char *path = spec->image.path;
    if (path && file_size(path) >= 0 && !js_get(planner->images, path)) {
        struct error err = {0};
        struct json *image = describe_image(path, &err);
        if (!image)
            warn(planner, item, "image.path: %s", err.text);
        else
            js_set(planner->images, path, image);
    }
    const struct json *known = path ? js_get(planner->images, path) : NULL;
    js_set(item, "image", known ? js_keep(known) : js_null());
}

// ---- what would be started ----

// The directory that the next submission would get, as far as the disk knows: moe-1, moe-2, ….
static char *next_run_directory(const struct planner *planner, const struct spec *spec)
{
    char *root = spec->output ? string_copy(spec->output) : path_join(planner->home, "runs");
    char *path = NULL;
    for (int64_t number = 1; number < RUN_NUMBER_MAX; number++) {
        free(path);
        path = string_format("%s/%s/%s-%lld", root, spec->project, spec->name, (long long)number);
        if (!file_exists(path))
            break;
    }
    free(root);
    return path;
}

static int add_launch(struct planner *planner, struct json *item, const struct spec *spec, struct error *err)
{
    struct launch launch;
    char *directory = next_run_directory(planner, spec), *script = path_join(planner->home, "job.sh");
    int status = launch_train(&launch, spec, &planner->machine, planner->worker, directory, err);
    if (status == 0) {
        js_set(item, "ranks", js_integer(launch.ranks));
        js_set(item, "threads", js_integer(launch.threads));
        js_set(item, "gpus", js_integer(launch.gpus));
        js_set(item, "run_directory", js_string(directory));
        js_set(item, "job_script", js_string(script));
        js_set(item, "argv", word_list_to_json(&launch.argv));
        js_set(item, "environment", word_list_to_json(&launch.environment));
        js_set(item, "options", word_list_to_json(&launch.options));
        js_set(item, "modules", word_list_to_json(&launch.modules));
        if (spec->executor == EXECUTOR_SLURM)
            plan_slurm_add(&planner->slurm, item, &launch, script, directory);
        if (spec->executor == EXECUTOR_LOCAL && launch.gpus > (int64_t)planner->machine.gpus.count)
            warn(planner, item, "%lld GPU%s, and this machine has %zu: a daemon here refuses it", (long long)launch.gpus, launch.gpus == 1 ? "" : "s",
                planner->machine.gpus.count);
        launch_release(&launch);
    }
    free(directory);
    free(script);
    return status;
}

static void add_doubts(struct planner *planner, struct json *item, const struct spec *spec)
{
    struct json *doubts = plan_slurm_doubts(spec, &planner->config.slurm);
    const char *refusal = js_string_of(js_get(js_get(item, "slurm"), "refusal"), NULL);
    for (size_t i = 0; i < js_count(doubts); i++)
        warn(planner, item, "%s says: %s", planner->config.path, js_string_of(js_at(doubts, i), ""));
    if (refusal && planner->as_json) // people read it beside the run, where an estimate would stand
        warn(planner, item, "Slurm would refuse it: %s", refusal);
    js_free(doubts);
}

// ---- one run ----

static const char *executor_name(enum spec_executor executor)
{
    return executor == EXECUTOR_SLURM ? "slurm" : executor == EXECUTOR_HF_JOBS ? "hf-jobs" : "local";
}

// The entries that its own needs, by name; a trial's canary is said of its sweep.
static struct json *needs_of(const struct spec_file *file, const struct spec_entry *entry)
{
    struct json *needs = js_array();
    for (size_t i = 0; i < entry->needs_count; i++)
        js_append(needs, js_string(file->entries[entry->needs[i]].name));
    return needs;
}

static struct json *describe_run(struct planner *planner, const struct spec_file *file, const struct spec_run *run, struct error *err)
{
    const struct spec_entry *entry = &file->entries[run->entry];
    bool trains = strcmp(entry->kind, "train") == 0;
    struct json *item;
    struct plan plan;
    if (trains && plan_init(&plan, &run->spec, err) != 0) {
        error_context(err, "%s", run->spec.name);
        return NULL;
    }
    item = trains ? plan_to_json(&plan, &run->spec) : js_object();
    js_set(item, "name", js_string(run->spec.name));
    js_set(item, "kind", js_string(entry->kind));
    js_set(item, "needs", needs_of(file, entry));
    js_set(item, "sweep", run->sweep ? js_keep(run->sweep) : js_null());
    js_set(item, "project", js_string(run->spec.project));
    js_set(item, "executor", js_string(executor_name(run->spec.executor)));
    js_set(item, "unsupported", js_keep(run->unsupported));
    js_set(item, "missing", js_keep(run->missing));
    js_set(item, "warnings", js_array());
    if (trains && add_launch(planner, item, &run->spec, err) != 0) {
        js_free(item);
        return NULL;
    }
    if (run->spec.executor == EXECUTOR_SLURM)
        add_doubts(planner, item, &run->spec);
    add_image(planner, item, &run->spec);
    return item;
}

// More jobs than may be in the queue at once are submitted as others end.
static void look_at_count(struct planner *planner, const struct json *jobs, const struct json *runs)
{
    int64_t count = js_integer_of(js_get(jobs, "jobs"), 0), most = planner->config.slurm.max_submit_jobs;
    if (most && count > most && js_count(runs))
        warn(planner, js_at(runs, 0), "%s says: %lld jobs are more than the %lld that may be submitted at once", planner->config.path, (long long)count,
            (long long)most);
}

// What those that train become on Slurm. Which texts are tokenised already is known to the daemon alone, and where none runs to nobody.
static struct json *describe_jobs(const struct planner *planner, const struct spec_file *file, struct error *err)
{
    struct slurm_tally tally = {0};
    bool texts = false;
    int status = 0;
    for (size_t i = 0; i < file->count && status == 0; i++) {
        const struct spec_run *run = &file->runs[i];
        if (run->spec.executor != EXECUTOR_SLURM)
            continue;
        texts |= run->spec.data.text != NULL;
        if (strcmp(file->entries[run->entry].kind, "train") != 0)
            continue;
        struct launch launch;
        char *directory = string_format("%s/%s/%s", planner->home, run->spec.project, run->spec.name);
        status = launch_train(&launch, &run->spec, &planner->machine, planner->worker, directory, err);
        if (status == 0) {
            slurm_tally_add(&tally, &launch, directory);
            launch_release(&launch);
        }
        free(directory);
    }
    struct json *jobs = slurm_tally_end(&tally, &planner->config.slurm);
    if (js_kind(jobs) == JSON_KIND_OBJECT)
        js_set(jobs, "texts", js_boolean(texts));
    if (status == 0)
        return jobs;
    js_free(jobs);
    return NULL;
}

// Of a sweep, people are shown the first trial and the last.
static bool is_shown(const struct spec_file *file, size_t run)
{
    const struct spec_entry *entry = &file->entries[file->runs[run].entry];
    return !entry->swept || run == entry->first || run + 1 == entry->first + entry->count;
}

// *jobs: what describe_jobs says.
static struct json *describe_file(const struct spec_file *file, const struct machine *machine, bool as_json, struct json **jobs, struct error *err)
{
    struct planner planner = {.machine = *machine, .home = home_directory(), .worker = worker_path(NULL), .images = js_object(), .as_json = as_json};
    if (!planner.worker)
        planner.worker = string_copy("switchyard-worker");
    plan_slurm_init(&planner.slurm);
    warnings_init(&planner.warnings);
    struct json *runs = config_load(&planner.config, planner.home, err) == 0 ? js_array() : NULL;
    planner.machine.slurm = &planner.config.slurm;
    if (planner.config.gpus >= 0)
        gpus_declare(&planner.machine.gpus, planner.config.gpus);
    for (size_t i = 0; i < file->count && runs; i++) {
        if (!as_json && !is_shown(file, i))
            continue;
        struct json *item = describe_run(&planner, file, &file->runs[i], err);
        if (item) {
            js_append(runs, item);
        } else {
            js_free(runs);
            runs = NULL;
        }
    }
    *jobs = runs ? describe_jobs(&planner, file, err) : NULL;
    if (runs && !*jobs) {
        js_free(runs);
        runs = NULL;
    }
    if (runs)
        look_at_count(&planner, *jobs, runs);
    warnings_say(&planner.warnings);
    warnings_release(&planner.warnings);
    plan_slurm_release(&planner.slurm);
    config_release(&planner.config);
    js_free(planner.images);
    free(planner.worker);
    free(planner.home);
    return runs;
}

static void show(const struct json *answer, const struct cost *cost)
{
    plan_show(js_get(answer, "runs"));
    plan_show_sweeps(js_get(answer, "sweeps"));
    char *sentence = cost_sentence(cost), *jobs = slurm_tally_words(js_get(answer, "slurm"));
    if (jobs)
        printf("\non Slurm: %s%s\n", jobs,
            js_boolean_of(js_get(js_get(answer, "slurm"), "texts"), false) ? "; one more for each text that is not tokenised yet" : "");
    printf("\ntotal: %s\n", sentence);
    free(jobs);
    free(sentence);
}

static int run_plan(const struct arguments *arguments)
{
    struct spec_file file;
    int code = spec_arguments_load(&file, arguments);
    if (code == CLI_DONE) {
        struct error err = {0};
        struct machine machine;
        machine_look(&machine);
        struct cost cost = cost_of(&file, &machine);
        bool as_json = argument_flag(arguments, "json");
        struct json *answer = js_object(), *jobs = NULL, *runs = describe_file(&file, &machine, as_json, &jobs, &err);
        js_set(answer, "runs", runs ? runs : js_null());
        js_set(answer, "sweeps", plan_sweeps(&file));
        js_set(answer, "slurm", jobs ? jobs : js_null());
        js_set(answer, "total", cost_json(&cost));
        js_set(answer, "warnings", js_keep(file.warning_list));
        if (!runs)
            code = usage_error("%s", err.text);
        else if (as_json)
            print_json(answer);
        else
            show(answer, &cost);
        js_free(answer);
    }
    spec_file_release(&file);
    return code;
}

static const struct command_option options[] = {
    SPEC_OPTION_ROWS,
    {"json", 0, NULL, false, "the same as JSON, of every trial too: {\"runs\": [{…}], \"sweeps\", \"slurm\", \"total\", \"warnings\": […]}"},
    {0},
};

const struct command command_plan = {
    .name = "plan",
    .summary = "Show what each run of a spec would be and cost, before anything starts",
    .usage = "SPEC",
    .least = 1,
    .most = 1,
    .options = options,
    .description = "Parameters, FLOPs, memory a rank by category, bytes of all-to-all, pipeline bubble, learning rate, the exact command.\n"
                   "Memory is exact for parameters, gradients and optimizer; activations are by the worker's own table, for balanced\n"
                   "routing and for the worst that can reach a rank. Neither data nor image nor code need exist; a warning says what\n"
                   "is missing. Of a sweep, the first trial and the last are shown, how many there are, and what all come to; of jobs on\n"
                   "Slurm how many there are, and how many of them go out as elements of arrays if all may go at once.",
    .run = run_plan,
};
