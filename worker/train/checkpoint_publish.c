// From files to a checkpoint: the temporary directory, the rename into place, the mark that completes it, and the removal of older ones.
// Rank 0 only; fenced by newer attempts at each step that others can see.
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/checkpoint_image.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int write_json(const char *directory, const char *name, const struct json *json, struct written *written, struct error *err)
{
    struct text text;
    text_init(&text, 1 << 28);
    js_write_pretty(&text, json);
    char *path = path_join(directory, name);
    int status = file_write_atomic(path, text.at, text.length, 0644, err);
    if (written) {
        snprintf(written->name, sizeof written->name, "%s", name);
        written->bytes = (int64_t)text.length;
        hash_bytes(written->hex, text.at, text.length);
    }
    free(path);
    text_release(&text);
    return status;
}

static struct json *complete_json(const struct image *image, const struct written *all, size_t count, int64_t *bytes)
{
    struct json *files = js_array(), *complete = js_object();
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].name[0])
            continue;
        struct json *item = js_object();
        js_set(item, "name", js_string(all[i].name));
        js_set(item, "bytes", js_integer(all[i].bytes));
        js_set(item, "sha256", js_string(all[i].hex));
        js_append(files, item);
        *bytes += all[i].bytes;
    }
    js_set(complete, "v", js_integer(1));
    js_set(complete, "step", js_integer(image->step));
    js_set(complete, "files", files);
    return complete;
}

static int check_fence(const struct job *job, struct error *err)
{
    if (!job_is_fenced(job))
        return 0;
    return error_set(err, "attempt %lld is fenced: attempt %lld exists and is the run's only writer", (long long)job->attempt,
        (long long)run_last_attempt(job->run_directory));
}

static int sync_directory(const char *path, struct error *err)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = descriptor < 0 || fsync(descriptor) != 0 ? error_errno(err, "%s", path) : 0;
    if (descriptor >= 0)
        close(descriptor);
    return status;
}

// The mark goes first: a directory half removed is no checkpoint.
static void remove_checkpoint(const char *directory)
{
    struct stat info;
    if (lstat(directory, &info) == 0 && S_ISLNK(info.st_mode)) { // somebody keeps it elsewhere: it is theirs
        unlink(directory);
        return;
    }
    char *mark = path_join(directory, COMPLETE_FILE);
    unlink(mark);
    directory_remove(directory, NULL);
    free(mark);
}

// step-0000120.tmp, step-0000120.2.tmp: what an attempt was writing.
static bool is_temporary(const char *behind_number)
{
    size_t length = strlen(behind_number);
    return length >= 4 && strcmp(behind_number + length - 4, ".tmp") == 0;
}

enum { LISTED_MAX = 4096 };

// Lists the steps of complete checkpoints, and removes what killed attempts left half-written.
static size_t list_steps(const char *parent, int64_t steps[LISTED_MAX])
{
    DIR *listing = opendir(parent);
    size_t count = 0;
    for (struct dirent *entry; listing && (entry = readdir(listing)) && count < LISTED_MAX;) {
        char *directory = path_join(parent, entry->d_name), *mark = path_join(directory, COMPLETE_FILE), *end = NULL;
        int64_t step = run_checkpoint_step(entry->d_name);
        bool ours = strncmp(entry->d_name, "step-", 5) == 0 && isdigit((unsigned char)entry->d_name[5]);
        if (ours)
            strtoll(entry->d_name + 5, &end, 10);
        if (step >= 0 && file_exists(mark))
            steps[count++] = step;
        else if (step >= 0 || (ours && is_temporary(end)))
            remove_checkpoint(directory);
        free(mark);
        free(directory);
    }
    if (listing)
        closedir(listing);
    return count;
}

static int compare_steps(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void image_remove_old(const struct image *image)
{
    const char *run_directory = image->job->run_directory;
    int64_t steps[LISTED_MAX], keep = image->job->spec.checkpoint.keep;
    if (image->diverged)
        return;
    char *parent = path_join(run_directory, "checkpoints");
    size_t count = list_steps(parent, steps);
    free(parent);
    qsort(steps, count, sizeof *steps, compare_steps);
    for (size_t i = 0; keep > 0 && i + (size_t)keep < count; i++) {
        char *directory = run_checkpoint_directory(run_directory, steps[i]);
        remove_checkpoint(directory);
        free(directory);
    }
}

int image_prepare(const struct image *image, struct error *err)
{
    const char *run_directory = image->job->run_directory;
    if (!file_exists(run_directory)) // not made anew: nobody would look there
        return error_set(err, "%s is not there any more (removed, renamed, or its disk is away)", run_directory);
    if (check_fence(image->job, err) != 0 || directory_remove(image->temporary, err) != 0)
        return -1;
    return directory_make(image->temporary, err);
}

// What makes it a checkpoint. A directory of that step that is there already is no complete one: saver_begin has looked.
static int put_in_place(const struct image *image, const struct json *complete, struct error *err)
{
    if (sync_directory(image->temporary, err) != 0 || check_fence(image->job, err) != 0 || directory_remove(image->final, err) != 0)
        return -1;
    if (rename(image->temporary, image->final) != 0)
        return error_errno(err, "%s", image->final);
    char *parent = path_join(image->job->run_directory, "checkpoints");
    int status = sync_directory(parent, err);
    free(parent);
    if (status != 0 || check_fence(image->job, err) != 0)
        return -1;
    return write_json(image->final, COMPLETE_FILE, complete, NULL, err);
}

int image_publish(const struct image *image, const struct written *all, size_t count, int64_t *bytes, struct error *err)
{
    struct written *files = allocate(count + 2, sizeof *files);
    memcpy(files, all, count * sizeof *files);
    int status = write_json(image->temporary, "trainer.json", image->trainer, &files[count], err);
    if (status == 0 && image->index)
        status = write_json(image->temporary, "model.safetensors.index.json", image->index, &files[count + 1], err);
    struct json *complete = complete_json(image, files, count + 2, bytes);
    if (status == 0)
        status = put_in_place(image, complete, err);
    js_free(complete);
    free(files);
    if (status == 0)
        image_remove_old(image);
    return status;
}
