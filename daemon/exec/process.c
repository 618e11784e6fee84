#include "daemon/exec/process.h"
#include "schema/base/clock.h"
#include "schema/base/text.h"
#include "schema/record/layout.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PROC_FILE_MAX = 4 << 20 }; // an environment larger than this is read in part

// Reads /proc/PID/name whole. The result is free()d by the caller and closed by a NUL; NULL if it cannot be read.
static char *read_proc(pid_t pid, const char *name, size_t *length)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct text bytes;
    text_init(&bytes, PROC_FILE_MAX);
    char block[8192];
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0 && !bytes.overflowed)
        text_add_bytes(&bytes, block, (size_t)got);
    close(fd);
    *length = bytes.length;
    return text_take(&bytes);
}

double process_started(pid_t pid, pid_t *parent)
{
    size_t length;
    char *stat = pid > 0 ? read_proc(pid, "stat", &length) : NULL;
    if (!stat)
        return 0;
    // The command's name may hold blanks and parentheses: the fields start after the last one.
    char *fields = strrchr(stat, ')');
    char state = 0;
    int parent_pid = 0;
    unsigned long long ticks = 0;
    int got = fields ? sscanf(fields + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &state,
                           &parent_pid, &ticks)
                     : 0;
    free(stat);
    if (parent)
        *parent = parent_pid;
    return got == 3 && state != 'Z' && state != 'X' ? (double)ticks : 0;
}

double process_age(double started)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 - started / (double)sysconf(_SC_CLK_TCK);
}

bool process_has_tag(pid_t pid, const char *tag, char *found)
{
    static const char name[] = TAG_VARIABLE "=";
    size_t length;
    char *environment = read_proc(pid, "environ", &length);
    if (!environment)
        return false;
    bool has = false;
    for (size_t at = 0; at < length && !has; at += strlen(environment + at) + 1) {
        const char *entry = environment + at;
        if (strncmp(entry, name, sizeof name - 1) != 0)
            continue;
        const char *value = entry + sizeof name - 1;
        if (tag)
            has = strcmp(value, tag) == 0;
        else if (strlen(value) == 32)
            has = strcpy(found, value) != NULL;
    }
    free(environment);
    return has;
}

bool process_in_exec(pid_t pid)
{
    size_t length = 0;
    char *environment = read_proc(pid, "environ", &length);
    bool in_exec = environment && length == 0;
    free(environment);
    return in_exec;
}

bool process_catches(pid_t pid, int signal_number)
{
    size_t length;
    char *status = read_proc(pid, "status", &length);
    if (!status)
        return false;
    char *line = strstr(status, "\nSigCgt:");
    unsigned long long caught = 0;
    if (line)
        sscanf(line, "\nSigCgt: %llx", &caught);
    free(status);
    return (caught >> (signal_number - 1)) & 1;
}

void process_each_tagged(void (*visit)(void *context, pid_t pid, const char *tag), void *context)
{
    DIR *proc = opendir("/proc");
    if (!proc)
        return;
    struct dirent *entry;
    while ((entry = readdir(proc))) {
        char *end;
        long pid = strtol(entry->d_name, &end, 10);
        char tag[33];
        if (*end || pid <= 0 || pid == getpid() || !process_has_tag((pid_t)pid, NULL, tag))
            continue;
        if (process_started((pid_t)pid, NULL) > 0)
            visit(context, (pid_t)pid, tag);
    }
    closedir(proc);
}

static int by_tag(const void *a, const void *b)
{
    const struct process_entry *one = a, *two = b;
    int order = strcmp(one->tag, two->tag);
    return order ? order : one->pid < two->pid ? -1 : one->pid > two->pid;
}

static void append(void *context, pid_t pid, const char *tag)
{
    struct process_table *table = context;
    if (table->count >= PROCESS_TABLE_MAX)
        return;
    if (table->count == table->room) {
        table->room = table->room ? 2 * table->room : 64;
        table->at = reallocate(table->at, table->room, sizeof *table->at);
    }
    struct process_entry *entry = &table->at[table->count++];
    entry->pid = pid;
    snprintf(entry->tag, sizeof entry->tag, "%s", tag);
}

void process_table_take(struct process_table *table)
{
    table->count = 0;
    table->taken = clock_steady(); // its beginning: who is started while it is taken may be missing
    process_each_tagged(append, table);
    if (table->count)
        qsort(table->at, table->count, sizeof *table->at, by_tag);
}

void process_table_add(struct process_table *table, pid_t pid, const char *tag)
{
    append(table, pid, tag);
    if (table->count)
        qsort(table->at, table->count, sizeof *table->at, by_tag);
}

const struct process_entry *process_table_find(const struct process_table *table, const char *tag, size_t *count)
{
    size_t low = 0, high = table->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(table->at[middle].tag, tag) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count = 0; low + *count < table->count && strcmp(table->at[low + *count].tag, tag) == 0;)
        ++*count;
    return table->at + low;
}

void process_table_release(struct process_table *table)
{
    free(table->at);
    *table = (struct process_table){0};
}

bool process_signal_tagged(pid_t pid, const char *tag, int signal_number)
{
    int held = (int)syscall(SYS_pidfd_open, pid, 0);
    if (held < 0)
        return false;
    bool sent = process_has_tag(pid, tag, NULL) && syscall(SYS_pidfd_send_signal, held, signal_number, NULL, 0) == 0;
    close(held);
    return sent;
}
