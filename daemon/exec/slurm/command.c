#include "daemon/exec/slurm/command.h"
#include "daemon/exec/spawn.h"
#include "schema/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum {
    PIPE_BYTES = 1 << 20, // so that an answer of usual size does not wait for our next look
    DRAIN_MAX = 8 << 20,  // bytes read in one look
    UNREAPED_MAX = 256
};

struct command {
    pid_t pid;
    int output_fd, talk_fd; // -1: closed
    double deadline;        // steady seconds
    size_t output_max;
    bool over;
    struct command_result result;
};

// Children that were killed and given up before they could be reaped, as those that hang in a file system. Looked at again at each start.
static pthread_mutex_t unreaped_lock = PTHREAD_MUTEX_INITIALIZER;
static pid_t unreaped[UNREAPED_MAX];
static size_t unreaped_count;

static void leave_unreaped(pid_t pid)
{
    pthread_mutex_lock(&unreaped_lock);
    if (unreaped_count < UNREAPED_MAX)
        unreaped[unreaped_count++] = pid;
    pthread_mutex_unlock(&unreaped_lock);
}

static void reap_left(void)
{
    pthread_mutex_lock(&unreaped_lock);
    for (size_t i = 0; i < unreaped_count;)
        if (waitpid(unreaped[i], NULL, WNOHANG) != 0)
            unreaped[i] = unreaped[--unreaped_count];
        else
            i++;
    pthread_mutex_unlock(&unreaped_lock);
}

static int open_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES); // a wish
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static void close_pipe(int ends[2])
{
    for (int i = 0; i < 2; i++)
        if (ends[i] >= 0)
            close(ends[i]);
    ends[0] = ends[1] = -1;
}

bool command_on_path(const char *program)
{
    const char *path = getenv("PATH");
    bool found = false;
    for (const char *at = path ? path : ""; *at && !found;) {
        size_t length = strcspn(at, ":");
        char *file = string_format("%.*s/%s", (int)length, at, program);
        found = length && access(file, X_OK) == 0;
        free(file);
        at += length + (at[length] == ':');
    }
    return found;
}

struct command *command_start(const struct command_request *request, struct error *err)
{
    reap_left();
    int output[2] = {-1, -1}, talk[2] = {-1, -1};
    pid_t pid = 0;
    int fault = open_pipe(output);
    if (!fault)
        fault = open_pipe(talk);
    if (!fault)
        fault = spawn_apart(&pid, request->argv, request->environment, request->directory, output[1], talk[1]);
    if (fault) {
        close_pipe(output);
        close_pipe(talk);
        errno = fault;
        if (fault == ENOENT && !strchr(request->argv[0], '/') && !command_on_path(request->argv[0]))
            error_set(err, "there is no %s on the daemon's PATH: start `switchyard serve` where Slurm's commands are", request->argv[0]);
        else
            error_errno(err, "cannot start %s", request->argv[0]);
        return NULL;
    }
    close(output[1]);
    close(talk[1]);
    struct command *command = allocate(1, sizeof *command);
    double now = clock_steady();
    *command = (struct command){.pid = pid, .output_fd = output[0], .talk_fd = talk[0], .deadline = now + request->deadline};
    command->output_max = request->output_max;
    command->result.asked = now;
    text_init(&command->result.output, request->output_max + 1);
    text_init(&command->result.talk, COMMAND_TALK_MAX);
    return command;
}

// Reads what is there. What does not fit is dropped, so that the child does not stand still on it.
static void drain(int *fd, struct text *into)
{
    char block[65536];
    for (size_t sum = 0; *fd >= 0 && sum < DRAIN_MAX;) {
        ssize_t got = read(*fd, block, sizeof block);
        if (got > 0) {
            text_add_bytes(into, block, (size_t)got);
            sum += (size_t)got;
        } else if (got < 0 && errno == EINTR) {
            continue;
        } else {
            if (got == 0 || errno != EAGAIN) {
                close(*fd);
                *fd = -1;
            }
            return;
        }
    }
}

// The leader is left a zombie until its group is killed: as long as it is one, the group's number is nobody else's.
static bool has_ended(struct command *command)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)command->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
        return errno != EINTR; // no such child: somebody else has reaped it
    return info.si_pid == command->pid;
}

