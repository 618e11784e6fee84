// The database's file under a daemon that has it open: removed, or parted from its log, it is written anew from what the daemon still holds;
// replaced by another one, nothing can be done but to say so.
#include "daemon/store/state_inside.h"
#include "schema/base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A log left beside a file of another's would be read into it: ours goes before the new file comes.
static void put_in_place(struct state *state, const char *saved)
{
    struct error err = {0};
    static const char *const sidecars[] = {"-wal", "-shm"};
    sql_close(state->sql);
    state->sql = NULL;
    for (size_t i = 0; i < 2; i++) {
        char *path = string_format("%s%s", state->path, sidecars[i]);
        unlink(path);
        free(path);
    }
    if (rename(saved, state->path) != 0)
        error_errno(&err, "%s", state->path);
    else if (state_connect(state, &err) == 0)
        return;
    // Nothing can be stored or looked up any more. The jobs go on, and what is saved is beside its place or in it.
    fprintf(stderr, "switchyard: %s\n", err.text);
    abort();
}

int state_keep_file(struct state *state, struct error *err)
{
    struct stat info;
    if (state->in_batch)
        return 0;
    bool there = stat(state->path, &info) == 0;
    if (there && (info.st_dev != state->device || info.st_ino != state->inode))
        return error_set(err, "%s was replaced by another file while the daemon had it open", state->path);
    if (there ? sql_sidecars_in_place(state->sql) : errno != ENOENT)
        return 0; // looked at again
    char *saved = string_format("%s.saved", state->path);
    unlink(saved);
    int status = state_make_private(saved, err);
    if (status == 0)
        status = sql_do(state->sql, err, "VACUUM INTO ?", "t", saved);
    if (status == 0)
        put_in_place(state, saved);
    free(saved);
    return status == 0 ? 1 : error_context(err, "%s%s was removed while the daemon had it open, and cannot be written anew", state->path,
                                 there ? "'s log" : "");
}
