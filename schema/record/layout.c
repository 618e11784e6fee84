// Where things lie in a run directory, and which attempt or checkpoint is the newest.
#include "schema/record/layout.h"
#include "schema/base/file.h"

#include <ctype.h>
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
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

static int64_t attempt_number(const char *name)
{
    return number_after(name, "attempt-");
}

int64_t run_checkpoint_step(const char *name)
{
    char ours[32];
    int64_t step = number_after(name, "step-");
    snprintf(ours, sizeof ours, "step-%07lld", (long long)step);
    return step >= 0 && strcmp(name, ours) == 0 ? step : -1; // step-12 would be looked for as step-0000012
}

// The highest number below `below` among a directory's names that have one and for which `whole` says yes; `none` if there is none.
static int64_t highest(const char *directory, int64_t (*number_of)(const char *name), int64_t below, bool (*whole)(const char *path), int64_t none)
{
    DIR *listing = opendir(directory);
    if (!listing)
        return none;
    int64_t best = none;
    for (struct dirent *entry; (entry = readdir(listing));) {
        int64_t number = number_of(entry->d_name);
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
    return highest(run_directory, attempt_number, INT64_MAX, is_directory, 0);
}

int64_t run_last_checkpoint(const char *run_directory)
{
    return run_last_checkpoint_before(run_directory, INT64_MAX);
}

bool run_has_checkpoint(const char *run_directory, int64_t step)
{
    char *directory = run_checkpoint_directory(run_directory, step);
    bool there = is_complete(directory);
    free(directory);
    return there;
}

int64_t run_last_checkpoint_before(const char *run_directory, int64_t step)
{
    char *directory = path_join(run_directory, "checkpoints");
    int64_t found = highest(directory, run_checkpoint_step, step, is_complete, -1);
    free(directory);
    return found;
}
