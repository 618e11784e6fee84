#include "daemon/cli/worker.h"
#include "daemon/cli/client.h"
#include "daemon/cli/home.h"
#include "schema/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool holds_model(const char *directory)
{
    static const char *const marks[] = {"run.json", "complete.json", "config.json"};
    bool found = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !found; i++) {
        char *path = path_join(directory, marks[i]);
        found = file_exists(path);
        free(path);
    }
    return found;
}

// The run directory of what a person typed, which must be on this machine; NULL after a sentence. free()
static char *directory_of(const struct arguments *arguments, const char *run)
{
    if (holds_model(run))
        return string_copy(run);
    struct client *client = client_for(arguments);
    char *path = client ? client_run_path(client, run) : NULL, *directory = NULL;
    struct json *answer = path ? client_get(client, path) : NULL;
    if (answer)
        directory = string_copy(js_string_of(js_get(answer, "directory"), ""));
    if (directory && access(directory, F_OK) != 0) {
        fprintf(stderr, "switchyard: %s: %s\n", directory, strerror(errno));
        free(directory);
        directory = NULL;
    }
    js_free(answer);
    free(path);
    if (client)
        client_close(client);
    return directory;
}

int worker_become(const struct arguments *arguments, bool names_run)
{
    struct error err = {0};
    char *worker = worker_path(&err), *directory = names_run && worker ? directory_of(arguments, arguments->words[0]) : NULL;
    if (!worker)
        fprintf(stderr, "switchyard: %s\n", err.text);
    if (!worker || (names_run && !directory)) {
        free(worker);
        return worker ? CLI_NO_DAEMON : CLI_USAGE;
    }
    char **argv = allocate(arguments->count + arguments->given_count + 4, sizeof *argv);
    size_t count = 0;
    argv[count++] = worker;
    argv[count++] = string_copy(arguments->command->name);
    for (size_t i = 0; i < arguments->given_count; i++) {
        const char *name = arguments->given[i].option->name, *value = arguments->given[i].value;
        if (strcmp(name, "url") != 0)
            argv[count++] = arguments->given[i].option->value ? string_format("--%s=%s", name, value) : string_format("--%s", name);
    }
    argv[count++] = string_copy("--"); // words may begin with dashes
    for (size_t i = 0; i < arguments->count; i++)
        argv[count++] = string_copy(i == 0 && directory ? directory : arguments->words[i]);
    execv(worker, argv);
    fprintf(stderr, "switchyard: %s: %s\n", worker, strerror(errno));
    while (count > 0)
        free(argv[--count]);
    free(argv);
    free(directory);
    return CLI_USAGE;
}
