// What may be done here is what a signal handler may do: system calls and arithmetic. /proc/self/maps says which file an address is of.
#include "worker/train/fault.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 4096 };

// All at once: what another rank says, or mpirun, does not come between.
static void say(const char *path)
{
    static const char before[] = "switchyard-worker: ", after[] = ": gone while in use: the file was cut short, or its disk is full or failing\n";
    const struct iovec parts[] = {{(void *)before, strlen(before)}, {(void *)path, strlen(path)}, {(void *)after, strlen(after)}};
    ssize_t put = writev(STDERR_FILENO, parts, sizeof parts / sizeof *parts);
    (void)put; // there is nobody else to tell
}

static const char *read_hex(const char *at, uintptr_t *number)
{
    for (*number = 0;; at++) {
        int digit = *at >= '0' && *at <= '9' ? *at - '0' : *at >= 'a' && *at <= 'f' ? *at - 'a' + 10 : -1;
        if (digit < 0)
            return at;
        *number = *number * 16 + (uintptr_t)digit;
    }
}

// "first-last rights offset device inode   path"
static const char *path_if_covers(const char *line, uintptr_t address)
{
    uintptr_t first, last;
    const char *at = read_hex(line, &first);
    if (*at != '-')
        return NULL;
    read_hex(at + 1, &last);
    return address >= first && address < last ? strchr(line, '/') : NULL;
}

// Fills line with one line of the file; 0 at its end.
static int next_line(int fd, char line[LINE_MAX_BYTES])
{
    size_t length = 0;
    char byte;
    while (read(fd, &byte, 1) == 1 && byte != '\n')
        if (length < LINE_MAX_BYTES - 1)
            line[length++] = byte;
    line[length] = 0;
    return length > 0;
}

// The handler is taken off by then: coming back repeats the access, and the process ends by the signal itself.
static void explain(int number, siginfo_t *info, void *context)
{
    (void)number, (void)context;
    static char line[LINE_MAX_BYTES];
    const char *path = NULL;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !path && next_line(fd, line))
        path = path_if_covers(line, (uintptr_t)info->si_addr);
    say(path ? path : "memory");
}

void fault_explain(void)
{
    struct sigaction action = {.sa_sigaction = explain, .sa_flags = SA_SIGINFO | (int)SA_RESETHAND};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
