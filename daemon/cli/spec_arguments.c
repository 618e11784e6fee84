#include "daemon/cli/spec_arguments.h"
#include "daemon/cli/client.h"
#include "schema/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int spec_arguments_load_quiet(struct spec_file *file, const struct arguments *arguments)
{
    size_t only_count, set_count;
    const char **only = argument_values(arguments, "run", &only_count);
    const char **sets = argument_values(arguments, "set", &set_count);
    struct spec_option *options = allocate(set_count, sizeof *options);
    for (size_t i = 0; i < set_count; i++)
        options[i].argument = sets[i];
    spec_file_load(file, arguments->words[0], only_count ? only : NULL, only_count, options, set_count);
    free(options);
    free(sets);
    free(only);
    spec_check_memory(file);
    if (!client_elsewhere(arguments))
        spec_check_cores(file);
    return file->errors ? -1 : 0;
}

int spec_arguments_load(struct spec_file *file, const struct arguments *arguments)
{
    int status = spec_arguments_load_quiet(file, arguments);
    fputs(file->warnings.at, stderr);
    fputs(file->problems.at, stderr);
    if (status == 0)
        return CLI_DONE;
    fprintf(stderr, "%s: %zu %s\n", file->path, file->errors, file->errors == 1 ? "error" : "errors");
    return CLI_USAGE;
}

// What several runs have from their common part is said once.
static bool was_shown(const struct spec_file *file, size_t run, const char *text)
{
    for (size_t i = 0; i < run; i++)
        for (size_t j = 0; j < js_count(file->runs[i].unsupported); j++)
            if (strcmp(js_string_of(js_get(js_at(file->runs[i].unsupported, j), "text"), ""), text) == 0)
                return true;
    return false;
}

int spec_arguments_require_runnable(const struct spec_file *file)
{
    size_t refused = 0;
    for (size_t i = 0; i < file->count; i++) {
        const struct json *list = file->runs[i].unsupported;
        for (size_t j = 0; j < js_count(list); j++, refused++) {
            const char *text = js_string_of(js_get(js_at(list, j), "text"), "");
            if (!was_shown(file, i, text))
                fputs(text, stderr);
        }
    }
    return refused ? CLI_USAGE : CLI_DONE;
}
