#include "daemon/exec/slurm/array.h"
#include "daemon/exec/slurm/options.h"
#include "daemon/exec/slurm/slurm.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER ".arrays"
#define ELEMENTS_FILE "elements"
enum { ELEMENTS_BYTES_MAX = 1 << 20, ID = 32, SWEPT_MAX = 20 };
#define READ_AGAIN 5.0        // seconds until a list that could not be read is tried again
#define LEFT_BEHIND 86400.0   // seconds after which an array that nobody lists is looked at

// ---- how many ----

// Indices of elements are below Slurm's own limit (MaxArraySize).
size_t array_most(int64_t max_array_size)
{
    enum { SLURMS_OWN = 1001 };
    int64_t most = max_array_size > 0 ? max_array_size : SLURMS_OWN;
    return (size_t)(most < ARRAY_MAX ? most : ARRAY_MAX);
}

size_t array_take(size_t waiting, size_t most)
{
    return waiting < most ? waiting : most;
}

// ---- what runs share ----

// "/s/runs/p/a-1" → "/s/runs/p" and "a-1". False where there is no folder around it, or a list cannot hold its name.
static bool split(const char *run_directory, size_t *folder, const char **name)
{
    const char *slash = strrchr(run_directory, '/');
    if (!slash || slash == run_directory || !slash[1] || run_directory[0] != '/' || strchr(run_directory, '\n'))
        return false;
    *folder = (size_t)(slash - run_directory);
    *name = slash + 1;
    return true;
}

static void add_words(struct hash *hash, const struct word_list *words, const char *run_directory)
{
    for (size_t i = 0; i < words->count; i++) {
        bool stands_for_run = run_directory && strcmp(words->at[i], run_directory) == 0;
        hash_add(hash, stands_for_run ? "r" : "w", 1);
        if (!stands_for_run)
            hash_add(hash, words->at[i], strlen(words->at[i]) + 1);
    }
    hash_add(hash, "e", 1);
}

bool array_key(char key[HASH_HEX], const char *run_directory, const struct word_list *argv, const struct word_list *options,
    const struct word_list *environment, const struct word_list *modules)
{
    size_t folder;
    const char *name;
    struct word_list shared = {0};
    if (!run_directory || !split(run_directory, &folder, &name))
        return false;
    slurm_options_shared(&shared, (const char *const *)options->at);
    struct hash *hash = hash_new();
    hash_add(hash, run_directory, folder + 1);
    add_words(hash, argv, run_directory);
    add_words(hash, &shared, NULL);
    add_words(hash, environment, NULL);
    add_words(hash, modules, NULL);
    hash_end(hash, key);
    word_list_release(&shared);
    return true;
}

void array_argv(struct word_list *shared, const struct word_list *argv, const char *run_directory, const struct array *array)
{
    for (size_t i = 0; i < argv->count; i++)
        word_list_add(shared, strcmp(argv->at[i], run_directory) == 0 ? array->directory : argv->at[i]);
}

// The run's job is called by what is before its directory's name there, say its project, and that name.
char *array_job_name(const struct array *array, const char *job_name, const char *run_directory)
{
    size_t folder;
    const char *name;
    if (!split(run_directory, &folder, &name) || array->count == 0)
        return NULL;
    size_t whole = strlen(job_name), own = strlen(name);
    if (whole < own || strcmp(job_name + whole - own, name) != 0)
        return NULL;
    return string_format("%.*s%s+%zu", (int)(whole - own), job_name, array->elements[0].name, array->count - 1);
}

// ---- on disk ----

static void array_free(struct array *array)
{
    for (size_t i = 0; array->elements && i < array->count; i++)
        free(array->elements[i].name);
    free(array->elements);
    free(array->directory);
    free(array);
}

static int write_list(const struct array *array, struct error *err)
{
    struct text bytes;
    text_init(&bytes, ELEMENTS_BYTES_MAX);
    for (size_t i = 0; i < array->count; i++)
        text_addf(&bytes, "%s %" PRId64 " %s\n", array->elements[i].tag, array->elements[i].submission, array->elements[i].name);
    char *path = path_join(array->directory, ELEMENTS_FILE);
    int status = bytes.overflowed ? error_set(err, "%s would be too long", path) : file_write_atomic(path, bytes.at, bytes.length, 0644, err);
    free(path);
    text_release(&bytes);
    return status;
}

static int write_links(const struct array *array, struct error *err)
{
    int status = directory_make(array->directory, err);
    for (size_t i = 0; i < array->count && status == 0; i++) {
        char *path = string_format("%s/%zu", array->directory, i), *target = string_format("../../%s", array->elements[i].name);
        if (symlink(target, path) != 0)
            status = error_errno(err, "cannot make %s", path);
        free(target);
        free(path);
    }
    return status;
}

