// The last words of a job, for the sentence that says why it failed.
#include "daemon/core/core.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAIL_BYTES = 16384, LINES_KEPT = 4, WORDS_MAX = 600 };
#define BETWEEN " | "

// The end of a file; never follows a symbolic link in its last part. NULL if there is none.
static char *read_tail(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    off_t size = lseek(fd, 0, SEEK_END);
    char *tail = allocate(TAIL_BYTES + 1, 1);
    ssize_t got = pread(fd, tail, TAIL_BYTES, size > TAIL_BYTES ? size - TAIL_BYTES : 0);
    close(fd);
    tail[got > 0 ? got : 0] = 0;
    for (char *at = tail; at < tail + (got > 0 ? got : 0); at++)
        if ((unsigned char)*at < 0x20 && *at != '\n')
            *at = ' ';
    return tail;
}

// Slurm tells how each rank ended: once one has, it ends the others, which says nothing of why.
static bool is_aftermath(const char *line, bool *told)
{
    static const char *const words[] = {"*** STEP ", "mpi/pmix", "Job step aborted", "Terminating StepId", "Force Terminated StepId"};
    static const char srun[] = "srun: ", error[] = "srun: error: ", stepd[] = "slurmstepd";
    bool before = *told;
    if (strncmp(line, error, strlen(error)) == 0 && strstr(line, ": task")) {
        *told = true;
        return before;
    }
    bool slurms = strncmp(line, srun, strlen(srun)) == 0 || strncmp(line, stepd, strlen(stepd)) == 0;
    for (size_t i = 0; before && slurms && i < sizeof words / sizeof *words; i++)
        if (strstr(line, words[i]))
            return true;
    return false;
}

// The worker's line after some steps (journal.c): the last one says where it was, those before it nothing.
static bool is_progress(const char *line)
{
    return strncmp(line, "step ", 5) == 0 && line[5] >= '0' && line[5] <= '9' && strstr(line, "  loss ");
}

// mpirun frames what it says itself by lines of dashes.
static size_t pick_lines(char *tail, char *kept[LINES_KEPT])
{
    size_t count = 0;
    bool inside_banner = false, told = false;
    char *rest = NULL;
    for (char *line = strtok_r(tail, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "----------", 10) == 0) {
            inside_banner = !inside_banner;
            continue;
        }
        if (inside_banner || strspn(line, " ") == strlen(line) || is_aftermath(line, &told))
            continue;
        if (count > 0 && is_progress(line) && is_progress(kept[count - 1]))
            count--;
        if (count == LINES_KEPT) {
            memmove(kept, kept + 1, (LINES_KEPT - 1) * sizeof *kept);
            count--;
        }
        kept[count++] = line;
    }
    return count;
}

// As many of the last lines as there is room for: what counts is said last.
static char *words_of(const char *path)
{
    char *tail = read_tail(path);
    if (!tail)
        return NULL;
    char *kept[LINES_KEPT];
    bool cut = tail[0] && tail[strlen(tail) - 1] != '\n';
    size_t count = pick_lines(tail, kept);
    size_t from = count, length = 0;
    while (from > 0 && (from == count || length + strlen(kept[from - 1]) + strlen(BETWEEN) <= WORDS_MAX))
        length += strlen(kept[--from]) + strlen(BETWEEN);
    struct text words;
    text_init(&words, WORDS_MAX + 64);
    for (size_t i = from; i < count; i++)
        text_addf(&words, "%s%s", i > from ? BETWEEN : "", kept[i]);
    if (cut && count)
        text_addf(&words, "… (cut off there: was its disk full?)");
    free(tail);
    if (words.length)
        return text_take(&words);
    text_release(&words);
    return NULL;
}

char *last_words(const char *run_directory, int64_t attempt)
{
    char *path = run_attempt_file(run_directory, attempt, "stderr.log");
    char *words = words_of(path);
    free(path);
    if (words)
        return words;
    path = path_join(run_directory, "submit.log");
    words = words_of(path);
    free(path);
    return words;
}
