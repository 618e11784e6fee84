// What the world may do to a program, done to it by LD_PRELOAD: nothing of this is in the product. Each fault has a variable of its own, and
// does nothing where it is not set.
//   FAULT_FINALIZE_SECONDS=N   MPI_Finalize takes N seconds: the worker has said its last word, and its processes are still there
//   FAULT_RENAME_FLAGS=1       renameat2 with flags fails as it does on NFS
//   FAULT_KILLED_AFTER=ENDING  the first attempt of a run is killed once it has put a file in its place whose path ends so
//   FAULT_WRITE_MICROSECONDS=N each fwrite takes N microseconds longer: what writes a file can be caught at it
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int MPI_Finalize(void);
int renameat2(int old_directory, const char *old, int new_directory, const char *new, unsigned flags);

// A function's address and an object's differ in kind for C alone.
#define NEXT(pointer, name) (*(void **)(void *)&(pointer) = dlsym(RTLD_NEXT, name))

int MPI_Finalize(void)
{
    int (*next)(void);
    const char *seconds = getenv("FAULT_FINALIZE_SECONDS");
    for (unsigned left = seconds ? (unsigned)atoi(seconds) : 0; left > 0;)
        left = sleep(left);
    NEXT(next, "MPI_Finalize");
    return next();
}

int renameat2(int old_directory, const char *old, int new_directory, const char *new, unsigned flags)
{
    int (*next)(int, const char *, int, const char *, unsigned);
    if (flags && getenv("FAULT_RENAME_FLAGS")) {
        errno = EINVAL;
        return -1;
    }
    NEXT(next, "renameat2");
    return next(old_directory, old, new_directory, new, flags);
}

int rename(const char *old, const char *new)
{
    int (*next)(const char *, const char *);
    const char *ending = getenv("FAULT_KILLED_AFTER"), *attempt = getenv("SWITCHYARD_ATTEMPT");
    NEXT(next, "rename");
    int status = next(old, new);
    size_t length = strlen(new);
    if (ending && attempt && strcmp(attempt, "1") == 0 && length >= strlen(ending) && strcmp(new + length - strlen(ending), ending) == 0)
        raise(SIGKILL);
    return status;
}

size_t fwrite(const void *bytes, size_t size, size_t count, FILE *file)
{
    size_t (*next)(const void *, size_t, size_t, FILE *);
    const char *wait = getenv("FAULT_WRITE_MICROSECONDS");
    if (wait)
        usleep((useconds_t)atoi(wait));
    NEXT(next, "fwrite");
    return next(bytes, size, count, file);
}
