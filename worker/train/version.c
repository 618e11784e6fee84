#include "worker/train/version.h"
#include "worker/device/device.h"
#include "worker/parallel/comm.h"

#include <stdio.h>

struct json *version_json(void)
{
    struct json *version = js_object();
    js_set(version, "version", js_string(SWITCHYARD_VERSION));
    js_set(version, "mpi", js_string(comm_library()));
    js_set(version, "compiler", js_string(__VERSION__));
    js_set(version, "build", js_string(SWITCHYARD_BUILD_FLAGS));
    return version;
}

int version_print(bool as_json)
{
    struct json *version = version_json();
    js_set(version, "isa", js_string(device_cpu(1)->isa)); // what the cpu device would use here
    struct text text;
    text_init(&text, 1 << 16);
    if (as_json)
        js_write_pretty(&text, version);
    else
        text_addf(&text, "switchyard-worker %s\n", SWITCHYARD_VERSION);
    fputs(text.at, stdout);
    text_release(&text);
    js_free(version);
    return 0;
}
