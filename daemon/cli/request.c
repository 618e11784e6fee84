#include "daemon/cli/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int request_one(struct client *client, const char *run, const char *action, const char *said, const struct json *body, bool json)
{
    char *path = client_run_path(client, run);
    char *whole = path ? string_format("%s/%s", path, action) : NULL;
    struct json *answer = whole ? client_post(client, whole, body) : NULL;
    if (answer && json)
        print_json(answer);
    else if (answer)
        printf("%s %s\n", said, path + strlen("/api/v1/runs/"));
    int code = answer ? CLI_DONE : CLI_NO_DAEMON;
    js_free(answer);
    free(whole);
    free(path);
    return code;
}

int request_each(const struct arguments *arguments, const char *action, const char *said)
{
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    int code = CLI_DONE;
    for (size_t i = 0; i < arguments->count; i++)
        if (request_one(client, arguments->words[i], action, said, NULL, argument_flag(arguments, "json")) != CLI_DONE)
            code = CLI_NO_DAEMON;
    client_close(client);
    return code;
}
