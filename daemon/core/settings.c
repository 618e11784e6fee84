#include "daemon/core/settings.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/text.h"

#include <stdlib.h>
#include <string.h>

static struct stat look(const char *path)
{
    struct stat now;
    if (stat(path, &now) != 0)
        memset(&now, 0, sizeof now);
    return now;
}

static bool same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

int settings_open(struct settings *settings, const char *home, struct error *err)
{
    *settings = (struct settings){.home = string_copy(home), .path = path_join(home, CONFIG_FILE), .gpus = -1, .read = clock_wall()};
    pthread_mutex_init(&settings->lock, NULL);
    settings->seen = settings->settled = look(settings->path);
    return config_load(&settings->config, home, err);
}

void settings_close(struct settings *settings)
{
    if (!settings->home)
        return;
    config_release(&settings->config);
    pthread_mutex_destroy(&settings->lock);
    free(settings->fault);
    free(settings->path);
    free(settings->home);
    *settings = (struct settings){0};
}

bool settings_have_changed(struct settings *settings)
{
    struct stat now = look(settings->path);
    bool still = same(&now, &settings->seen);
    settings->seen = now;
    return still && !same(&now, &settings->settled);
}

int settings_take(struct settings *settings)
{
    struct config config;
    struct error err = {0};
    settings->settled = settings->seen;
    int status = config_load(&config, settings->home, &err);
    struct config gone = status == 0 ? settings->config : config;
    pthread_mutex_lock(&settings->lock);
    free(settings->fault);
    settings->fault = status == 0 ? NULL : string_copy(err.text);
    if (status == 0) {
        settings->config = config;
        settings->read = clock_wall();
    }
    pthread_mutex_unlock(&settings->lock);
    config_release(&gone);
    return status;
}

int64_t settings_gpus(const struct settings *settings)
{
    return settings->gpus >= 0 ? settings->gpus : settings->config.gpus;
}

struct json *settings_json(struct settings *settings)
{
    struct json *json = js_object();
    pthread_mutex_lock(&settings->lock);
    js_set(json, "file", settings->config.found || settings->fault ? js_string(settings->path) : js_null());
    js_set(json, "read", js_real(settings->read));
    js_set(json, "fault", js_string(settings->fault));
    pthread_mutex_unlock(&settings->lock);
    return json;
}
