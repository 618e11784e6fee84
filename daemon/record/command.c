#include "daemon/record/inside.h"
#include "schema/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMPLAINT_MAX = 4096, WAIT_STEP_MS = 2 };

extern char **environ;

// Ours without git's own variables (GIT_DIR of a hook would send it to another repository), in the C locale, never asking anything.
static char **clean_environment(void)
{
    static char *const added[] = {"LC_ALL=C", "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0"};
    enum { ADDED = sizeof added / sizeof added[0] };
    size_t count = 0, used = 0;
    while (environ[count])
        count++;
    char **clean = allocate(count + ADDED + 1, sizeof *clean);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "GIT_", 4) != 0 && strncmp(environ[i], "LC_", 3) != 0 && strncmp(environ[i], "LANGUAGE=", 9) != 0)
            clean[used++] = environ[i];
    memcpy(clean + used, added, sizeof added);
    return clean;
}

// In a process group of its own, so that a deadline ends its children too; stdin is empty.
static int start(pid_t *child, const char *const *argv, int out, int complaint)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, standard;
    sigemptyset(&none);
    sigemptyset(&standard);
    sigaddset(&standard, SIGPIPE);
    sigaddset(&standard, SIGINT);
    sigaddset(&standard, SIGTERM);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, 1);
    posix_spawn_file_actions_adddup2(&files, complaint, 2);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    char **environment = clean_environment();
    int fault = posix_spawnp(child, argv[0], &files, &attributes, (char *const *)(uintptr_t)argv, environment);
    free(environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return fault;
}

// Takes what is there; false at the end of the stream.
static bool take(int fd, struct text *text)
{
    char block[16384];
    ssize_t got = read(fd, block, sizeof block);
    if (got > 0 && !text->overflowed)
        text_add_bytes(text, block, (size_t)got);
    return got > 0 || (got < 0 && errno == EINTR);
}

static int remaining_ms(double deadline)
{
    double left = (deadline - clock_steady()) * 1e3;
    return left > 0 ? (int)left + 1 : 0;
}

// Both streams to their ends; -1 at the deadline.
static int read_streams(struct command *command, int out, int complaint, double deadline)
{
    struct pollfd streams[2] = {{.fd = out, .events = POLLIN}, {.fd = complaint, .events = POLLIN}};
    struct text *texts[2] = {command->out, &command->complaint};
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
        int ready = poll(streams, 2, remaining_ms(deadline));
        if (ready == 0 || (ready < 0 && errno != EINTR))
            return -1;
        for (int i = 0; ready > 0 && i < 2; i++)
            if (streams[i].revents && !take(streams[i].fd, texts[i]))
                streams[i].fd = -1;
    }
    return 0;
}

static int wait_for(pid_t child, int *code, double deadline)
{
    int status;
    pid_t got;
    while ((got = waitpid(child, &status, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
        if (remaining_ms(deadline) == 0)
            return -1;
        usleep(WAIT_STEP_MS * 1000);
    }
    *code = got < 0 ? -1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

int child_run(struct command *command, struct error *err)
{
    int out[2] = {-1, -1}, complaint[2] = {-1, -1}, status = -1;
    double deadline = clock_steady() + command->deadline_ms / 1000.0;
    pid_t child = 0;
    text_init(&command->complaint, COMPLAINT_MAX);
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(complaint, O_CLOEXEC) != 0) {
        error_errno(err, "%s", command->argv[0]);
        goto out;
    }
    int fault = start(&child, command->argv, out[1], complaint[1]);
    if (fault) {
        child = 0;
        error_set(err, "%s cannot be started: %s", command->argv[0], strerror(fault));
        goto out;
    }
    close(out[1]);
    close(complaint[1]);
    out[1] = complaint[1] = -1;
    if (read_streams(command, out[0], complaint[0], deadline) != 0 || wait_for(child, &command->code, deadline) != 0) {
        kill(-child, SIGKILL);
        waitpid(child, NULL, 0);
        error_set(err, "%s took longer than %d s and was ended", command->argv[0], command->deadline_ms / 1000);
        goto out;
    }
    status = 0;
out:
    for (int i = 0; i < 2; i++) {
        if (out[i] >= 0)
            close(out[i]);
        if (complaint[i] >= 0)
            close(complaint[i]);
    }
    return status;
}
