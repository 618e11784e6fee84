#include "daemon/cli/worker.h"
#include "daemon/cli/client.h"
#include "daemon/cli/home.h"
#include "schema/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool holds_model(const char *directory)
{
    static const char *const marks[] = {"run.json", "complete.json", "config.json"};
    bool found = false;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !found; i++)
        found = directory_has(directory, marks[i]);
    return found;
}

// Of a word that is no run's name, or no run that the daemon knows: what it is instead, where there is something of that name.
static void say_what_is_there(const char *word)
{
    struct stat info;
    if (stat(word, &info) != 0)
        fprintf(stderr, "switchyard: '%s' is neither a directory nor a run's name (PROJECT/NAME, or NAME, of letters, digits, '-' and '_')\n", word);
    else if (!S_ISDIR(info.st_mode))
        fprintf(stderr, "switchyard: %s: not a directory\n", word);
    else
        fprintf(stderr, "switchyard: %s: neither a run directory (run.json), nor a complete checkpoint (complete.json), nor a model of transformers "
                        "(config.json)\n", word);
}

// The directory of the run in the daemon's answer, which must have a model and be on this machine; NULL after a sentence. free()
static char *directory_in(const struct json *run)
{
    const char *kind = js_string_of(js_get(run, "kind"), "train"), *directory = js_string_of(js_get(run, "directory"), "");
    if (strcmp(kind, "train") != 0)
        fprintf(stderr, "switchyard: %s/%s is a run of kind %s: it has no model\n", js_string_of(js_get(run, "project"), ""),
            js_string_of(js_get(run, "name"), ""), kind);
    else if (access(directory, F_OK) != 0)
        fprintf(stderr, "switchyard: %s: %s\n", directory, strerror(errno));
    else
        return string_copy(directory);
    return NULL;
}

// The run directory of what a person typed; NULL after a sentence, with the exit code. free()
static char *directory_of(const struct arguments *arguments, const char *run, int *code)
{
    *code = CLI_USAGE;
    if (holds_model(run))
        return string_copy(run);
    if (!client_is_run_name(run)) {
        say_what_is_there(run);
        return NULL;
    }
    *code = CLI_NO_DAEMON;
    struct client *client = client_for(arguments);
    if (!client)
        fprintf(stderr, "switchyard: without a daemon, %s takes a directory: a run's, or a checkpoint\n", arguments->command->name);
    char *path = client ? client_run_path(client, run) : NULL, *directory = NULL;
    struct json *answer = path ? client_get(client, path) : NULL;
    if (answer) {
        *code = CLI_USAGE;
        directory = directory_in(answer);
    } else if (access(run, F_OK) == 0) {
        say_what_is_there(run);
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
    int code = CLI_USAGE;
    char *worker = worker_path(&err), *directory = names_run && worker ? directory_of(arguments, arguments->words[0], &code) : NULL;
    if (!worker)
        fprintf(stderr, "switchyard: %s\n", err.text);
    if (!worker || (names_run && !directory)) {
        free(worker);
        return code;
    }
    char **argv = allocate(arguments->count + arguments->given_count + 4, sizeof *argv);
    size_t count = 0;
    argv[count++] = string_copy("switchyard"); // its sentences speak of the command that was typed
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
    free(worker);
    free(directory);
    return CLI_USAGE;
}
