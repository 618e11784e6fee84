#include "daemon/cli/home.h"
#include "schema/base/file.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *home_directory(void)
{
    const char *home = getenv("SWITCHYARD_HOME"), *state = getenv("XDG_STATE_HOME"), *person = getenv("HOME");
    if (home && *home)
        return path_absolute(home, NULL);
    if (state && *state == '/')
        return path_join(state, "switchyard");
    const struct passwd *user = person && *person ? NULL : getpwuid(geteuid());
    return path_join(person && *person ? person : user ? user->pw_dir : "/", ".local/state/switchyard");
}

char *program_path(void)
{
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return string_copy(path);
}

char *worker_path(struct error *err)
{
    char *path = program_path(), *slash = strrchr(path, '/');
    char *beside = string_format("%.*s/switchyard-worker", slash ? (int)(slash - path) : 0, path);
    free(path);
    if (access(beside, X_OK) == 0)
        return beside;
    char *folders = string_copy(getenv("PATH") ? getenv("PATH") : ""), *rest = NULL, *found = NULL;
    for (char *folder = strtok_r(folders, ":", &rest); folder && !found; folder = strtok_r(NULL, ":", &rest)) {
        char *candidate = path_join(folder, "switchyard-worker");
        if (folder[0] == '/' && access(candidate, X_OK) == 0)
            found = candidate;
        else
            free(candidate);
    }
    free(folders);
    if (!found)
        error_set(err, "switchyard-worker is neither beside this program (%s) nor on PATH", beside);
    free(beside);
    return found;
}
