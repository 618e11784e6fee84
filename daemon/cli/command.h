// What a command is: a file with one `const struct command`, whose tables are all that parsing and --help need. Results go to stdout, talk
// to stderr; a command returns one of the exit codes below.
#pragma once
#include "schema/base/json.h"
#include <stdbool.h>
#include <stddef.h>

enum exit_code {
    CLI_DONE = 0,
    CLI_RUN_FAILED = 1,   // a run did not succeed
    CLI_USAGE = 2,        // wrong usage, or a bad spec
    CLI_NO_DAEMON = 3,    // no daemon, or it refused
    CLI_INTERRUPTED = 130 // Ctrl-C
};

struct command_option {
    const char *name;  // without dashes; NULL ends the table
    char letter;       // short form; 0: none
    const char *value; // what the value is called in --help (NAME, SECONDS); NULL: a flag
    bool repeatable;
    const char *help;
};

struct arguments; // what the user typed, checked against the tables

struct command {
    const char *name;
    const char *summary;                  // one line, without a full stop
    const char *usage;                    // positional words, such as "SPEC" or "RUN [RUN]"
    size_t least, most;                   // how many positional words
    const struct command_option *options; // ends with a row whose name is NULL; --help is everywhere and not in it
    const char *description;              // paragraphs for --help; may be NULL
    int (*run)(const struct arguments *arguments);
};

// All commands, in alphabetical order (commands.c).
extern const struct command *const commands[];
extern const size_t commands_count;
const struct command *command_find(const char *name); // NULL if there is none
int command_unknown(const char *name); // says what may have been meant by a name that none has; returns CLI_USAGE

// ---- arguments.c ----

struct arguments {
    const struct command *command;
    const char **words;   // positional
    size_t count;
    struct { const struct command_option *option; const char *value; } *given; // in the order of the command line; value "" for a flag
    size_t given_count;
    bool help;            // --help or -h was among them
};

// argv begins after the command's name. 0, or -1 with the sentence; release in both cases.
int arguments_parse(struct arguments *arguments, const struct command *command, int argc, char **argv, struct error *err);
void arguments_release(struct arguments *arguments);

bool argument_flag(const struct arguments *arguments, const char *name);
const char *argument_value(const struct arguments *arguments, const char *name, const char *fallback);
// All values of a repeatable option, in order; the array is free()d by the caller, the strings are argv's.
const char **argument_values(const struct arguments *arguments, const char *name, size_t *count);
// Writes value in [least, most], or says on stderr what is wrong and returns -1.
int argument_integer(const struct arguments *arguments, const char *name, long long fallback, long long least, long long most, long long *value);

// ---- print.c ----

void print_json(const struct json *value);                                           // pretty, on stdout
void print_command_help(const struct command *command);                              // on stdout
void print_overview(void);                                                           // all commands, on stdout
int usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));      // "switchyard: …" on stderr; returns CLI_USAGE
