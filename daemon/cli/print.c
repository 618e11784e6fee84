// What every command prints the same way: JSON, help, usage errors.
#include "daemon/cli/command.h"
#include "schema/base/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void print_json(const struct json *value)
{
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    js_write_pretty(&text, value);
    fwrite(text.at, 1, text.length, stdout);
    text_release(&text);
}

int usage_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("switchyard: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    return CLI_USAGE;
}

static void print_option(char letter, const char *name, const char *value, const char *help)
{
    char left[64];
    snprintf(left, sizeof left, "%c%c%s --%s%s%s", letter ? '-' : ' ', letter ? letter : ' ', letter ? "," : " ", name, value ? " " : "",
        value ? value : "");
    printf("  %-26s %s\n", left, help);
}

void print_command_help(const struct command *command)
{
    printf("switchyard %s%s%s [options]\n\n%s.\n", command->name, *command->usage ? " " : "", command->usage, command->summary);
    if (command->description)
        printf("\n%s\n", command->description);
    printf("\nOptions:\n");
    for (const struct command_option *option = command->options; option && option->name; option++)
        print_option(option->letter, option->name, option->value, option->help);
    print_option('h', "help", NULL, "show this help");
}

void print_overview(void)
{
    printf("switchyard <command> [options]: train, record and compare dense and Mixture-of-Experts models.\n\nCommands:\n");
    for (size_t i = 0; i < commands_count; i++)
        printf("  %-12s %s\n", commands[i]->name, commands[i]->summary);
    printf("\n`switchyard help COMMAND` or `switchyard COMMAND --help` shows one of them.\n"
           "Exit codes: 0 done, 1 a run did not succeed (or a model could not be written), 2 wrong usage or a bad spec, 3 no daemon or it refused, 130 interrupted.\n");
}