struct array *array_make(struct array **arrays, char *const *run_directories, const struct element *elements, size_t count, double now, struct error *err)
{
    size_t folder;
    const char *name;
    struct array *array = allocate(1, sizeof *array);
    *array = (struct array){.count = count, .made = true, .used = now, .read_again = INFINITY};
    array->elements = allocate(count, sizeof *array->elements);
    random_hex(array->id, ID);
    split(run_directories[0], &folder, &name);
    array->directory = string_format("%.*s/" FOLDER "/%s", (int)folder, run_directories[0], array->id);
    for (size_t i = 0; i < count; i++) {
        split(run_directories[i], &folder, &name);
        array->elements[i] = elements[i];
        array->elements[i].name = string_copy(name);
    }
    // The list last: where it is, the links are.
    if (write_links(array, err) == 0 && write_list(array, err) == 0) {
        array->next = *arrays;
        *arrays = array;
        return array;
    }
    directory_remove(array->directory, NULL);
    array_free(array);
    return NULL;
}

// One line; *end: where the next one begins. False: it is none.
static bool read_element(struct element *element, char *line, char **end)
{
    char *stop = strchr(line, '\n'), *rest;
    if (!stop || strspn(line, "0123456789abcdef") != ID || line[ID] != ' ')
        return false;
    *stop = 0;
    *end = stop + 1;
    memcpy(element->tag, line, ID);
    element->tag[ID] = 0;
    element->submission = strtoll(line + ID + 1, &rest, 10);
    if (element->submission <= 0 || element->submission > SUBMISSION_MAX || *rest != ' ' || !rest[1] || strchr(rest + 1, '/') || strcmp(rest + 1, ".") == 0 || strcmp(rest + 1, "..") == 0)
        return false;
    element->name = string_copy(rest + 1);
    return true;
}

// 0; 1 where there is no such list; -1 where it cannot be read now, or is none.
static int read_list(struct array *array)
{
    char *path = path_join(array->directory, ELEMENTS_FILE);
    struct text bytes;
    struct stat status;
    text_init(&bytes, ELEMENTS_BYTES_MAX);
    int found = stat(path, &status) != 0 ? (errno == ENOENT || errno == ENOTDIR ? 1 : -1) : file_read(path, &bytes, NULL);
    array->elements = found == 0 ? allocate(ARRAY_MAX, sizeof *array->elements) : NULL;
    array->count = 0;
    for (char *at = bytes.at; found == 0 && *at;) {
        if (array->count < ARRAY_MAX && read_element(&array->elements[array->count], at, &at))
            array->count++;
        else
            found = -1;
    }
    for (size_t i = 0; found != 0 && i < array->count; i++)
        free(array->elements[i].name);
    if (found != 0) {
        free(array->elements);
        array->elements = NULL;
        array->count = 0;
    }
    text_release(&bytes);
    free(path);
    return found;
}

// ---- whose a row is ----

static struct array *array_find(struct array *arrays, const char *id)
{
    for (; arrays; arrays = arrays->next)
        if (strcmp(arrays->id, id) == 0)
            return arrays;
    return NULL;
}

// "…/.arrays/ID": the array that a job of this working directory is of. NULL: none.
static const char *array_of_directory(const char *directory)
{
    const char *id = directory ? strrchr(directory, '/') : NULL;
    size_t before = strlen("/" FOLDER);
    if (!id || (size_t)(id - directory) <= before || strncmp(id - before, "/" FOLDER, before) != 0)
        return NULL;
    return strlen(id + 1) == ID && strspn(id + 1, "0123456789abcdef") == ID ? id + 1 : NULL;
}

static struct array *array_known(struct array **arrays, const struct row *row, double now)
{
    struct array *array = array_find(*arrays, row->array);
    if (!array) {
        const char *id = array_of_directory(row->directory);
        array = allocate(1, sizeof *array);
        memcpy(array->id, row->array, sizeof array->id);
        array->directory = string_copy(id && strcmp(id, row->array) == 0 ? row->directory : NULL);
        array->read_again = array->directory ? 0 : INFINITY;
        array->next = *arrays;
        *arrays = array;
    }
    if (!array->elements && now >= array->read_again)
        array->read_again = read_list(array) < 0 ? now + READ_AGAIN : INFINITY;
    array->used = now;
    return array;
}

static void complete(struct row *row, const struct array *array)
{
    const struct element *element = &array->elements[row->element];
    size_t folder = strlen(array->directory) - strlen("/" FOLDER "/") - ID;
    memcpy(row->tag, element->tag, sizeof row->tag);
    row->submission = element->submission;
    free(row->directory);
    row->directory = string_format("%.*s/%s", (int)folder, array->directory, element->name);
}

