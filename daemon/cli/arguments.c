// The command line against a command's tables: --name value, --name=value, -n value, flags (-fe is -f -e), `--` before words that begin with a dash.
#include "daemon/cli/command.h"
#include "schema/base/near.h"
#include "schema/base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command_option help_option = {"help", 'h', NULL, false, "show this help"};

enum { OPTIONS_MAX = 32 }; // rows of a command's table

static const struct command_option *find_option(const struct command *command, const char *name, size_t length, char letter)
{
    for (const struct command_option *option = command->options; option && option->name; option++)
        if (letter ? option->letter == letter : strlen(option->name) == length && strncmp(option->name, name, length) == 0)
            return option;
    if (letter ? letter == 'h' : length == 4 && strncmp(name, "help", 4) == 0)
        return &help_option;
    return NULL;
}

// An option that the command lacks, with the one that is near, or with all that it has. name: without its dashes.
static int unknown_option(const struct command *command, const char *name, size_t length, struct error *err)
{
    const char *names[OPTIONS_MAX];
    size_t count = 0;
    struct text all;
    text_init(&all, 1024);
    for (const struct command_option *option = command->options; option && option->name && count < OPTIONS_MAX; option++) {
        text_addf(&all, "%s--%s", count ? ", " : "", option->name);
        names[count++] = option->name;
    }
    char *wanted = string_format("%.*s", (int)length, name);
    const char *near = near_name(wanted, names, count), *dashes = length > 1 ? "--" : "-";
    if (near)
        error_set(err, "%s has no option %s%s; did you mean --%s?", command->name, dashes, wanted, near);
    else if (strcmp(wanted, "dry-run") == 0)
        error_set(err, "%s has no option --dry-run: `switchyard plan SPEC` starts nothing", command->name);
    else
        error_set(err, "%s has no option %s%s; it has %s", command->name, dashes, wanted, count ? all.at : "none");
    free(wanted);
    text_release(&all);
    return -1;
}

// A word behind all that the command takes: a key to set, as with Hydra, or the name of a run.
static int unwanted_word(const struct command *command, const char *word, struct error *err)
{
    if (strchr(word, '=') && find_option(command, "set", 3, 0))
        return error_set(err, "%s: one word too many: '%s'; a key is changed by --set %s", command->name, word, word);
    if (find_option(command, "run", 3, 0))
        return error_set(err, "%s: one word too many: '%s'; --run NAME chooses one run of the spec", command->name, word);
    return error_set(err, "%s: one word too many: '%s' (usage: switchyard %s%s%s)", command->name, word, command->name, *command->usage ? " " : "",
        command->usage);
}

static bool is_given(const struct arguments *arguments, const struct command_option *option)
{
    for (size_t i = 0; i < arguments->given_count; i++)
        if (arguments->given[i].option == option)
            return true;
    return false;
}

// One option with its value, which may be the next word; returns how many words both used, or -1.
static int give(struct arguments *arguments, const struct command_option *option, const char *value, int argc, char **argv, int at,
    struct error *err)
{
    int used = 1;
    if (option->value && !value) {
        if (at + 1 >= argc)
            return error_set(err, "--%s needs a value (%s)", option->name, option->value);
        value = argv[at + 1];
        used = 2;
    }
    if (!option->value && value)
        return error_set(err, "--%s takes no value", option->name);
    if (option->value && !option->repeatable && is_given(arguments, option))
        return error_set(err, "--%s is given twice", option->name);
    arguments->help = arguments->help || option == &help_option;
    arguments->given[arguments->given_count].option = option;
    arguments->given[arguments->given_count++].value = value ? value : "";
    return used;
}

// Takes the options at argv[at]: --name, -n, or letters in a row, of which only the last may have a value. Returns how many words that
// used, or -1.
static int take_option(struct arguments *arguments, int argc, char **argv, int at, struct error *err)
{
    const char *word = argv[at];
    if (word[1] == '-') {
        size_t length = strcspn(word + 2, "=");
        const struct command_option *option = find_option(arguments->command, word + 2, length, 0);
        if (!option)
            return unknown_option(arguments->command, word + 2, length, err);
        return give(arguments, option, word[2 + length] == '=' ? word + 3 + length : NULL, argc, argv, at, err);
    }
    for (const char *letter = word + 1;; letter++) {
        const struct command_option *option = find_option(arguments->command, NULL, 0, *letter);
        if (!option)
            return unknown_option(arguments->command, letter, 1, err);
        bool last = option->value || !letter[1];
        int used = give(arguments, option, last && letter[1] ? letter + 1 : NULL, argc, argv, at, err);
        if (used < 0 || last)
            return used;
    }
}

int arguments_parse(struct arguments *arguments, const struct command *command, int argc, char **argv, struct error *err)
{
    size_t room = 0; // letters in a row are several options
    for (int i = 0; i < argc; i++)
        room += 1 + strlen(argv[i]);
    *arguments = (struct arguments){.command = command, .words = allocate(room, sizeof *arguments->words),
        .given = allocate(room, sizeof *arguments->given)};
    bool words_only = false;
    for (int at = 0; at < argc;) {
        const char *word = argv[at];
        if (!words_only && strcmp(word, "--") == 0) {
            words_only = true;
            at++;
        } else if (!words_only && word[0] == '-' && word[1]) {
            int used = take_option(arguments, argc, argv, at, err);
            if (used < 0)
                return -1;
            at += used;
        } else {
            arguments->words[arguments->count++] = word;
            at++;
        }
    }
    if (arguments->help)
        return 0;
    if (arguments->count < command->least)
        return error_set(err, "usage: switchyard %s %s", command->name, command->usage);
    if (arguments->count > command->most)
        return unwanted_word(command, arguments->words[command->most], err);
    return 0;
}

void arguments_release(struct arguments *arguments)
{
    free(arguments->words);
    free(arguments->given);
    *arguments = (struct arguments){0};
}

const char *argument_value(const struct arguments *arguments, const char *name, const char *fallback)
{
    for (size_t i = 0; i < arguments->given_count; i++)
        if (strcmp(arguments->given[i].option->name, name) == 0)
            return arguments->given[i].value;
    return fallback;
}

bool argument_flag(const struct arguments *arguments, const char *name)
{
    return argument_value(arguments, name, NULL) != NULL;
}

const char **argument_values(const struct arguments *arguments, const char *name, size_t *count)
{
    const char **values = allocate(arguments->given_count, sizeof *values);
    *count = 0;
    for (size_t i = 0; i < arguments->given_count; i++)
        if (strcmp(arguments->given[i].option->name, name) == 0)
            values[(*count)++] = arguments->given[i].value;
    return values;
}

int argument_integer(const struct arguments *arguments, const char *name, long long fallback, long long least, long long most, long long *value)
{
    const char *string = argument_value(arguments, name, NULL);
    *value = fallback;
    if (!string)
        return 0;
    char *end;
    errno = 0;
    long long number = strtoll(string, &end, 10);
    if (errno || end == string || *end || number < least || number > most) {
        usage_error("--%s wants a whole number from %lld to %lld, not '%s'", name, least, most, string);
        return -1;
    }
    *value = number;
    return 0;
}
