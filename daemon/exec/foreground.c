// A command in this terminal: no job, no daemon. Ctrl-C reaches it as it reaches us, and it does not outlive us.
#include "daemon/exec/environment.h"
#include "daemon/exec/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_STARTED = 127 };

// In the child. Its parent may be gone before it could ask to be told.
static _Noreturn void become(const struct launch *launch, const char **environment, bool talk, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGINT, SIG_DFL);
    if (getppid() != parent || (talk && dup2(STDERR_FILENO, STDOUT_FILENO) < 0))
        _exit(NOT_STARTED);
    execvpe(launch->argv.at[0], launch->argv.at, (char *const *)(uintptr_t)environment);
    _exit(NOT_STARTED);
}

int launch_foreground(const struct launch *launch, bool talk, int *code, struct error *err)
{
    const char **environment = job_environment((const char *const *)launch->environment.at, NULL);
    struct sigaction before, ignored = {.sa_handler = SIG_IGN}; // it ends by Ctrl-C, and we tidy up after it
    sigaction(SIGINT, &ignored, &before);
    pid_t parent = getpid(), pid = fork();
    int status = 0;
    if (pid == 0)
        become(launch, environment, talk, parent);
    free(environment);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    sigaction(SIGINT, &before, NULL);
    if (pid < 0)
        return error_errno(err, "cannot start %s", launch->argv.at[0]);
    *code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (WIFSIGNALED(status))
        return error_set(err, "%s was ended by signal %d (%s)", launch->argv.at[0], WTERMSIG(status), strsignal(WTERMSIG(status)));
    return *code == NOT_STARTED ? error_set(err, "cannot start %s", launch->argv.at[0]) : 0;
}
