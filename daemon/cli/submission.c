#include "daemon/cli/submission.h"
#include "daemon/cli/cost.h"
#include "daemon/cli/format.h"
#include "daemon/cli/home.h"
#include "daemon/cli/plan_slurm.h"
#include "daemon/cli/silence.h"
#include "daemon/exec/slurm/tally.h"
#include "daemon/cli/submitting.h"
#include "daemon/cli/warnings.h"
#include "daemon/serve/target.h"
#include "schema/base/file.h"
#include "schema/base/patch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEC_BYTES_MAX = 4 << 20, RUNS_UNASKED = 100 };

// A slip in a sweep is a thousand jobs: so many are started only when somebody says that they are meant.
static int require_yes(const struct spec_file *file)
{
    struct machine machine;
    machine_look(&machine);
    struct cost cost = cost_of(file, &machine);
    char *sentence = cost_sentence(&cost);
    int code = usage_error("%s: %s. If that is meant, say so with --yes", file->path, sentence);
    free(sentence);
    return code;
}

// What `plan` says of partitions is said here too, each sentence once: a job that waits for ever, or is refused, is known before it is sent.
static void say_doubts(const struct spec_file *file, const struct config *config)
{
    struct warnings warnings;
    warnings_init(&warnings);
    for (size_t i = 0; i < file->count; i++) {
        const struct spec *spec = &file->runs[i].spec;
        bool trains = strcmp(file->entries[file->runs[i].entry].kind, "train") == 0;
        struct json *doubts = trains && spec->executor == EXECUTOR_SLURM ? plan_slurm_doubts(spec, &config->slurm) : js_array();
        for (size_t j = 0; j < js_count(doubts); j++) {
            char *sentence = string_format("%s says: %s", config->path, js_string_of(js_at(doubts, j), ""));
            warnings_add(&warnings, spec->name, sentence);
            free(sentence);
        }
        js_free(doubts);
    }
    warnings_say(&warnings);
    warnings_release(&warnings);
}

// Of this home's configuration only: a daemon elsewhere has its own. One that cannot be read is the daemon's to refuse.
static void look_at_cluster(const struct spec_file *file, const struct arguments *arguments)
{
    if (client_elsewhere(arguments))
        return;
    struct error err = {0};
    struct config config;
    char *home = home_directory();
    if (config_load(&config, home, &err) == 0)
        say_doubts(file, &config);
    config_release(&config);
    free(home);
}

int submission_load(struct spec_file *file, const struct arguments *arguments)
{
    int code = spec_arguments_load(file, arguments);
    if (code == CLI_DONE)
        code = spec_arguments_require_runnable(file);
    const char *name = argument_value(arguments, "name", NULL);
    if (code == CLI_DONE && name && file->count != 1)
        code = usage_error("--name names one run, and this spec has %zu: choose one with --run", file->count);
    else if (code == CLI_DONE && name && (!target_is_name(name) || *name == '-'))
        code = usage_error("'%s' is no name for a run: letters, digits, '_' and (not first) '-', at most 64", name);
    if (code == CLI_DONE && file->count > RUNS_UNASKED && !argument_flag(arguments, "yes"))
        code = require_yes(file);
    if (code == CLI_DONE)
        look_at_cluster(file, arguments);
    return code;
}

