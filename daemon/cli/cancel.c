// `switchyard cancel RUN…`
#include "daemon/cli/request.h"

static int run_cancel(const struct arguments *arguments)
{
    return request_each(arguments, "cancel", "cancelling");
}

static const struct command_option cancel_options[] = {
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_cancel = {
    .name = "cancel",
    .summary = "End runs: they finish their step, save and stop",
    .usage = "RUN...",
    .least = 1,
    .most = REQUEST_RUNS_MAX,
    .options = cancel_options,
    .run = run_cancel,
};
