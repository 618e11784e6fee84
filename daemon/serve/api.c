// The routes. Each handler turns words of the request into one call of daemon/core/daemon.h; its JSON goes out unchanged.
#include "daemon/serve/api.h"
#include "web/web.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { METRIC_NAMES_MAX = 256, POINTS_DEFAULT = 2000, POINTS_MAX = 20000, LOG_DEFAULT = 65536 };

void response_init(struct response *response)
{
    *response = (struct response){.status = 200, .type = "application/json", .next_offset = -1};
    text_init(&response->body, SIZE_MAX / 2);
}

void response_release(struct response *response)
{
    text_release(&response->body);
    if (response->stream)
        events_close(response->stream);
    response->stream = NULL;
}

void response_error(struct response *response, int status, const char *sentence)
{
    struct json *body = js_object();
    js_set(body, "error", js_string(sentence));
    response->status = status;
    response->type = "application/json";
    text_clear(&response->body);
    js_write(&response->body, body);
    js_free(body);
}

// What the daemon answered, as a response; ends the answer.
static void respond(struct response *response, struct answer *answer)
{
    if (answer->body) {
        response->status = answer->status;
        js_write(&response->body, answer->body);
    } else {
        response_error(response, answer->status ? answer->status : 500, answer->error.text);
    }
    answer_release(answer);
}

// "project/name" of a route with both, "name" of a route with one. The daemon resolves either.
static char *run_of(const char *const *names)
{
    return names[1] ? string_format("%s/%s", names[0], names[1]) : string_copy(names[0]);
}

static void get_health(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request, (void)names;
    struct answer answer = {0};
    daemon_health(api->daemon, &answer);
    respond(response, &answer);
}

static void post_submission(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    struct error err = {0};
    struct json *body = js_parse(request->body, request->body_bytes, &err);
    if (!body) {
        error_context(&err, "the body is not JSON");
        response_error(response, 400, err.text);
        return;
    }
    struct answer answer = {0};
    if (js_kind(body) == JSON_KIND_OBJECT) {
        daemon_submit(api->daemon, body, &answer);
        respond(response, &answer);
    } else {
        response_error(response, 400, "the body is not a JSON object");
    }
    js_free(body);
}

static void get_submissions(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request, (void)names;
    struct answer answer = {0};
    daemon_submissions(api->daemon, &answer);
    respond(response, &answer);
}

static void post_submission_cancel(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request;
    struct answer answer = {0};
    daemon_submission_cancel(api->daemon, names[0], &answer);
    respond(response, &answer);
}

static void get_runs(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    struct answer answer = {0};
    daemon_list(api->daemon, target_argument(request->target, "project"), &answer);
    respond(response, &answer);
}

static void get_run(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request;
    struct answer answer = {0};
    char *run = run_of(names);
    daemon_show(api->daemon, run, &answer);
    respond(response, &answer);
    free(run);
}

// names=a,b and name=c may be mixed; none of them: every metric.
static size_t metric_names(char *list, const struct target *target, const char *names[METRIC_NAMES_MAX])
{
    size_t count = 0;
    char *rest = NULL;
    for (char *name = strtok_r(list, ",", &rest); name && count < METRIC_NAMES_MAX; name = strtok_r(NULL, ",", &rest))
        names[count++] = name;
    for (size_t i = 0; i < target->argument_count && count < METRIC_NAMES_MAX; i++)
        if (strcmp(target->arguments[i].name, "name") == 0)
            names[count++] = target->arguments[i].value;
    return count;
}

static void get_metrics(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    struct error err = {0};
    int64_t after, points;
    if (target_integer(&after, request->target, "after", 0, 0, INT64_MAX / 2, &err) != 0 ||
        target_integer(&points, request->target, "points", POINTS_DEFAULT, 1, POINTS_MAX, &err) != 0) {
        response_error(response, 400, err.text);
        return;
    }
    const char *argument = target_argument(request->target, "names");
    char *list = string_copy(argument ? argument : "");
    const char *wanted[METRIC_NAMES_MAX];
    size_t count = metric_names(list, request->target, wanted);
    struct answer answer = {0};
    char *run = run_of(names);
    daemon_metrics(api->daemon, run, count ? wanted : NULL, count, after, points, &answer);
    respond(response, &answer);
    free(run);
    free(list);
}

