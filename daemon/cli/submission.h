// What submit and run share: a spec made into the body of POST /api/v1/submissions, and sent.
#pragma once
#include "daemon/cli/client.h"
#include "daemon/cli/spec_arguments.h"

#define SUBMISSION_OPTION_ROWS \
    SPEC_OPTION_ROWS, \
    {"name", 0, "NAME", false, "name the run (where the spec has only one, or --run chooses one)"}, \
    {"yes", 0, NULL, false, "more than 100 runs are meant"}

// Loads the spec and judges it for running. CLI_DONE or CLI_USAGE after sentences on stderr; spec_file_release in both cases.
int submission_load(struct spec_file *file, const struct arguments *arguments);
// Sends it. CLI_DONE and *answer {"runs": […]}, or the exit code after a sentence on stderr.
int submission_send(struct client *client, const struct spec_file *file, const struct arguments *arguments, struct json **answer);
