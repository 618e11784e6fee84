#include "worker/train/stop.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <signal.h>
#include <stdlib.h>

static volatile sig_atomic_t signalled;

static void note(int number)
{
    (void)number;
    signalled = 1;
}

void stop_catch_signals(void)
{
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow (ulimit -f) is a failed write with its name, like a full disk
}

bool stop_wished(const char *run_directory)
{
    if (signalled || !run_directory)
        return signalled;
    char *path = path_join(run_directory, STOP_FILE);
    bool there = file_exists(path);
    free(path);
    return there;
}