bool arrays_complete(struct array **arrays, struct rows *rows, double now)
{
    bool whole = true;
    for (size_t i = 0; i < rows->count; i++) {
        struct row *row = &rows->at[i];
        const char *id = row->array[0] || row->tag[0] ? NULL : array_of_directory(row->directory);
        if (id && row->element >= 0) // accounting that keeps no comments
            memcpy(row->array, id, sizeof row->array);
        if (!row->array[0] || row->tag[0] || row->element < 0)
            continue;
        const struct array *array = array_known(arrays, row, now);
        if (array->elements && row->element < (int64_t)array->count)
            complete(row, array);
        else
            whole &= array->elements != NULL || array->read_again == INFINITY;
    }
    return whole;
}

// The one of this name in the folder of arrays, read if it has not been yet.
static struct array *array_there(struct array **arrays, const char *own, const char *id, double now)
{
    struct row row = {.directory = path_join(own, id)};
    snprintf(row.array, sizeof row.array, "%.*s", (int)sizeof row.array - 1, id);
    struct array *array = array_known(arrays, &row, now);
    free(row.directory);
    return array;
}

static bool holds(const struct array *array, const char *tag, int64_t submission)
{
    for (size_t i = 0; array->elements && i < array->count; i++)
        if (array->elements[i].submission == submission && strcmp(array->elements[i].tag, tag) == 0)
            return true;
    return false;
}

bool array_has(struct array **arrays, const struct row *row, const char *tag, int64_t submission, double now)
{
    return row->array[0] && row->directory && holds(array_known(arrays, row, now), tag, submission);
}

const struct array *array_of_run(struct array **arrays, const char *run_directory, const char *tag, int64_t submission, double since, double now)
{
    size_t folder;
    const char *name;
    if (!split(run_directory, &folder, &name))
        return NULL;
    char *own = string_format("%.*s/" FOLDER, (int)folder, run_directory);
    DIR *listing = opendir(own);
    const struct array *found = NULL;
    for (const struct dirent *entry; listing && !found && (entry = readdir(listing));) {
        struct stat status;
        char *path = path_join(own, entry->d_name);
        bool one = strlen(entry->d_name) == ID && strspn(entry->d_name, "0123456789abcdef") == ID;
        if (one && stat(path, &status) == 0 && (double)status.st_mtime >= since - 1) { // whole seconds, on some disks
            const struct array *array = array_there(arrays, own, entry->d_name, now);
            found = holds(array, tag, submission) ? array : NULL;
        }
        free(path);
    }
    if (listing)
        closedir(listing);
    free(own);
    return found;
}

// ---- their end ----

void arrays_forget(struct array **arrays, double now, double seconds)
{
    for (struct array **at = arrays; *at;) {
        struct array *array = *at;
        if (now - array->used < seconds) {
            at = &array->next;
            continue;
        }
        *at = array->next;
        if (array->made)
            directory_remove(array->directory, NULL);
        array_free(array);
    }
}

void arrays_free(struct array **arrays)
{
    while (*arrays) {
        struct array *next = (*arrays)->next;
        array_free(*arrays);
        *arrays = next;
    }
}

static bool element_is_over(const char *folder, const struct element *element)
{
    char *run = string_format("%s/%s", folder, element->name), *path = path_join(run, SUBMISSION_FILE);
    struct text bytes;
    text_init(&bytes, 64);
    int64_t attempt = run_last_attempt(run);
    char *end = attempt > 0 ? run_attempt_file(run, attempt, EXIT_FILE) : NULL;
    bool read = file_read(path, &bytes, NULL) == 0;
    bool over = !file_exists(run) || (read && strtoll(bytes.at, NULL, 10) > element->submission) || (end && file_exists(end));
    text_release(&bytes);
    free(end);
    free(path);
    free(run);
    return over;
}

static void remove_if_over(const char *folder, const char *directory)
{
    struct array array = {.directory = (char *)(uintptr_t)directory};
    int found = read_list(&array);
    bool over = found >= 0;
    for (size_t i = 0; i < array.count && over; i++)
        over = element_is_over(folder, &array.elements[i]);
    if (over)
        directory_remove(directory, NULL);
    for (size_t i = 0; i < array.count; i++)
        free(array.elements[i].name);
    free(array.elements);
}

void arrays_sweep(const struct array *arrays, const struct array *beside)
{
    char *own = path_absolute("..", beside->directory), *folder = path_absolute("..", own);
    DIR *listing = opendir(own);
    int looked = 0;
    for (const struct dirent *entry; listing && looked < SWEPT_MAX && (entry = readdir(listing));) {
        struct stat status;
        char *path = path_join(own, entry->d_name);
        bool old = strlen(entry->d_name) == ID && lstat(path, &status) == 0 && S_ISDIR(status.st_mode) &&
                   clock_wall() - (double)status.st_mtime > LEFT_BEHIND;
        if (old && !array_find((struct array *)(uintptr_t)arrays, entry->d_name)) {
            remove_if_over(folder, path);
            looked++;
        }
        free(path);
    }
    if (listing)
        closedir(listing);
    free(folder);
    free(own);
}
