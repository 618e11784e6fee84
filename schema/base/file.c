#include "schema/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_open(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return error_errno(err, "%s", path);
    struct stat info;
    int status = fstat(fd, &info) != 0 ? error_errno(err, "%s", path) : 0;
    if (status == 0 && !S_ISREG(info.st_mode))
        status = error_set(err, "%s: not a regular file", path);
    if (status == 0)
        return fd;
    close(fd);
    return -1;
}

// Reads to the end and closes.
static int read_all(int fd, const char *path, struct text *out, struct error *err)
{
    char block[65536];
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0 && !out->overflowed)
        text_add_bytes(out, block, (size_t)got);
    int status = 0;
    if (got < 0)
        status = error_errno(err, "%s", path);
    else if (out->overflowed)
        status = error_set(err, "%s: larger than %zu bytes", path, out->limit);
    close(fd);
    return status;
}

int file_read(const char *path, struct text *out, struct error *err)
{
    int fd = file_open(path, err);
    return fd < 0 ? -1 : read_all(fd, path, out, err);
}

int file_read_any(const char *path, struct text *out, struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? error_errno(err, "%s", path) : read_all(fd, path, out, err);
}

static int sync_directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *directory = slash ? string_format("%.*s", slash == path ? 1 : (int)(slash - path), path) : string_copy(".");
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(directory);
    if (fd < 0)
        return -1;
    int status = fsync(fd);
    close(fd);
    return status == 0 || errno == EINVAL ? 0 : -1;
}

static int write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t put = write(fd, bytes, count);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        bytes += put;
        count -= (size_t)put;
    }
    return 0;
}

int file_write_atomic(const char *path, const void *bytes, size_t count, unsigned mode, struct error *err)
{
    char *temporary = string_format("%s.tmp-XXXXXX", path);
    int status = -1;
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        error_errno(err, "%s", path);
        goto out;
    }
    if (write_all(fd, bytes, count) != 0 || fchmod(fd, mode) != 0 || fsync(fd) != 0 || rename(temporary, path) != 0) {
        error_errno(err, "%s", path);
        unlink(temporary);
        goto out;
    }
    if (sync_directory_of(path) != 0) {
        error_errno(err, "%s", path);
        goto out;
    }
    status = 0;
out:
    if (fd >= 0)
        close(fd);
    free(temporary);
    return status;
}

int file_write_new(const char *path, const void *bytes, size_t count, unsigned mode, struct error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_errno(err, "%s", path);
    int status = write_all(fd, bytes, count) == 0 && fchmod(fd, mode) == 0 ? 0 : error_errno(err, "%s", path);
    if (close(fd) != 0 && status == 0) // a quota of a network file system may be told here only
        status = error_errno(err, "%s", path);
    return status;
}

// Some file systems have nothing to wait for: EINVAL.
static int sync_path(const char *path, int (*sync)(int), struct error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return error_errno(err, "%s", path);
    int status = sync(fd) == 0 || errno == EINVAL ? 0 : error_errno(err, "%s", path);
    close(fd);
    return status;
}

static int sync_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)walk;
    return kind == FTW_F || kind == FTW_D || kind == FTW_DP ? sync_path(path, fsync, NULL) : 0;
}

int directory_sync(const char *path, struct error *err)
{
    return nftw(path, sync_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 ? 0 : error_errno(err, "%s", path);
}

int directory_sync_entries(const char *path, struct error *err)
{
    return sync_path(path, fsync, err);
}

int file_system_sync(const char *path, struct error *err)
{
    return sync_path(path, syncfs, err);
}

int directory_make(const char *path, struct error *err)
{
    char *partial = string_copy(path);
    int status = 0;
    for (char *at = partial + 1; status == 0; at++) {
        if (*at && *at != '/')
            continue;
        char ended = *at;
        *at = 0;
        struct stat info;
        if (mkdir(partial, 0777) != 0) {
            int fault = errno;
            if (fault != EEXIST)
                status = error_errno(err, "%s: cannot make this directory", partial);
            else if (stat(partial, &info) != 0 || !S_ISDIR(info.st_mode))
                status = error_set(err, "%s: not a directory", partial);
        }
        *at = ended;
        if (!ended)
            break;
    }
    free(partial);
    return status;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

int directory_remove(const char *path, struct error *err)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return error_errno(err, "%s", path);
    return 0;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool directory_has(const char *directory, const char *name)
{
    char *path = path_join(directory, name);
    bool there = file_exists(path);
    free(path);
    return there;
}

int64_t file_size(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : -1;
}

static bool is_under(const char *path, const char *mount)
{
    size_t length = strlen(mount);
    if (length == 1)
        return true;
    return strncmp(path, mount, length) == 0 && (path[length] == 0 || path[length] == '/');
}

const char *file_network_system(const char *path)
{
    static const char *const network[] = {"nfs", "lustre", "gpfs", "ceph", "beegfs", "fhgfs", "glusterfs", "ocfs2", "panfs", "cifs",
        "smbfs", "weka", "9p", NULL};
    char *real = NULL;
    char *absolute = path_absolute(path, NULL);
    while (!(real = realpath(absolute, NULL)) && strlen(absolute) > 1) {
        char *slash = strrchr(absolute, '/');
        slash[slash == absolute ? 1 : 0] = 0;
    }
    const char *found = NULL;
    size_t best = 0;
    FILE *mounts = real ? setmntent("/proc/mounts", "r") : NULL;
    struct mntent *mount;
    while (mounts && (mount = getmntent(mounts))) {
        if (!is_under(real, mount->mnt_dir) || strlen(mount->mnt_dir) < best)
            continue;
        best = strlen(mount->mnt_dir);
        found = NULL;
        for (size_t i = 0; network[i]; i++)
            if (strstr(mount->mnt_type, network[i]))
                found = network[i];
    }
    if (mounts)
        endmntent(mounts);
    free(real);
    free(absolute);
    return found;
}

char *path_join(const char *directory, const char *name)
{
    if (name[0] == '/')
        return string_copy(name);
    size_t length = strlen(directory);
    return string_format("%s%s%s", directory, length && directory[length - 1] == '/' ? "" : "/", name);
}

char *path_absolute(const char *path, const char *base_directory)
{
    char *here = base_directory || path[0] == '/' ? NULL : getcwd(NULL, 0);
    char *full = path_join(base_directory ? base_directory : here ? here : "/", path);
    free(here);
    char *clean = allocate(strlen(full) + 2, 1);
    size_t length = 0;
    for (char *save = NULL, *part = strtok_r(full, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        if (strcmp(part, ".") == 0)
            continue;
        if (strcmp(part, "..") == 0) {
            while (length && clean[--length] != '/')
                continue;
            clean[length] = 0;
            continue;
        }
        clean[length++] = '/';
        memcpy(clean + length, part, strlen(part));
        length += strlen(part);
        clean[length] = 0;
    }
    if (!length)
        strcpy(clean, "/");
    free(full);
    return clean;
}
