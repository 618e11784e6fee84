// The folder of Trackio's databases: where it is, which projects are open, and reading their rows.
#include "daemon/store/trackio_inside.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

char *trackio_directory(void)
{
    const char *directory = variable("TRACKIO_DIR"), *face = variable("HF_HOME"), *cache = variable("XDG_CACHE_HOME");
    if (directory)
        return path_absolute(directory, NULL);
    if (face)
        return string_format("%s/trackio", face);
    if (cache)
        return string_format("%s/huggingface/trackio", cache);
    const char *home = variable("HOME");
    struct passwd *user = home ? NULL : getpwuid(getuid());
    return string_format("%s/.cache/huggingface/trackio", home ? home : user ? user->pw_dir : "");
}

int trackio_open(struct trackio **out, const char *directory, struct error *err)
{
    const char *network = file_network_system(directory);
    if (network)
        return error_set(err, "%s: on a network file system (%s), where SQLite is not safe: set TRACKIO_DIR to a local directory", directory, network);
    if (directory_make(directory, err) != 0)
        return -1;
    if (access(directory, W_OK | X_OK) != 0)
        return error_errno(err, "%s: Trackio's databases cannot be written here (TRACKIO_DIR says where)", directory);
    struct trackio *trackio = allocate(1, sizeof *trackio);
    trackio->directory = string_copy(directory);
    *out = trackio;
    return 0;
}

void trackio_close(struct trackio *trackio)
{
    if (!trackio)
        return;
    for (size_t i = 0; i < trackio->count; i++)
        project_free(trackio->projects[i]);
    free(trackio->directory);
    free(trackio);
}

// ---- names ----

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

// What Trackio keeps for its own files beside a project's.
static bool is_reserved(const char *canonical)
{
    static const char *const ends[] = {"_system", "_configs", "_traces", "_artifacts", "_artifact_versions", "_artifact_aliases",
        "_run_artifact_links", "_external_run_artifact_links"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(canonical, ends[i]))
            return true;
    return strncmp(canonical, "registry-", 9) == 0;
}

char *trackio_canonical(const char *project, struct error *err)
{
    struct text name;
    text_init(&name, 200);
    for (const char *at = project; *at; at++) {
        unsigned char byte = (unsigned char)*at;
        if (byte >= 0x80) {
            error_set(err, "project '%s': only ASCII letters, digits, '-' and '_' are possible", project);
            text_release(&name);
            return NULL;
        }
        if (isalnum(byte) || byte == '-' || byte == '_')
            text_add_bytes(&name, at, 1);
    }
    if (name.length == 0)
        text_add(&name, "default");
    if (name.overflowed || is_reserved(name.at)) {
        error_set(err, "project '%s': %s", project, name.overflowed ? "too long a name" : "Trackio keeps this name for files of its own");
        text_release(&name);
        return NULL;
    }
    return text_take(&name);
}

// ---- open projects ----

static size_t longest_unused(const struct trackio *trackio)
{
    size_t oldest = 0;
    for (size_t i = 1; i < trackio->count; i++)
        if (trackio->projects[i]->used < trackio->projects[oldest]->used)
            oldest = i;
    return oldest;
}

struct project *trackio_project(struct trackio *trackio, const char *name, struct error *err)
{
    char *canonical = trackio_canonical(name, err);
    if (!canonical)
        return NULL;
    for (size_t i = 0; i < trackio->count; i++)
        if (strcmp(trackio->projects[i]->canonical, canonical) == 0) {
            free(canonical);
            return trackio->projects[i];
        }
    size_t place = trackio->count;
    if (place == PROJECTS_MAX) {
        place = longest_unused(trackio);
        project_free(trackio->projects[place]);
    } else {
        trackio->count++;
    }
    struct project *project = allocate(1, sizeof *project);
    *project = (struct project){.canonical = canonical, .lock_fd = -1, .used = clock_steady()};
    project->database = string_format("%s/%s.db", trackio->directory, canonical);
    project->lock = string_format("%s/%s.lock", trackio->directory, canonical);
    trackio->projects[place] = project;
    return project;
}

// ---- reading ----

static int read_rows(struct project *project, const char *run_id, int64_t after_id,
    void (*visit)(void *context, int64_t id, int64_t step, double time, const struct json *metrics), void *context, struct error *err)
{
    struct sql_query *query = sql_ask(project->sql, err, "SELECT id, step, timestamp, metrics FROM metrics WHERE run_id = ? AND id > ? ORDER BY id",
        "ti", run_id, after_id);
    if (!query)
        return -1;
    int got;
    while ((got = sql_step(query, err)) > 0) {
        const char *timestamp = sql_text(query, 2);
        double time = timestamp ? clock_parse(timestamp) : NAN;
        struct json *metrics = sql_json(query, 3);
        if (js_kind(metrics) == JSON_KIND_OBJECT)
            visit(context, sql_integer(query, 0), sql_integer(query, 1), isnan(time) ? 0 : time, metrics);
        js_free(metrics);
    }
    sql_done(query);
    return got;
}

// What was not open before is closed: SQLite keeps the index of a log for all of a process's connections as long as one is open, and who finds
// the log removed must be able to begin anew.
int trackio_each_row(struct trackio *trackio, const char *name, const char *run_id, int64_t after_id,
    void (*visit)(void *context, int64_t id, int64_t step, double time, const struct json *metrics), void *context, struct error *err)
{
    struct project *project = trackio_project(trackio, name, err);
    bool was_open = project && project->sql;
    int status = project ? project_open_to_read(project, err) : -1;
    if (status == 0)
        status = read_rows(project, run_id, after_id, visit, context, err);
    else if (status > 0)
        status = 0; // no such database
    if (project && !was_open)
        project_close(project);
    return status;
}
