// The command table, in alphabetical order: `main` looks here, `help` prints it. A new command is one file and one line twice.
#include "daemon/cli/command.h"

#include <string.h>

extern const struct command command_help;
extern const struct command command_version;

const struct command *const commands[] = {
    &command_help,
    &command_version,
};
const size_t commands_count = sizeof commands / sizeof commands[0];

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < commands_count; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}
