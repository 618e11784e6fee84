// The program `switchyard`: finds the command, checks its arguments, runs it. What each command does is in its own file.
#include "daemon/cli/command.h"
#include "schema/base/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int run_command(const struct command *command, int argc, char **argv)
{
    struct arguments arguments;
    struct error err = {0};
    int code;
    if (arguments_parse(&arguments, command, argc, argv, &err) != 0) {
        code = usage_error("%s", err.text);
    } else if (arguments.help) {
        print_command_help(command);
        code = CLI_DONE;
    } else {
        code = command->run(&arguments);
    }
    arguments_release(&arguments);
    return code;
}

// A result that did not reach the disk or the pipe is no result.
static int close_output(int code)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "switchyard: cannot write the output: %s\n", errno ? strerror(errno) : "write error");
    return code == CLI_DONE ? CLI_RUN_FAILED : code;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "help";
    int code;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    if (strcmp(name, "--version") == 0)
        name = "version";
    const struct command *command = command_find(name);
    if (command)
        code = run_command(command, argc > 2 ? argc - 2 : 0, argv + 2);
    else
        code = command_unknown(name);
    if (argc < 2)
        code = CLI_USAGE;
    return close_output(code);
}
