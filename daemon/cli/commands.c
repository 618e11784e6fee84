// The command table, in alphabetical order: `main` looks here, `help` prints it. A new command is one file and one line twice.
#include "daemon/cli/command.h"
#include "schema/base/near.h"
#include "schema/base/text.h"

#include <stdlib.h>
#include <string.h>

extern const struct command command_adopt;
extern const struct command command_cancel;
extern const struct command command_check;
extern const struct command command_compare;
extern const struct command command_config;
extern const struct command command_evaluate;
extern const struct command command_export;
extern const struct command command_generate;
extern const struct command command_help;
extern const struct command command_import;
extern const struct command command_logs;
extern const struct command command_ls;
extern const struct command command_plan;
extern const struct command command_report;
extern const struct command command_retry;
extern const struct command command_run;
extern const struct command command_schema;
extern const struct command command_serve;
extern const struct command command_show;
extern const struct command command_submit;
extern const struct command command_validate;
extern const struct command command_version;
extern const struct command command_wait;

const struct command *const commands[] = {
    &command_adopt,
    &command_cancel,
    &command_check,
    &command_compare,
    &command_config,
    &command_evaluate,
    &command_export,
    &command_generate,
    &command_help,
    &command_import,
    &command_logs,
    &command_ls,
    &command_plan,
    &command_report,
    &command_retry,
    &command_run,
    &command_schema,
    &command_serve,
    &command_show,
    &command_submit,
    &command_validate,
    &command_version,
    &command_wait,
};
const size_t commands_count = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < commands_count; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

// What Slurm, schedulers of containers and other launchers call ours.
static const struct { const char *theirs, *ours; } other_words[] = {
    {"list", "ls"}, {"ps", "ls"}, {"status", "ls"}, {"queue", "ls"}, {"squeue", "ls"}, {"jobs", "ls"}, {"runs", "ls"}, {"top", "ls"},
    {"stop", "cancel"}, {"kill", "cancel"}, {"abort", "cancel"}, {"scancel", "cancel"}, {"resume", "retry"}, {"restart", "retry"},
    {"continue", "retry"}, {"requeue", "retry"}, {"rerun", "retry"}, {"sbatch", "submit"}, {"launch", "submit"}, {"start", "submit"},
    {"sweep", "submit"}, {"train", "run"}, {"srun", "run"}, {"exec", "run"}, {"info", "show"}, {"describe", "show"},
    {"inspect", "show"}, {"sacct", "show"}, {"tail", "logs"}, {"log", "logs"}, {"attach", "logs"}, {"diff", "compare"}, {"dashboard", "serve"},
    {"web", "serve"}, {"ui", "serve"}, {"up", "serve"}, {"daemon", "serve"}, {"server", "serve"}, {"preview", "plan"}, {"dry-run", "plan"},
    {"lint", "validate"}, {"keys", "schema"}, {"summary", "report"}, {"init", "config"}, {"configure", "config"}, {"-v", "version"},
    {"-V", "version"}};

int command_unknown(const char *name)
{
    const char **names = allocate(commands_count, sizeof *names), *meant = NULL;
    for (size_t i = 0; i < commands_count; i++)
        names[i] = commands[i]->name;
    for (size_t i = 0; i < sizeof other_words / sizeof *other_words && !meant; i++)
        meant = strcmp(other_words[i].theirs, name) == 0 ? other_words[i].ours : NULL;
    if (!meant)
        meant = near_name(name, names, commands_count);
    free(names);
    if (strcmp(name, "delete") == 0 || strcmp(name, "rm") == 0 || strcmp(name, "remove") == 0)
        return usage_error("there is no command '%s': what ran is kept", name);
    if (meant)
        return usage_error("there is no command '%s'; did you mean '%s'?", name, meant);
    return usage_error("there is no command '%s'; `switchyard help` lists them", name);
}
