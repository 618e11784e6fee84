// `switchyard retry RUN…`
#include "daemon/cli/request.h"

static int run_retry(const struct arguments *arguments)
{
    return request_each(arguments, "retry", "retrying");
}

static const struct command_option retry_options[] = {
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_retry = {
    .name = "retry",
    .summary = "Give ended runs another attempt, from their last complete checkpoint",
    .usage = "RUN...",
    .least = 1,
    .most = REQUEST_RUNS_MAX,
    .options = retry_options,
    .run = run_retry,
};
