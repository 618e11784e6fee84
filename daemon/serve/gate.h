// The gate: who may ask at all, decided before routing from five strings, by a pure function that a test walks as a matrix
// (method × Host × Origin × token). A page of another site can make a browser send requests here (localhost CSRF), or rebind its own
// name to 127.0.0.1 and then counts as same-origin: the Host header is the only witness of that, so it must be one of ours. Other users
// of this machine can reach the port: so a token for all that reads or changes data. No CORS header is ever sent, no cookie is read.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct gate {
    const char *token;
    bool open_reads;              // reading needs no token (a machine of one's own)
    const char *const *hosts;     // more names that may be in Host: "name" at any port, or "name:port"
    size_t host_count;
    const char *const *configured; // the same, as config.yaml has them at this moment
    size_t configured_count;
};

struct gate_request {
    const char *method;
    const char *host, *origin, *authorization; // headers, NULL if absent
    bool public_file;             // one of the dashboard's static files
};

enum gate_verdict { GATE_PASS, GATE_METHOD, GATE_HOST, GATE_ORIGIN, GATE_TOKEN };

enum gate_verdict gate_judge(const struct gate *gate, const struct gate_request *request);
int gate_status(enum gate_verdict verdict);             // HTTP status of a refusal
const char *gate_sentence(enum gate_verdict verdict);   // what to do about it
bool gate_equal(const char *expected, const char *given); // time depends on the length of given alone
