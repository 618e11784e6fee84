// Where things lie in a run directory, and which attempt or checkpoint is the newest.
#include "schema/record/layout.h"
#include "schema/base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

char *run_attempt_directory(const char *run_directory, int64_t attempt)
{
    return string_format("%s/attempt-%lld", run_directory, (long long)attempt);
}

char *run_attempt_file(const char *run_directory, int64_t attempt, const char *name)
{
    return string_format("%s/attempt-%lld/%s", run_directory, (long long)attempt, name);
}

char *run_checkpoint_directory(const char *run_directory, int64_t step)
{
    return string_format("%s/checkpoints/step-%07lld", run_directory, (long long)step);
}

// The number in "<prefix><digits>"; -1 if the name is not of that form.
static int64_t number_after(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0 || !isdigit((unsigned char)name[length]) || strlen(name + length) > 18)
        return -1;
    char *end;
    long long number = strtoll(name + length, &end, 10);
    return *end ? -1 : (int64_t)number;
}

// The highest number below `below` among the names "<prefix><digits>" in a directory for which `whole` says yes; `none` if there is none.
static int64_t highest(const char *directory, const char *prefix, int64_t below, bool (*whole)(const char *path), int64_t none)
{
    DIR *listing = opendir(directory);
    if (!listing)
        return none;
    int64_t best = none;
    for (struct dirent *entry; (entry = readdir(listing));) {
        int64_t number = number_after(entry->d_name, prefix);
        if (number <= best || number >= below)
            continue;
        char *path = path_join(directory, entry->d_name);
        if (whole(path))
            best = number;
        free(path);
    }
    closedir(listing);
    return best;
}

static bool is_directory(const char *path)
{
    DIR *listing = opendir(path);
    if (listing)
        closedir(listing);
    return listing != NULL;
}

static bool is_complete(const char *path)
{
    char *mark = path_join(path, COMPLETE_FILE);
    bool there = file_exists(mark);
    free(mark);
    return there;
}

int64_t run_last_attempt(const char *run_directory)
{
    return highest(run_directory, "attempt-", INT64_MAX, is_directory, 0);
}

int64_t run_last_checkpoint(const char *run_directory)
{
    return run_last_checkpoint_before(run_directory, INT64_MAX);
}

int64_t run_last_checkpoint_before(const char *run_directory, int64_t step)
{
    char *directory = path_join(run_directory, "checkpoints");
    int64_t found = highest(directory, "step-", step, is_complete, -1);
    free(directory);
    return found;
}
