// `switchyard config`: what config.yaml of this home says, defaults filled in; `switchyard config slurm` writes it from what the cluster
// says of itself. What a person has written there is never replaced without being shown.
#include "daemon/cli/command.h"
#include "daemon/cli/home.h"
#include "daemon/exec/slurm/probe.h"
#include "schema/base/file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 1 << 20, LINES_MAX = 4096 };

// ---- the difference of two texts, by their longest common lines ----

struct lines {
    const char *at[LINES_MAX];
    size_t length[LINES_MAX], count;
};

static void cut(struct lines *lines, const char *text)
{
    lines->count = 0;
    while (*text && lines->count < LINES_MAX) {
        size_t length = strcspn(text, "\n");
        lines->at[lines->count] = text;
        lines->length[lines->count++] = length;
        text += length + (text[length] == '\n');
    }
}

static bool same(const struct lines *a, size_t i, const struct lines *b, size_t j)
{
    return a->length[i] == b->length[j] && memcmp(a->at[i], b->at[j], a->length[i]) == 0;
}

static void show(char sign, const struct lines *lines, size_t i)
{
    printf("%c%.*s\n", sign, (int)lines->length[i], lines->at[i]);
}

static void show_difference(const char *before, const char *after)
{
    struct lines *a = allocate(1, sizeof *a), *b = allocate(1, sizeof *b);
    cut(a, before);
    cut(b, after);
    size_t width = b->count + 1;
    unsigned *common = allocate((a->count + 1) * width, sizeof *common); // of what is left of each
    for (size_t i = a->count; i-- > 0;)
        for (size_t j = b->count; j-- > 0;) {
            unsigned skip = common[(i + 1) * width + j] > common[i * width + j + 1] ? common[(i + 1) * width + j] : common[i * width + j + 1];
            common[i * width + j] = same(a, i, b, j) ? common[(i + 1) * width + j + 1] + 1 : skip;
        }
    for (size_t i = 0, j = 0; i < a->count || j < b->count;) {
        if (i < a->count && j < b->count && same(a, i, b, j))
            i++, j++;
        else if (i < a->count && (j == b->count || common[(i + 1) * width + j] >= common[i * width + j + 1]))
            show('-', a, i++);
        else
            show('+', b, j++);
    }
    free(common);
    free(a);
    free(b);
}

// ---- config slurm ----

static int fail(int code, const struct error *err)
{
    fprintf(stderr, "switchyard: %s\n", err->text);
    return code;
}

// Takes the place of what is there only if that is asked for, and leaves it beside.
static int put(const char *path, const char *before, const char *after, bool force, struct error *err)
{
    if (before && strcmp(before, after) == 0) {
        fprintf(stderr, "%s says so already\n", path);
        return CLI_DONE;
    }
    if (before) {
        show_difference(before, after);
        if (!force) {
            fprintf(stderr, "%s is there and differs as shown: --force replaces it\n", path);
            return CLI_RUN_FAILED;
        }
        char *aside = string_format("%s.old", path);
        int status = file_write_atomic(aside, before, strlen(before), 0644, err);
        if (status == 0)
            fprintf(stderr, "what was there is now in %s\n", aside);
        free(aside);
        if (status != 0)
            return fail(CLI_USAGE, err);
    }
    if (file_write_atomic(path, after, strlen(after), 0644, err) != 0)
        return fail(CLI_USAGE, err);
    fprintf(stderr, "wrote %s; a daemon that runs takes it over within seconds, for what is submitted from then on\n", path);
    return CLI_DONE;
}

static int write_slurm(const char *home, bool force)
{
    struct config config;
    struct slurm_probe probe;
    struct text before, after;
    struct error err = {0};
    int code = CLI_USAGE;
    text_init(&before, FILE_MAX);
    text_init(&after, FILE_MAX);
    bool readable = config_load(&config, home, &err) == 0;
    if (!readable && !force) // what it holds would be lost
        fail(code, &err);
    else if (slurm_probe(&probe, &err) != 0)
        code = fail(CLI_NO_DAEMON, &err);
    else if (directory_make(home, &err) != 0 || (config.found && file_read(config.path, &before, &err) != 0)) {
        fail(code, &err);
        slurm_probe_release(&probe);
    } else {
        slurm_probe_write(&after, &probe, &config);
        code = put(config.path, config.found ? before.at : NULL, after.at, force, &err);
        slurm_probe_release(&probe);
    }
    text_release(&before);
    text_release(&after);
    config_release(&config);
    return code;
}