// Reads at most limit bytes from offset (negative: that many before the end) and says where to read on.
static void read_log(int fd, int64_t offset, int64_t limit, struct response *response)
{
    off_t size = lseek(fd, 0, SEEK_END);
    if (offset < 0)
        offset = size + offset > 0 ? size + offset : 0;
    char *block = allocate((size_t)limit, 1);
    int64_t got = 0;
    while (got < limit) {
        ssize_t count = pread(fd, block + got, (size_t)(limit - got), offset + got);
        if (count <= 0)
            break;
        got += count;
    }
    text_add_bytes(&response->body, block, (size_t)got);
    free(block);
    response->type = "text/plain; charset=utf-8";
    response->next_offset = offset + got;
}

static void get_logs(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    struct error err = {0};
    int64_t attempt, offset, limit;
    const char *stream = target_argument(request->target, "stream");
    stream = stream ? stream : "stdout";
    if (strcmp(stream, "stdout") != 0 && strcmp(stream, "stderr") != 0)
        error_set(&err, "stream must be stdout or stderr");
    else if (target_integer(&attempt, request->target, "attempt", 0, 0, 1000000, &err) == 0 &&
        target_integer(&offset, request->target, "offset", 0, -API_LOG_MAX, INT64_MAX / 2, &err) == 0)
        target_integer(&limit, request->target, "limit", LOG_DEFAULT, 1, API_LOG_MAX, &err);
    if (err.text[0]) {
        response_error(response, 400, err.text);
        return;
    }
    struct answer answer = {0};
    char *run = run_of(names);
    int fd = daemon_open_log(api->daemon, run, attempt, stream, &answer);
    free(run);
    if (fd < 0) {
        respond(response, &answer);
        return;
    }
    answer_release(&answer);
    read_log(fd, offset, limit, response);
    close(fd);
}

static void post_cancel(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request;
    struct answer answer = {0};
    char *run = run_of(names);
    daemon_cancel(api->daemon, run, &answer);
    respond(response, &answer);
    free(run);
}

// The request's body as an object, or an error in the response. Nothing at all is an empty object.
static struct json *object_of(const struct request *request, struct response *response)
{
    struct error err = {0};
    if (request->body_bytes == 0)
        return js_object();
    struct json *body = js_parse(request->body, request->body_bytes, &err);
    if (js_kind(body) == JSON_KIND_OBJECT)
        return body;
    error_context(&err, "the body is not JSON");
    response_error(response, 400, body ? "the body is not a JSON object" : err.text);
    js_free(body);
    return NULL;
}

static void post_retry(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    struct answer answer = {0};
    struct json *body = object_of(request, response);
    if (!body)
        return;
    char *run = run_of(names);
    daemon_retry(api->daemon, run, js_get(body, "accept_changed"), &answer);
    respond(response, &answer);
    free(run);
    js_free(body);
}

static void post_cancel_many(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    struct answer answer = {0};
    struct json *body = object_of(request, response);
    if (!body)
        return;
    const char *project = js_string_of(js_get(body, "project"), NULL), *with = js_string_of(js_get(body, "submission_of"), NULL);
    if (!project == !with || (project && !target_is_name(project))) {
        response_error(response, 400, "cancel needs either {\"project\": NAME} or {\"submission_of\": RUN}");
    } else {
        daemon_cancel_many(api->daemon, project, with, &answer);
        respond(response, &answer);
    }
    js_free(body);
}

static void get_strangers(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request, (void)names;
    struct answer answer = {0};
    daemon_strangers(api->daemon, &answer);
    respond(response, &answer);
}

static void post_adoption(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    struct answer answer = {0};
    struct json *body = object_of(request, response);
    if (!body)
        return;
    daemon_adopt(api->daemon, js_string_of(js_get(body, "directory"), ""), &answer);
    respond(response, &answer);
    js_free(body);
}

static void get_compare(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    const char *a = target_argument(request->target, "a"), *b = target_argument(request->target, "b");
    if (!a || !b || !*a || !*b) {
        response_error(response, 400, "compare needs two runs: ?a=PROJECT/NAME&b=PROJECT/NAME");
        return;
    }
    struct answer answer = {0};
    daemon_compare(api->daemon, a, b, &answer);
    respond(response, &answer);
}

static void get_report(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    const char *project = target_argument(request->target, "project");
    if (!project || !target_is_name(project)) {
        response_error(response, 400, "a report needs a project: ?project=NAME");
        return;
    }
    struct answer answer = {0};
    daemon_report(api->daemon, project, &answer);
    respond(response, &answer);
}

