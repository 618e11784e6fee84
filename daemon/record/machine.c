// The machine as the record names it: what a reader needs to judge speed and bits.
#include "daemon/record/inside.h"
#include "schema/base/file.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

enum { PROC_FILE_MAX = 4 << 20 };

// The value behind "name<blanks>:" or "name=" in a file of lines, without quotes; NULL if it is not there. free().
static char *value_in(const char *path, const char *name, char separator)
{
    struct text lines;
    text_init(&lines, PROC_FILE_MAX);
    file_read(path, &lines, NULL);
    char *found = NULL;
    for (const char *at = lines.at; *at && !found; at += strcspn(at, "\n"), at += *at == '\n') {
        const char *value = strchr(at, separator);
        if (!value || strncmp(at, name, strlen(name)) != 0 || (size_t)(value - at) > strcspn(at, "\n"))
            continue;
        value += 1 + strspn(value + 1, " \t\"");
        found = string_format("%.*s", (int)strcspn(value, "\"\n"), value);
    }
    text_release(&lines);
    return found;
}

static struct json *take_string(char *text)
{
    struct json *value = js_string(text);
    free(text);
    return value;
}

// Cores this process may use, which a job's cgroup or taskset may have made fewer than the machine has.
static int64_t usable_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : sysconf(_SC_NPROCESSORS_ONLN);
}

struct json *machine_describe(void)
{
    struct utsname names;
    struct json *machine = js_object();
    if (uname(&names) == 0) {
        js_set(machine, "hostname", js_string(names.nodename));
        js_set(machine, "kernel", take_string(string_format("%s %s %s", names.sysname, names.release, names.machine)));
    }
    js_set(machine, "system", take_string(value_in("/etc/os-release", "PRETTY_NAME", '=')));
    js_set(machine, "cpu", take_string(value_in("/proc/cpuinfo", "model name", ':')));
    js_set(machine, "cores", js_integer(usable_cores()));
    js_set(machine, "memory_bytes", js_integer((int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE)));
    return machine;
}
