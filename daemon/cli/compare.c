// `switchyard compare A B`: the last common step, and all that differs.
#include "daemon/cli/client.h"
#include "daemon/cli/view.h"

#include <stdlib.h>
#include <string.h>

static int run_compare(const struct arguments *arguments)
{
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    char *a = client_run_path(client, arguments->words[0]), *b = a ? client_run_path(client, arguments->words[1]) : NULL;
    struct json *answer = NULL;
    if (b) {
        size_t prefix = strlen("/api/v1/runs/");
        char *path = string_format("/api/v1/compare?a=%s&b=%s", a + prefix, b + prefix);
        answer = client_get(client, path);
        free(path);
    }
    int code = answer ? CLI_DONE : CLI_NO_DAEMON;
    if (code == CLI_DONE && argument_flag(arguments, "json"))
        print_json(answer);
    else if (code == CLI_DONE)
        view_comparison(stdout, answer);
    js_free(answer);
    free(a);
    free(b);
    client_close(client);
    return code;
}

static const struct command_option compare_options[] = {
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_compare = {
    .name = "compare",
    .summary = "Put two runs side by side: values, configuration, predicted and measured",
    .usage = "A B",
    .least = 2,
    .most = 2,
    .options = compare_options,
    .run = run_compare,
};
