// `check determinism`: by hand, or under mpirun with as many ranks as the run has.
#include "schema/record/layout.h"
#include "worker/check/check.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: switchyard-worker check determinism RUN_DIR\n"
    "         trains 12 iterations of RUN_DIR/run.json twice, in temporary run directories inside RUN_DIR, and compares loss, balance loss,\n"
    "         gradient norm, gradient zeros and samples of every iteration, and all parameters at the end, bit for bit; under mpirun -n N\n"
    "         for several ranks. The result is also RUN_DIR/" DETERMINISM_FILE "\n"
    "       switchyard-worker check determinism RUN_DIR OTHER_RUN_DIR\n"
    "         compares what two runs have recorded (on other machines, at other times); trains nothing\n"
    "exit codes: 0 equal, 1 different, 2 bad usage or input\n";

static int compare(const char *first, const char *second)
{
    struct error err = {0};
    struct json *result = determinism_compare(first, second, &err);
    if (!result) {
        fprintf(stderr, "switchyard-worker: %s\n", err.text);
        return EXIT_BAD_INPUT;
    }
    int code = js_boolean_of(js_get(result, "equal"), false) ? EXIT_DONE : EXIT_FAILED;
    determinism_print(result);
    js_free(result);
    return code;
}

int check_command(int argc, char **argv, int (*train)(struct comm *world, const char *run_directory))
{
    if (argc > 0 && (strcmp(argv[argc - 1], "--help") == 0 || strcmp(argv[argc - 1], "-h") == 0)) {
        fputs(usage, stdout);
        return EXIT_DONE;
    }
    if (argc < 2 || argc > 3 || strcmp(argv[0], "determinism") != 0) {
        fprintf(stderr, "switchyard-worker: check takes a word and one or two directories\n%s", usage);
        return EXIT_BAD_INPUT;
    }
    if (argc == 3)
        return compare(argv[1], argv[2]);
    struct comm *world = comm_world();
    int code = determinism_try(world, argv[1], train);
    comm_finish(world);
    return code;
}
