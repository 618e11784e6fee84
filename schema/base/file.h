// Files as both programs need them: whole reads with a limit, atomic replacement, directories, and what kind of file system it is.
#pragma once
#include "schema/base/error.h"
#include "schema/base/text.h"
#include <stdbool.h>
#include <stdint.h>

// Opens a regular file for reading (or one of /proc). Anything else is an error, never a wait: opening or reading a FIFO, a terminal or a
// socket may block for ever, and whoever can write into a directory can put one there.
int file_open(const char *path, struct error *err);

// Appends the whole file to out; more than out->limit bytes is an error. Regular files only, as file_open.
int file_read(const char *path, struct text *out, struct error *err);
// The same for what a person names on a command line: a pipe or a terminal is waited for.
int file_read_any(const char *path, struct text *out, struct error *err);

// Replaces path by these bytes: temporary file beside it, fsync, rename, fsync of the directory. A crash leaves the old or the new file.
int file_write_atomic(const char *path, const void *bytes, size_t count, unsigned mode, struct error *err);

// A new file in a directory that is not in its place yet: not waited for. Before the directory is renamed into place, directory_sync or
// file_system_sync makes it last.
int file_write_new(const char *path, const void *bytes, size_t count, unsigned mode, struct error *err);

// Waits until a directory and all beneath it are on the disk. directory_sync_entries: its own entries only, such as after a rename.
int directory_sync(const char *path, struct error *err);
int directory_sync_entries(const char *path, struct error *err);
// The same for everything that was written to the file system of path, by anybody: one wait for very many files.
int file_system_sync(const char *path, struct error *err);

// mkdir -p, mode 0777 less umask. A file in the way is an error that names it.
int directory_make(const char *path, struct error *err);

// Removes a directory and all beneath it, without following symbolic links. Absent is fine.
int directory_remove(const char *path, struct error *err);

bool file_exists(const char *path);
bool directory_has(const char *directory, const char *name); // whether a file of that name is in it
int64_t file_size(const char *path); // bytes; -1 if it is not a regular file

// Name of the network file system under path (or under its nearest existing parent), or NULL if it is a local one. The kinds are those
// for which Trackio leaves SQLite (nfs, lustre, gpfs, cephfs, beegfs, glusterfs, ocfs2, panfs, cifs, weka…).
const char *file_network_system(const char *path);

char *path_join(const char *directory, const char *name);                 // free(); an absolute name stays as it is
char *path_absolute(const char *path, const char *base_directory);        // free(); removes "." and "..", needs no file to exist
