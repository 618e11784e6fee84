// `switchyard validate SPEC`: every fault of a spec at its place, or one line a run that it describes.
#include "daemon/cli/spec_arguments.h"
#include "schema/base/text.h"

#include <stdio.h>
#include <string.h>

static struct json *describe_run(const struct spec_run *run)
{
    struct json *item = js_object();
    js_set(item, "project", js_string(run->spec.project));
    js_set(item, "name", js_string(run->spec.name));
    js_set(item, "sweep", run->sweep ? js_keep(run->sweep) : js_null());
    js_set(item, "runnable", js_boolean(js_count(run->unsupported) == 0));
    js_set(item, "unsupported", js_copy(run->unsupported));
    js_set(item, "spec", spec_to_json(&run->spec));
    return item;
}

static void print_as_json(const struct spec_file *file)
{
    struct json *answer = js_object(), *runs = js_array();
    for (size_t i = 0; i < file->count && file->errors == 0; i++)
        js_append(runs, describe_run(&file->runs[i]));
    js_set(answer, "valid", js_boolean(file->errors == 0));
    js_set(answer, "runs", runs);
    js_set(answer, "problems", js_copy(file->problem_list));
    js_set(answer, "warnings", js_copy(file->warning_list));
    print_json(answer);
    js_free(answer);
}

static bool has_message(const struct spec_run *run, const char *message)
{
    for (size_t i = 0; i < js_count(run->unsupported); i++)
        if (strcmp(js_string_of(js_get(js_at(run->unsupported, i), "message"), ""), message) == 0)
            return true;
    return false;
}

// Whether every run of several has it: such keys are named once, behind all runs.
static bool is_common(const struct spec_file *file, const char *message)
{
    for (size_t i = 0; i < file->count; i++)
        if (!has_message(&file->runs[i], message))
            return false;
    return file->count > 1;
}

// The run's refused keys that are common, or those that are not.
static void print_refused(const struct spec_file *file, const struct spec_run *run, bool common, const char *heading)
{
    size_t shown = 0;
    for (size_t i = 0; i < js_count(run->unsupported); i++) {
        const char *message = js_string_of(js_get(js_at(run->unsupported, i), "message"), "");
        if (is_common(file, message) == common)
            printf("%s  %s\n", shown++ ? "" : heading, message);
    }
}

static void print_runs(const struct spec_file *file)
{
    for (size_t i = 0; i < file->count; i++) {
        const struct spec_run *run = &file->runs[i];
        const struct spec_entry *entry = &file->entries[run->entry];
        if (entry->swept && i > entry->first)
            continue; // the first trial speaks for the sweep
        size_t refused = js_count(run->unsupported);
        printf("%s/%s: ok", run->spec.project, entry->name);
        if (entry->swept && entry->count == 1)
            printf(" (1 trial, %s)", run->spec.name);
        else if (entry->swept)
            printf(" (%zu trials, %s … %s)", entry->count, run->spec.name, file->runs[entry->first + entry->count - 1].spec.name);
        if (refused)
            printf(" (%zu %s that this build cannot run yet)", refused, refused == 1 ? "key" : "keys");
        printf("\n");
        print_refused(file, run, false, "");
    }
    if (file->count)
        print_refused(file, &file->runs[0], true, "every run:\n");
}

static int run_validate(const struct arguments *arguments)
{
    struct spec_file file;
    int code;
    if (argument_flag(arguments, "json")) {
        code = spec_arguments_load_quiet(&file, arguments) == 0 ? CLI_DONE : CLI_USAGE;
        print_as_json(&file);
    } else {
        code = spec_arguments_load(&file, arguments);
        if (code == CLI_DONE)
            print_runs(&file);
    }
    spec_file_release(&file);
    return code;
}

static const struct command_option options[] = {
    SPEC_OPTION_ROWS,
    {"json", 0, NULL, false, "the faults, or the resolved runs, as JSON"},
    {0},
};

const struct command command_validate = {
    .name = "validate",
    .summary = "Check a spec and say everything that is wrong with it",
    .usage = "SPEC",
    .least = 1,
    .most = 1,
    .options = options,
    .description = "Needs neither data nor image nor code to exist; a warning says what is missing.",
    .run = run_validate,
};
