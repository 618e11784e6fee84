// `switchyard help [COMMAND]` and `switchyard version`.
#include "daemon/cli/command.h"
#include "schema/base/text.h"

#include <stdio.h>
#include <stdlib.h>

// ---- for programs ----

static struct json *describe_option(const struct command_option *option)
{
    char letter[] = {option->letter, 0};
    struct json *item = js_object();
    js_set(item, "name", js_string(option->name));
    js_set(item, "letter", option->letter ? js_string(letter) : js_null());
    js_set(item, "value", option->value ? js_string(option->value) : js_null());
    js_set(item, "repeatable", js_boolean(option->repeatable));
    js_set(item, "help", js_string(option->help));
    return item;
}

static struct json *describe_command(const struct command *command)
{
    struct json *item = js_object(), *options = js_array();
    for (const struct command_option *option = command->options; option && option->name; option++)
        js_append(options, describe_option(option));
    js_set(item, "name", js_string(command->name));
    js_set(item, "summary", js_string(command->summary));
    js_set(item, "usage", js_string(command->usage));
    js_set(item, "description", command->description ? js_string(command->description) : js_null());
    js_set(item, "options", options);
    return item;
}

static void print_as_json(const struct command *only)
{
    struct json *answer = js_object(), *list = js_array();
    for (size_t i = 0; i < commands_count; i++)
        if (!only || commands[i] == only)
            js_append(list, describe_command(commands[i]));
    js_set(answer, "commands", list);
    print_json(answer);
    js_free(answer);
}

static int run_help(const struct arguments *arguments)
{
    const struct command *command = arguments->count ? command_find(arguments->words[0]) : NULL;
    if (arguments->count && !command)
        return command_unknown(arguments->words[0]);
    if (argument_flag(arguments, "json"))
        print_as_json(command);
    else if (command)
        print_command_help(command);
    else
        print_overview();
    return CLI_DONE;
}

static const struct command_option help_options[] = {
    {"json", 0, NULL, false, "as JSON, with every option"},
    {0},
};

const struct command command_help = {
    .name = "help",
    .summary = "Show the commands, or what one of them takes",
    .usage = "[COMMAND]",
    .most = 1,
    .options = help_options,
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
