// The route table against schema/openapi.yaml, both ways; and which handler an address reaches. The document keeps to a form that can be
// read line by line: a path at two blanks under `paths:`, its methods at four.
#include "daemon/serve/api.h"
#include "schema/base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { DESCRIBED_MAX = 64 };

struct described { char method[8], path[128]; bool found; };

static char *slurp(const char *name)
{
    struct error err = {0};
    struct text text;
    const char *source = getenv("SWITCHYARD_SOURCE");
    char *path = path_join(source ? source : ".", name);
    text_init(&text, 1 << 20);
    if (file_read(path, &text, &err) != 0)
        fail_msg("%s", err.text);
    free(path);
    return text_take(&text);
}

static size_t read_described(struct described described[DESCRIBED_MAX])
{
    char *text = slurp("schema/openapi.yaml"), *rest = NULL, path[128] = "";
    size_t count = 0;
    bool inside = false;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t blanks = strspn(line, " "), length = strlen(line);
        if (blanks == 0)
            inside = strcmp(line, "paths:") == 0;
        else if (inside && blanks == 2 && line[2] == '/' && line[length - 1] == ':')
            snprintf(path, sizeof path, "%.*s", (int)(length - 3), line + 2);
        else if (inside && blanks == 4 && line[length - 1] == ':' && count < DESCRIBED_MAX) {
            snprintf(described[count].path, sizeof described[count].path, "%s", path);
            snprintf(described[count].method, sizeof described[count].method, "%s", line[4] == 'g' ? "GET" : line[4] == 'p' ? "POST" : "?");
            described[count++].found = false;
        }
    }
    free(text);
    return count;
}

static void every_route_is_described_and_no_other(void **state)
{
    (void)state;
    struct described described[DESCRIBED_MAX];
    size_t count = read_described(described);
    assert_int_equal(count, api_route_count);
    for (size_t i = 0; i < api_route_count; i++) {
        bool found = false;
        for (size_t k = 0; k < count; k++)
            if (strcmp(described[k].path, api_routes[i].pattern) == 0 && strcmp(described[k].method, api_routes[i].method) == 0)
                found = described[k].found = true;
        if (!found)
            fail_msg("%s %s is not in schema/openapi.yaml", api_routes[i].method, api_routes[i].pattern);
    }
    for (size_t k = 0; k < count; k++)
        if (!described[k].found)
            fail_msg("%s %s is described and not served", described[k].method, described[k].path);
}

// The pattern that this address reaches, or "404" / "405".
static struct target target; // of the last address: the names point into it

static const char *reached(bool post, const char *address, const char *names[2])
{
    int status;
    target_release(&target);
    if (target_parse(&target, address, NULL) != 0)
        return "400";
    const struct route *route = api_match(post, &target, names, &status);
    return route ? route->pattern : status == 404 ? "404" : "405";
}

static void addresses_reach_their_routes(void **state)
{
    (void)state;
    const char *names[2];
    assert_string_equal(reached(false, "/", names), "/");
    assert_string_equal(reached(false, "/?x=1", names), "/");
    assert_string_equal(reached(false, "/assets/app.js", names), "/assets/{file}");
    assert_string_equal(reached(false, "/assets/a/b.js", names), "404");
    assert_string_equal(reached(false, "/api/v1/runs", names), "/api/v1/runs");
    assert_string_equal(reached(false, "/api/v1/runs/moe-1", names), "/api/v1/runs/{name}");
    assert_string_equal(names[0], "moe-1");
    assert_null(names[1]);
    assert_string_equal(reached(false, "/api/v1/runs/p/moe-1", names), "/api/v1/runs/{project}/{name}");
    assert_string_equal(names[0], "p");
    assert_string_equal(names[1], "moe-1");
    assert_string_equal(reached(false, "/api/v1/runs/p/moe-1/logs?offset=3", names), "/api/v1/runs/{project}/{name}/logs");
    assert_string_equal(reached(true, "/api/v1/runs/p/moe-1/cancel", names), "/api/v1/runs/{project}/{name}/cancel");
    assert_string_equal(reached(false, "/api/v1/runs/p/moe-1/cancel", names), "405");
    assert_string_equal(reached(true, "/api/v1/runs", names), "405");
    assert_string_equal(reached(false, "/api/v1/runs/p/moe.1", names), "404");
    assert_string_equal(reached(false, "/api/v1/runs/p/moe-1/other", names), "404");
    assert_string_equal(reached(false, "/api/v1", names), "404");
    assert_string_equal(reached(false, "/api/v2/runs", names), "404");
    assert_string_equal(reached(false, "/API/v1/runs", names), "404");
    target_release(&target);
}

static void only_the_dashboards_files_are_public(void **state)
{
    (void)state;
    static const char *const addresses[] = {"/", "/assets/app.js", "/assets/dygraph.min.js", "/assets/index.html", "/assets/web.h", "/api/v1/runs",
        "/metrics", "/assets", "/daemon.json"};
    static const bool is_public[] = {true, true, true, false, false, false, false, false, false};
    for (size_t i = 0; i < sizeof addresses / sizeof *addresses; i++) {
        struct target asked;
        assert_int_equal(target_parse(&asked, addresses[i], NULL), 0);
        if (api_public(&asked) != is_public[i])
            fail_msg("%s", addresses[i]);
        target_release(&asked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_is_described_and_no_other),
        cmocka_unit_test(addresses_reach_their_routes),
        cmocka_unit_test(only_the_dashboards_files_are_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