static void get_events(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)names;
    struct error err = {0};
    int64_t after;
    if (target_integer(&after, request->target, "after", -1, -1, INT64_MAX / 2, &err) != 0) {
        response_error(response, 400, err.text);
        return;
    }
    response->stream = events_open(api, after);
    response->type = "text/event-stream";
    if (!response->stream)
        response_error(response, 503, "too many event streams are open: close a dashboard tab");
}

static void get_prometheus(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)request, (void)names;
    struct answer health = {0}, runs = {0};
    daemon_health(api->daemon, &health);
    daemon_list(api->daemon, NULL, &runs);
    if (health.body && runs.body) {
        prometheus_write(&response->body, health.body, js_get(runs.body, "runs"));
        response->type = "text/plain; version=0.0.4; charset=utf-8";
    } else {
        response_error(response, 500, health.body ? runs.error.text : health.error.text);
    }
    answer_release(&health);
    answer_release(&runs);
}

static void get_file(struct api *api, const struct request *request, const char *const *names, struct response *response)
{
    (void)api, (void)names;
    const struct web_file *file = web_find(request->target->path);
    if (!file) {
        response_error(response, 404, "there is no such file");
        return;
    }
    response->type = file->type;
    response->etag = file->etag;
    response->fixed = file->bytes;
    response->fixed_bytes = file->size;
    if (request->if_none_match && strcmp(request->if_none_match, file->etag) == 0) {
        response->status = 304;
        response->fixed_bytes = 0;
    }
}

const struct route api_routes[] = {
    {"GET", "/", get_file},
    {"GET", "/assets/{file}", get_file},
    {"GET", "/api/v1/health", get_health},
    {"POST", "/api/v1/submissions", post_submission},
    {"GET", "/api/v1/submissions", get_submissions},
    {"POST", "/api/v1/submissions/{name}/cancel", post_submission_cancel},
    {"GET", "/api/v1/runs", get_runs},
    {"GET", "/api/v1/runs/{name}", get_run},
    {"GET", "/api/v1/runs/{project}/{name}", get_run},
    {"GET", "/api/v1/runs/{project}/{name}/metrics", get_metrics},
    {"GET", "/api/v1/runs/{project}/{name}/logs", get_logs},
    {"POST", "/api/v1/runs/{project}/{name}/cancel", post_cancel},
    {"POST", "/api/v1/runs/{project}/{name}/retry", post_retry},
    {"POST", "/api/v1/cancel", post_cancel_many},
    {"GET", "/api/v1/strangers", get_strangers},
    {"POST", "/api/v1/adopt", post_adoption},
    {"GET", "/api/v1/compare", get_compare},
    {"GET", "/api/v1/report", get_report},
    {"GET", "/api/v1/events", get_events},
    {"GET", "/metrics", get_prometheus},
};
const size_t api_route_count = sizeof api_routes / sizeof *api_routes;

// Whether the target's words fit the pattern; words in braces go to names.
static bool fits(const char *pattern, const struct target *target, const char *names[2])
{
    size_t segment = 0, named = 0;
    names[0] = names[1] = NULL;
    for (const char *at = pattern + 1; *at; segment++) {
        size_t length = strcspn(at, "/");
        if (segment == target->segment_count)
            return false;
        const char *word = target->segments[segment];
        if (at[0] != '{') {
            if (strlen(word) != length || strncmp(word, at, length) != 0)
                return false;
        } else if (strncmp(at, "{file}", length) != 0) {
            if (!target_is_name(word))
                return false;
            names[named++] = word;
        }
        at += at[length] == '/' ? length + 1 : length;
    }
    return segment == target->segment_count;
}

const struct route *api_match(bool post, const struct target *target, const char *names[2], int *status)
{
    *status = 404;
    for (size_t i = 0; i < api_route_count; i++) {
        if (!fits(api_routes[i].pattern, target, names))
            continue;
        if ((strcmp(api_routes[i].method, "POST") == 0) == post)
            return &api_routes[i];
        *status = 405;
    }
    return NULL;
}

bool api_public(const struct target *target)
{
    return target->path && web_find(target->path) != NULL;
}

void api_answer(struct api *api, const struct request *request, struct response *response)
{
    const char *names[2];
    int status;
    const struct route *route = api_match(request->post, request->target, names, &status);
    if (route)
        route->answer(api, request, names, response);
    else
        response_error(response, status, status == 404 ? "there is nothing at this address" : "this address does not take that method");
}
