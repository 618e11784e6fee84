#include "daemon/serve/gate.h"

#include <string.h>
#include <strings.h>

bool gate_equal(const char *expected, const char *given)
{
    size_t expected_length = strlen(expected), given_length = strlen(given);
    unsigned char difference = expected_length == given_length && expected_length > 0 ? 0 : 1;
    for (size_t i = 0; i < given_length; i++)
        difference |= (unsigned char)(given[i] ^ expected[expected_length ? i % expected_length : 0]);
    return difference == 0;
}

// Length of the name in "name" or "name:port" ("[::1]:80" included); 0 if it is neither.
static size_t host_name_length(const char *host)
{
    size_t name = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
    if (name == 0 || name > strlen(host))
        return 0;
    const char *port = host + name;
    if (!*port)
        return name;
    if (*port != ':' || strspn(port + 1, "0123456789") != strlen(port + 1) || strlen(port + 1) < 1 || strlen(port + 1) > 5)
        return 0;
    return name;
}

static bool same_name(const char *host, size_t length, const char *name)
{
    return strlen(name) == length && strncasecmp(host, name, length) == 0;
}

static bool is_listed(const char *host, size_t name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(host, list[i]) == 0 || same_name(host, name, list[i]))
            return true;
    return false;
}

static bool host_allowed(const struct gate *gate, const char *host)
{
    static const char *const loopback[] = {"127.0.0.1", "localhost", "[::1]"};
    size_t name = host ? host_name_length(host) : 0;
    if (name == 0)
        return false;
    for (size_t i = 0; i < sizeof loopback / sizeof *loopback; i++)
        if (same_name(host, name, loopback[i]))
            return true;
    return is_listed(host, name, gate->hosts, gate->host_count) || is_listed(host, name, gate->configured, gate->configured_count);
}

// Same origin only: scheme and exactly the Host of this request. "null" (a sandboxed frame, a file) is another origin.
static bool origin_allowed(const char *origin, const char *host)
{
    if (!origin)
        return true;
    size_t scheme = strncmp(origin, "http://", 7) == 0 ? 7 : strncmp(origin, "https://", 8) == 0 ? 8 : 0;
    return scheme && strcasecmp(origin + scheme, host) == 0;
}

static bool token_allowed(const struct gate *gate, const char *authorization)
{
    return authorization && strncasecmp(authorization, "Bearer ", 7) == 0 && gate_equal(gate->token, authorization + 7);
}

enum gate_verdict gate_judge(const struct gate *gate, const struct gate_request *request)
{
    bool reads = strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0;
    if (!reads && strcmp(request->method, "POST") != 0)
        return GATE_METHOD;
    if (!host_allowed(gate, request->host))
        return GATE_HOST;
    if (!origin_allowed(request->origin, request->host))
        return GATE_ORIGIN;
    if (reads && (request->public_file || gate->open_reads))
        return GATE_PASS;
    return token_allowed(gate, request->authorization) ? GATE_PASS : GATE_TOKEN;
}

int gate_status(enum gate_verdict verdict)
{
    static const int statuses[] = {[GATE_PASS] = 200, [GATE_METHOD] = 405, [GATE_HOST] = 403, [GATE_ORIGIN] = 403, [GATE_TOKEN] = 401};
    return statuses[verdict];
}

const char *gate_sentence(enum gate_verdict verdict)
{
    static const char *const sentences[] = {
        [GATE_PASS] = "",
        [GATE_METHOD] = "this method is not served here: use GET or POST",
        [GATE_HOST] = "this Host is not one of the daemon's names: if it should be, list it under `allowed_hosts` of config.yaml, or start it with `switchyard serve --allow-host NAME`",
        [GATE_ORIGIN] = "a page of another origin may not ask the daemon",
        [GATE_TOKEN] = "the token is missing or wrong: take the whole address that `switchyard serve` prints, with its #token=…, for a browser, --url or "
                       "SWITCHYARD_URL; another program sends `Authorization: Bearer TOKEN`",
    };
    return sentences[verdict];
}
