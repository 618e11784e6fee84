// cancel and retry are one thing: a POST to each named run.
#pragma once
#include "daemon/cli/client.h"

enum { REQUEST_RUNS_MAX = 256 };

int request_each(const struct arguments *arguments, const char *action, const char *said); // exit code
// The same for one run, by its name; body may be NULL.
int request_one(struct client *client, const char *run, const char *action, const char *said, const struct json *body, bool json);