// Variables of the submitter that can change what a run does, or say where it came from. All others stay at home.
static bool is_told(const char *variable)
{
    static const char *const exact[] = {"PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "USER", "LANG", "HOSTNAME", "VIRTUAL_ENV", "CONDA_PREFIX",
        "LOADEDMODULES", "MODULEPATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES"};
    static const char *const beginnings[] = {"OMP_", "OMPI_", "PMIX_", "UCX_", "NCCL_", "MKL_", "OPENBLAS_", "DNNL_", "ONEDNN_", "SLURM_", "LC_"};
    size_t length = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (strlen(exact[i]) == length && strncmp(variable, exact[i], length) == 0)
            return true;
    for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
        if (strncmp(variable, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

static struct json *told_environment(void)
{
    struct json *environment = js_object();
    for (char **at = environ; *at; at++) {
        const char *equals = strchr(*at, '=');
        if (!equals || !is_told(*at))
            continue;
        char *name = string_format("%.*s", (int)(equals - *at), *at);
        js_set(environment, name, js_string(equals + 1));
        free(name);
    }
    return environment;
}

// How run i stands to the others of its file.
static struct json *relation_of(const struct spec_file *file, size_t index)
{
    const struct spec_run *run = &file->runs[index];
    const struct spec_entry *entry = &file->entries[run->entry];
    struct json *relation = js_object(), *needs = js_array();
    size_t count;
    size_t *needed = spec_file_needs(file, index, &count);
    for (size_t i = 0; i < count; i++)
        js_append(needs, js_integer((int64_t)needed[i]));
    free(needed);
    js_set(relation, "kind", js_string(entry->kind));
    js_set(relation, "entry", js_string(entry->name));
    js_set(relation, "needs", needs);
    js_set(relation, "sweep", run->sweep ? js_keep(run->sweep) : js_null());
    return relation;
}

// Each run in full, or as what it changes of the first of its entry: trials differ in a few words.
static struct json *runs_of(const struct spec_file *file)
{
    struct json *runs = js_array(), *first = NULL;
    size_t entry = SIZE_MAX, like = 0;
    for (size_t i = 0; i < file->count; i++) {
        struct json *whole = spec_to_json(&file->runs[i].spec);
        struct json *change = first && file->runs[i].entry == entry ? js_patch_of(first, whole) : NULL;
        if (change) {
            struct json *run = js_object();
            js_set(run, "like", js_integer((int64_t)like));
            js_set(run, "change", change);
            js_append(runs, run);
            js_free(whole);
            continue;
        }
        js_append(runs, whole);
        first = whole;
        entry = file->runs[i].entry;
        like = i;
    }
    return runs;
}

static struct json *body_of(const struct spec_file *file, const struct arguments *arguments, const char *id, struct error *err)
{
    struct text text;
    text_init(&text, SPEC_BYTES_MAX);
    struct json *body = NULL;
    if (file_read_any(file->path, &text, err) == 0) {
        char *path = path_absolute(file->path, NULL);
        struct json *relations = js_array();
        for (size_t i = 0; i < file->count; i++)
            js_append(relations, relation_of(file, i));
        body = js_object();
        js_set(body, "id", js_string(id));
        js_set(body, "path", js_string(path));
        js_set(body, "text", js_string(text.at));
        js_set(body, "name", js_string(argument_value(arguments, "name", NULL)));
        js_set(body, "environment", told_environment());
        js_set(body, "runs", runs_of(file));
        js_set(body, "relations", relations);
        js_set(body, "concurrency", js_integer(file->concurrency));
        free(path);
    }
    text_release(&text);
    return body;
}

// What a scheduler does not hear of is not lost, but whoever submits should know that it may take a while.
static void say_silence(struct client *client)
{
    struct json *health = client_get(client, "/api/v1/health");
    silence_say(health, "the daemon hands the runs over when it does");
    js_free(health);
}

int submission_send(struct client *client, const struct spec_file *file, const struct arguments *arguments, struct json **answer)
{
    struct error err = {0};
    struct reply reply = {0};
    int code = CLI_NO_DAEMON;
    struct submitting submitting;
    *answer = NULL;
    submitting_begin(&submitting, client, arguments);
    struct json *body = body_of(file, arguments, submitting.id, &err);
    if (!body) {
        fprintf(stderr, "switchyard: %s\n", err.text);
        submitting_end(&submitting, client);
        return CLI_USAGE;
    }
    client_interrupts_heard++; // one Ctrl-C does not end this request: half-known runs could not be cancelled
    int answered = client_ask(client, "POST", "/api/v1/submissions", body, &reply, &err);
    client_interrupts_heard--;
    submitting_end(&submitting, client);
    if (answered != 0) {
        fprintf(stderr, "switchyard: %s\n", err.text);
        if (client_interrupts > client_interrupts_heard)
            fprintf(stderr, "switchyard: the daemon may go on with the submission: `switchyard ls` shows what came of it\n");
    } else if (submitting.cancelled && reply.status == 409) {
        reply_say(&reply);
        code = CLI_INTERRUPTED;
    } else if (reply.status == 201 && reply.json) {
        *answer = js_keep(reply.json);
        const struct json *left_out = js_get(reply.json, "left_out");
        char *jobs = slurm_tally_words(js_get(reply.json, "slurm"));
        if (jobs) {
            fprintf(stderr, "on Slurm: %s\n", jobs);
            say_silence(client);
        }
        free(jobs);
        for (size_t i = 0; i < js_count(left_out); i++)
            fprintf(stderr, "%s is left out: %s\n", js_string_of(js_get(js_at(left_out, i), "name"), "?"),
                js_string_of(js_get(js_at(left_out, i), "reason"), "?"));
        code = CLI_DONE;
    } else {
        reply_say(&reply);
        code = reply.status == 400 ? CLI_USAGE : CLI_NO_DAEMON;
    }
    reply_release(&reply);
    js_free(body);
    return code;
}
