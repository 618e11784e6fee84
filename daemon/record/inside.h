// Shared by the files of this room, and by them only.
#pragma once
#include "daemon/record/provenance.h"

// ---- command.c: another program, by argv ----

struct command {
    const char *const *argv; // argv[0] is looked up on PATH; ends with NULL
    int deadline_ms;
    struct text *out;        // its stdout; what exceeds the limit is read and dropped (overflowed says so)
    struct text complaint;   // its stderr, the beginning; made by child_run, released by the caller
    int code;                // exit code; 128 + N after signal N
};
// 0 when the program ran to its end; -1 when it could not be started or was killed at the deadline. Nothing of git's environment reaches it.
int child_run(struct command *command, struct error *err);

// ---- code.c, digest.c, machine.c ----

// The repository that holds path: the object of provenance.h, or null with *reason (free()) set. NULL: err. patch gets diff.patch's text.
struct json *code_collect(const char *path, const char *commit, struct text *patch, char **reason, struct error *err);
char *url_without_userinfo(const char *text); // free()

struct digests;
struct digests *digests_open(const char *path); // NULL path: an empty memory
void digests_close(struct digests *digests);
// {path, size, sha256}; NULL: err.
struct json *digest_of_file(struct digests *digests, const char *path, struct error *err);

struct json *machine_describe(void);
