// The gate as a matrix: method × Host × Origin × token, each cell judged by an independent statement of the rule.
#include "daemon/serve/gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#define TOKEN "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define COUNT(list) (sizeof(list) / sizeof *(list))

struct choice { const char *text; bool good; };

static const struct choice methods[] = {{"GET", true}, {"HEAD", true}, {"POST", true}, {"PUT", false}, {"DELETE", false}, {"PATCH", false},
    {"OPTIONS", false}, {"TRACE", false}, {"CONNECT", false}, {"get", false}, {"", false}};

static const struct choice hosts[] = {{"127.0.0.1", true}, {"127.0.0.1:8642", true}, {"127.0.0.1:1", true}, {"localhost:9", true},
    {"LocalHost:65535", true}, {"[::1]:8642", true}, {"[::1]", true}, {"login1", true}, {"login1:8642", true}, {"gate.example:8642", true},
    {"gate.example", false}, {"gate.example:8643", false}, {"evil.example", false}, {"127.0.0.1.evil.example", false},
    {"localhost.evil.example:8642", false}, {"127.0.0.1@evil.example", false}, {"127.0.0.1:", false}, {"127.0.0.1:80:80", false},
    {"127.0.0.1:8o", false}, {"127.0.0.1:123456", false}, {"[::1", false}, {"::1", false}, {"", false}, {":80", false}, {NULL, false},
    {"127.0.0.1 ", false}, {"0.0.0.0", false}, {"127.1", false}, {"2130706433", false}, {"login10", false}};

// good: only where the Host is 127.0.0.1:8642
static const struct choice origins[] = {{"http://127.0.0.1:8642", true}, {"https://127.0.0.1:8642", true}, {"http://127.0.0.1", false},
    {"http://127.0.0.1:8643", false}, {"http://localhost:8642", false}, {"null", false}, {"", false}, {"http://evil.example", false},
    {"http://127.0.0.1:8642.evil.example", false}, {"ftp://127.0.0.1:8642", false}, {"127.0.0.1:8642", false},
    {"chrome-extension://127.0.0.1:8642", false}};

static const struct choice tokens[] = {{"Bearer " TOKEN, true}, {"bearer " TOKEN, true}, {"Bearer " TOKEN "0", false},
    {"Bearer 0123456789abcdef", false}, {"Bearer ", false}, {"Bearer", false}, {"Basic " TOKEN, false}, {TOKEN, false}, {"", false},
    {NULL, false}, {"Bearer  " TOKEN, false}, {"Bearer 1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", false}};

static enum gate_verdict expected(const struct gate *gate, const struct gate_request *request, bool method, bool host, bool origin, bool token)
{
    bool reads = request->method[0] == 'G' || request->method[0] == 'H';
    if (!method)
        return GATE_METHOD;
    if (!host)
        return GATE_HOST;
    if (!origin)
        return GATE_ORIGIN;
    return token || (reads && (gate->open_reads || request->public_file)) ? GATE_PASS : GATE_TOKEN;
}

static void matrix(void **state)
{
    (void)state;
    static const char *const more[] = {"login1", "gate.example:8642"};
    size_t cells = 0, passed = 0;
    for (int options = 0; options < 4; options++) {
        struct gate gate = {.token = TOKEN, .open_reads = options & 1, .hosts = more, .host_count = 1, .configured = more + 1, .configured_count = COUNT(more) - 1};
        for (size_t m = 0; m < COUNT(methods); m++)
            for (size_t h = 0; h < COUNT(hosts); h++)
                for (size_t o = 0; o <= COUNT(origins); o++)
                    for (size_t t = 0; t < COUNT(tokens); t++) {
                        bool has_origin = o < COUNT(origins);
                        struct gate_request request = {methods[m].text, hosts[h].text, has_origin ? origins[o].text : NULL, tokens[t].text,
                            (options & 2) != 0};
                        bool same = hosts[h].text && strcmp(hosts[h].text, "127.0.0.1:8642") == 0;
                        bool plain = hosts[h].text && strcmp(hosts[h].text, "127.0.0.1") == 0 && has_origin &&
                            strcmp(origins[o].text, "http://127.0.0.1") == 0;
                        enum gate_verdict want = expected(&gate, &request, methods[m].good, hosts[h].good,
                            !has_origin || (same && origins[o].good) || plain, tokens[t].good);
                        enum gate_verdict got = gate_judge(&gate, &request);
                        if (got != want)
                            fail_msg("%s Host %s Origin %s Authorization %s: %d, not %d", request.method, request.host, request.origin,
                                request.authorization, (int)got, (int)want);
                        cells++;
                        passed += got == GATE_PASS;
                    }
    }
    print_message("%zu cells, %zu pass\n", cells, passed);
    assert_true(passed > 0 && passed < cells / 20);
}

static void an_empty_token_opens_nothing(void **state)
{
    (void)state;
    struct gate gate = {.token = ""};
    struct gate_request request = {"GET", "127.0.0.1", NULL, "Bearer ", false};
    assert_int_equal(gate_judge(&gate, &request), GATE_TOKEN);
}

static void every_refusal_has_a_status_and_a_sentence(void **state)
{
    (void)state;
    for (int verdict = GATE_METHOD; verdict <= GATE_TOKEN; verdict++) {
        assert_true(gate_status((enum gate_verdict)verdict) >= 400);
        assert_true(strlen(gate_sentence((enum gate_verdict)verdict)) > 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrix),
        cmocka_unit_test(an_empty_token_opens_nothing),
        cmocka_unit_test(every_refusal_has_a_status_and_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
