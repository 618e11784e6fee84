#include "daemon/cli/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int request_each(const struct arguments *arguments, const char *action, const char *said)
{
    struct client *client = client_for(arguments);
    if (!client)
        return CLI_NO_DAEMON;
    int code = CLI_DONE;
    bool json = argument_flag(arguments, "json");
    for (size_t i = 0; i < arguments->count; i++) {
        char *path = client_run_path(client, arguments->words[i]);
        char *whole = path ? string_format("%s/%s", path, action) : NULL;
        struct json *answer = whole ? client_post(client, whole, NULL) : NULL;
        if (answer && json)
            print_json(answer);
        else if (answer)
            printf("%s %s\n", said, path + strlen("/api/v1/runs/"));
        if (!answer)
            code = CLI_NO_DAEMON;
        js_free(answer);
        free(whole);
        free(path);
    }
    client_close(client);
    return code;
}