static void finish(struct command *command)
{
    int status = 0;
    struct command_result *result = &command->result;
    kill(-command->pid, SIGKILL);
    drain(&command->output_fd, &result->output);
    drain(&command->talk_fd, &result->talk);
    bool told = waitpid(command->pid, &status, WNOHANG) == command->pid;
    if (result->end == COMMAND_EXITED && told && WIFEXITED(status)) {
        result->code = WEXITSTATUS(status);
    } else if (result->end == COMMAND_EXITED) {
        result->end = COMMAND_KILLED;
        result->signal = told && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    }
    if (result->end == COMMAND_EXITED && result->output.length > command->output_max)
        result->end = COMMAND_FLOODING;
    command->over = true;
}

const struct command_result *command_poll(struct command *command)
{
    struct command_result *result = &command->result;
    if (command->over)
        return result;
    drain(&command->output_fd, &result->output);
    drain(&command->talk_fd, &result->talk);
    if (has_ended(command)) {
        finish(command);
        return result;
    }
    double now = clock_steady();
    bool late = now >= command->deadline;
    result->took = now - result->asked;
    if (!late && result->output.length <= command->output_max)
        return NULL;
    result->end = late ? COMMAND_LATE : COMMAND_FLOODING;
    kill(-command->pid, SIGKILL);
    if (has_ended(command)) {
        finish(command);
    } else { // it ends when the kernel gets to it; the answer is no longer waited for
        leave_unreaped(command->pid);
        command->over = true;
    }
    return result;
}

void command_free(struct command *command)
{
    if (!command)
        return;
    if (!command->over) {
        kill(-command->pid, SIGKILL);
        if (waitpid(command->pid, NULL, WNOHANG) == 0)
            leave_unreaped(command->pid);
    }
    if (command->output_fd >= 0)
        close(command->output_fd);
    if (command->talk_fd >= 0)
        close(command->talk_fd);
    text_release(&command->result.output);
    text_release(&command->result.talk);
    free(command);
}

// The last line that says something, without control bytes: Slurm puts what matters last.
static void last_line(char *out, size_t size, const struct text *talk)
{
    size_t end = talk->length;
    while (end > 0 && (unsigned char)talk->at[end - 1] <= ' ')
        end--;
    size_t begin = end;
    while (begin > 0 && talk->at[begin - 1] != '\n')
        begin--;
    size_t length = end - begin < size - 1 ? end - begin : size - 1;
    for (size_t i = 0; i < length; i++)
        out[i] = (unsigned char)talk->at[begin + i] < ' ' || talk->at[begin + i] == 0x7f ? '?' : talk->at[begin + i];
    out[length] = 0;
}

void command_describe(char *out, size_t size, const struct command_result *result)
{
    char words[400];
    last_line(words, sizeof words, &result->talk);
    if (!words[0])
        last_line(words, sizeof words, &result->output); // a site's own script may say there what it does not like
    const char *colon = words[0] ? ": " : "";
    switch (result->end) {
    case COMMAND_EXITED: snprintf(out, size, "exit code %d%s%s", result->code, colon, words); break;
    case COMMAND_KILLED: snprintf(out, size, "ended by signal %d%s%s", result->signal, colon, words); break;
    case COMMAND_LATE: snprintf(out, size, "no answer within %.0f s%s%s", result->took, colon, words); break;
    case COMMAND_FLOODING: snprintf(out, size, "an answer longer than may be%s%s", colon, words); break;
    }
}

bool command_is_refuted(const struct command_result *result)
{
    static const char *const words[] = {"slurm_load_jobs error", "Unable to contact slurm", "fatal: ", "Problem talking to the database"};
    for (size_t i = 0; result->output.length == 0 && i < sizeof words / sizeof *words; i++)
        if (strstr(result->talk.at, words[i]))
            return true;
    return false;
}

static bool is_kept(const char *entry)
{
    static const char *const dropped[] = {"SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SINFO_", "SRUN_", "SALLOC_", "SCONTROL_",
        "LC_", "LANG=", "LANGUAGE=", "SWITCHYARD_", NULL};
    if (strncmp(entry, "SLURM_CONF=", 11) == 0 || strncmp(entry, "SLURM_CONF_SERVER=", 18) == 0)
        return true;
    for (size_t i = 0; dropped[i]; i++)
        if (strncmp(entry, dropped[i], strlen(dropped[i])) == 0)
            return false;
    return true;
}

const char **command_environment(void)
{
    size_t most = 3, count = 0;
    for (char **at = environ; *at; at++)
        most++;
    const char **list = allocate(most, sizeof *list);
    for (char **at = environ; *at; at++)
        if (is_kept(*at))
            list[count++] = *at;
    list[count++] = "LC_ALL=C";
    list[count++] = "SLURM_TIME_FORMAT=%s";
    return list;
}
