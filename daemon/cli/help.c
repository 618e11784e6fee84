// `switchyard help [COMMAND]` and `switchyard version`.
#include "daemon/cli/command.h"
#include "schema/base/near.h"
#include "schema/base/text.h"

#include <stdio.h>
#include <stdlib.h>

static int run_help(const struct arguments *arguments)
{
    if (arguments->count == 0) {
        print_overview();
        return CLI_DONE;
    }
    const struct command *command = command_find(arguments->words[0]);
    if (!command)
        return usage_error("there is no command '%s'; `switchyard help` lists them", arguments->words[0]);
    print_command_help(command);
    return CLI_DONE;
}

const struct command command_help = {
    .name = "help",
    .summary = "Show the commands, or what one of them takes",
    .usage = "[COMMAND]",
    .most = 1,
    .run = run_help,
};

static int run_version(const struct arguments *arguments)
{
    if (argument_flag(arguments, "json")) {
        struct json *version = js_object();
        js_set(version, "version", js_string(SWITCHYARD_VERSION));
        print_json(version);
        js_free(version);
    } else {
        printf("switchyard %s\n", SWITCHYARD_VERSION);
    }
    return CLI_DONE;
}

static const struct command_option version_options[] = {
    {"json", 0, NULL, false, "as JSON"},
    {0},
};

const struct command command_version = {
    .name = "version",
    .summary = "Show the version of this program",
    .usage = "",
    .options = version_options,
    .run = run_version,
};