// ---- config ----

static void print_partitions(const struct json *partitions)
{
    printf("  partitions:%s\n", js_count(partitions) ? "" : " {}");
    for (void *i = js_first(partitions); i; i = js_next(partitions, i)) {
        const char *between = "";
        printf("    %s: {", js_key(i));
        for (void *j = js_first(js_value(i)); j; j = js_next(js_value(i), j)) {
            if (js_kind(js_value(j)) == JSON_KIND_NULL)
                continue;
            bool bytes = strcmp(js_key(j), "memory_per_node") == 0, seconds = strcmp(js_key(j), "time_limit") == 0;
            double value = js_real_of(js_value(j), 0);
            bool mebibytes = bytes && fmod(value, 1 << 20) == 0;
            printf("%s%s: %.0f%s", between, js_key(j), mebibytes ? value / (1 << 20) : value, mebibytes ? "MiB" : bytes ? "B" : seconds ? "s" : "");
            between = ", ";
        }
        printf("}\n");
    }
}

// As a config.yaml that says the same.
static void print_yaml(const struct json *json)
{
    const struct json *hosts = js_get(json, "allowed_hosts"), *slurm = js_get(json, "slurm");
    const char *file = js_string_of(js_get(json, "file"), NULL);
    printf("# %s\n", file ? file : "no config.yaml: the defaults");
    printf("allowed_hosts: [");
    for (size_t i = 0; i < js_count(hosts); i++)
        printf("%s'%s'", i ? ", " : "", js_string_of(js_at(hosts, i), ""));
    printf("]\n");
    if (js_kind(js_get(json, "gpus")) == JSON_KIND_INTEGER)
        printf("gpus: %lld\n", (long long)js_integer_of(js_get(json, "gpus"), 0));
    printf("slurm:\n");
    for (void *i = js_first(slurm); i; i = js_next(slurm, i)) {
        const struct json *value = js_value(i);
        if (js_kind(value) == JSON_KIND_OBJECT)
            print_partitions(value);
        else if (js_kind(value) == JSON_KIND_INTEGER)
            printf("  %s: %lld\n", js_key(i), (long long)js_integer_of(value, 0));
        else if (js_kind(value) == JSON_KIND_STRING)
            printf("  %s: '%s'\n", js_key(i), js_string_of(value, ""));
    }
}

static int print_effective(const char *home, bool as_json)
{
    struct config config;
    struct error err = {0};
    int code = CLI_DONE;
    if (config_load(&config, home, &err) == 0) {
        struct json *json = config_to_json(&config);
        if (as_json)
            print_json(json);
        else
            print_yaml(json);
        js_free(json);
    } else {
        code = fail(CLI_USAGE, &err);
    }
    config_release(&config);
    return code;
}

static int run_config(const struct arguments *arguments)
{
    if (arguments->count && strcmp(arguments->words[0], "slurm") != 0)
        return usage_error("there is nothing to configure called '%s'; there is: slurm", arguments->words[0]);
    char *home = home_directory();
    int code = arguments->count ? write_slurm(home, argument_flag(arguments, "force")) : print_effective(home, argument_flag(arguments, "json"));
    free(home);
    return code;
}

static const struct command_option options[] = {
    {"force", 'f', NULL, false, "of `config slurm`: replace a file that says something else; the old one stays beside it as config.yaml.old"},
    {"json", 0, NULL, false, "print the configuration as JSON"},
    {0},
};

const struct command command_config = {
    .name = "config",
    .summary = "Print this home's configuration, or write it from what a Slurm cluster says of itself",
    .usage = "[slurm]",
    .least = 0,
    .most = 1,
    .options = options,
    .description = "Without a word: what $SWITCHYARD_HOME/config.yaml says, defaults filled in. `config slurm` asks sinfo, scontrol, srun and sacctmgr for\n"
                   "partitions, limits, GPUs and MPI plugins and writes that file, with the source of each value beside it. A file that is there and\n"
                   "says something else is shown as a difference, and replaced with --force only.",
    .run = run_config,
};
