// The command table, in alphabetical order: `main` looks here, `help` prints it. A new command is one file and one line twice.
#include "daemon/cli/command.h"

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
