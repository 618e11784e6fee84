// job.sh travels inside the daemon: written to the home at start, so that an update of the program updates the script with it.
#include "daemon/exec/executor.h"
#include "schema/base/file.h"

#include <string.h>

extern const char job_script_text[]; // job.sh

int job_script_write(const char *path, struct error *err)
{
    size_t length = strlen(job_script_text);
    struct text there;
    text_init(&there, 1 << 20);
    bool same =
        file_exists(path) && file_read(path, &there, NULL) == 0 && there.length == length && memcmp(there.at, job_script_text, length) == 0;
    text_release(&there);
    return same ? 0 : file_write_atomic(path, job_script_text, length, 0755, err);
}
