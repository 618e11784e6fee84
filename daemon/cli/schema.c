// `switchyard schema`: every key of the spec, from the field table.
#include "daemon/cli/command.h"
#include "schema/base/text.h"
#include "schema/spec/spec.h"

#include <stdint.h>
#include <stdio.h>

static int run_schema(const struct arguments *arguments)
{
    if (argument_flag(arguments, "json")) {
        struct json *schema = spec_schema_json();
        print_json(schema);
        js_free(schema);
        return CLI_DONE;
    }
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    spec_schema_markdown(&text);
    fwrite(text.at, 1, text.length, stdout);
    text_release(&text);
    return CLI_DONE;
}

static const struct command_option options[] = {
    {"json", 0, NULL, false, "as JSON Schema, for editors"},
    {0},
};

const struct command command_schema = {
    .name = "schema",
    .summary = "Show every key that a spec can have",
    .usage = "",
    .options = options,
    .run = run_schema,
};
