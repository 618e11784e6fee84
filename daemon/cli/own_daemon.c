#include "daemon/cli/own_daemon.h"
#include "daemon/cli/home.h"
#include "daemon/serve/address.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_SECONDS = 15, STOP_SECONDS = 10, LOG_BYTES = 65536 };

// In the child: a process group of its own, so that Ctrl-C reaches us alone and the daemon can still cancel our runs.
static _Noreturn void become_daemon(const char *program, int log, pid_t parent)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(127);
    int empty = open("/dev/null", O_RDONLY);
    dup2(empty, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execl(program, "switchyard", "serve", "--port", "0", (char *)NULL);
    _exit(127);
}

static bool is_ready(const char *home, pid_t daemon)
{
    struct address address;
    bool ready = address_read(&address, home, NULL) == 0 && address.alive && address.pid == daemon;
    address_release(&address);
    return ready;
}

// Why it ended: what it said.
static int tell(const char *log_path, struct error *err)
{
    struct text text;
    text_init(&text, LOG_BYTES);
    file_read(log_path, &text, NULL);
    while (text.length && text.at[text.length - 1] == '\n')
        text.at[--text.length] = '\0';
    const char *said = strncmp(text.at, "switchyard: ", 12) == 0 ? text.at + 12 : text.at;
    error_set(err, "no daemon runs here, and one of our own does not start: %s", *said ? said : log_path);
    text_release(&text);
    return -1;
}

pid_t own_daemon_start(struct error *err)
{
    char *home = home_directory(), *program = program_path(), *log_path = path_join(home, "run-daemon.log");
    pid_t daemon = -1, parent = getpid();
    int log = directory_make(home, err) == 0 ? open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (log < 0) {
        if (!err->text[0])
            error_errno(err, "%s", log_path);
        goto out;
    }
    daemon = fork();
    if (daemon == 0)
        become_daemon(program, log, parent);
    if (daemon < 0) {
        error_errno(err, "fork");
        goto out;
    }
    double deadline = clock_steady() + START_SECONDS;
    while (!is_ready(home, daemon)) {
        if (waitpid(daemon, NULL, WNOHANG) == daemon || clock_steady() > deadline) {
            kill(daemon, SIGTERM);
            daemon = (pid_t)tell(log_path, err);
            goto out;
        }
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
out:
    if (log >= 0)
        close(log);
    free(log_path);
    free(program);
    free(home);
    return daemon;
}

void own_daemon_stop(pid_t daemon)
{
    kill(daemon, SIGTERM);
    double deadline = clock_steady() + STOP_SECONDS;
    while (waitpid(daemon, NULL, WNOHANG) == 0 && clock_steady() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}
