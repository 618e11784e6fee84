// switchyard-worker: what runs on compute nodes, under mpirun or srun, or by hand. The commands are in worker/train/train.h and
// worker/infer/infer.h.
#include "schema/record/layout.h"
#include "worker/check/check.h"
#include "worker/infer/infer.h"
#include "worker/parallel/comm.h"
#include "worker/train/stop.h"
#include "worker/train/train.h"
#include "worker/train/version.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char usage[] =
    "usage: switchyard-worker COMMAND …\n"
    "  train RUN_DIR               train as RUN_DIR/run.json says; under mpirun -n N for several ranks\n"
    "  tokenize RUN_DIR            turn a text into a dataset as RUN_DIR/run.json says\n"
    "  inspect [--json] PATH       what is in a checkpoint directory and whether it is whole, or the parameters of a run directory\n"
    "  evaluate RUN_OR_CHECKPOINT  loss, perplexity and bits per byte on a split of the run's data\n"
    "  export RUN_OR_CHECKPOINT DIRECTORY   a directory that Hugging Face's transformers loads\n"
    "  generate RUN_OR_CHECKPOINT --prompt TEXT   what the model says next\n"
    "  import DIRECTORY            the model section of a spec, from such a directory\n"
    "  check determinism RUN_DIR   the run's first iterations twice, compared bit for bit; under mpirun -n N for several ranks\n"
    "  COMMAND --help              what these five take besides\n"
    "  --version [--json]          version, MPI library, instruction set, build\n"
    "  --help                      this text\n"
    "exit codes: 0 done, 1 failed, 2 bad usage, run.json or data, 75 stopped after saving (start it again to continue)\n";

static int wrong(const char *what, const char *word)
{
    fprintf(stderr, "switchyard-worker: %s%s\n%s", what, word, usage);
    return EXIT_BAD_INPUT;
}

static int train_command(const char *run_directory)
{
    stop_catch_signals(); // before the ranks find each other, which takes its time
    struct comm *world = comm_world();
    int code = train_run(world, run_directory);
    comm_finish(world);
    return code;
}

static int inspect_command(const char *path, bool as_json)
{
    char run_file[4096];
    struct stat info;
    snprintf(run_file, sizeof run_file, "%s/%s", path, RUN_FILE);
    return stat(run_file, &info) == 0 ? inspect_run(path, as_json) : inspect_checkpoint(path, as_json);
}

// Commands that read their own options.
static int command_with_options(int argc, char **argv)
{
    static const struct { const char *name; int (*run)(int argc, char **argv); } commands[] = {
        {"evaluate", evaluate_command}, {"export", export_command}, {"generate", generate_command}, {"import", import_command}};
    if (argc > 1 && strcmp(argv[1], "check") == 0)
        return check_command(argc - 2, argv + 2, train_run);
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    return -1;
}

static int command(int argc, char **argv)
{
    int code = command_with_options(argc, argv);
    if (code >= 0)
        return code;
    const char *words[2] = {NULL, NULL};
    int count = 0;
    bool as_json = false, help = false, words_only = false;
    for (int i = 1; i < argc; i++) {
        if (!words_only && strcmp(argv[i], "--") == 0)
            words_only = true;
        else if (!words_only && strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (!words_only && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0))
            help = true;
        else if (count < 2)
            words[count++] = argv[i];
        else
            return wrong("one word too many: ", argv[i]);
    }
    if (help) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    if (count == 1 && strcmp(words[0], "--version") == 0)
        return version_print(as_json);
    if (count != 2)
        return wrong("expected a command and a directory", "");
    if (as_json && strcmp(words[0], "inspect") != 0)
        return wrong("--json goes with inspect and --version, not with ", words[0]);
    if (strcmp(words[0], "train") == 0)
        return train_command(words[1]);
    if (strcmp(words[0], "tokenize") == 0)
        return tokenize_run(words[1]);
    if (strcmp(words[0], "inspect") == 0)
        return inspect_command(words[1], as_json);
    return wrong("no such command: ", words[0]);
}

// A result that could not be written is none, whatever the command thinks: a full disk shows when the last of it is flushed.
int main(int argc, char **argv)
{
    int code = command(argc, argv);
    errno = 0;
    bool written = fflush(stdout) == 0 && !ferror(stdout);
    if (written || code != EXIT_DONE)
        return code;
    fprintf(stderr, "switchyard-worker: cannot write the output%s%s\n", errno ? ": " : "", errno ? strerror(errno) : ""); // none: it failed before
    return EXIT_FAILED;
}
