// `switchyard submit SPEC`: hands the runs of a spec to the daemon and returns.
#include "daemon/cli/submission.h"

#include <stdio.h>

static int run_submit(const struct arguments *arguments)
{
    struct spec_file file;
    struct client *client = NULL;
    struct json *answer = NULL;
    client_catch_interrupt();
    int code = submission_load(&file, arguments);
    if (code != CLI_DONE)
        goto out;
    client = client_for(arguments);
    code = client ? submission_send(client, &file, arguments, &answer) : CLI_NO_DAEMON;
    if (code != CLI_DONE)
        goto out;
    if (argument_flag(arguments, "json")) {
        print_json(answer);
        goto out;
    }
    const struct json *runs = js_get(answer, "runs");
    for (size_t i = 0; i < js_count(runs); i++)
        printf("submitted %s/%s\n", js_string_of(js_get(js_at(runs, i), "project"), "?"), js_string_of(js_get(js_at(runs, i), "name"), "?"));
out:
    js_free(answer);
    if (client)
        client_close(client);
    spec_file_release(&file);
    return code;
}

static const struct command_option submit_options[] = {
    SUBMISSION_OPTION_ROWS,
    CLIENT_OPTION_ROWS,
    {0},
};

const struct command command_submit = {
    .name = "submit",
    .summary = "Give a spec's runs to the daemon and return",
    .usage = "SPEC",
    .least = 1,
    .most = 1,
    .options = submit_options,
    .description = "`switchyard ls` shows how they do, `switchyard wait RUN` waits for them, `switchyard run` does all in one.",
    .run = run_submit,
};
