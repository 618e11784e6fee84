// Which job is the run's where one sbatch call has made several: a wrapper that calls the real sbatch twice, a message that Slurm's client sent
// once more. job.sh lets one of them begin, the first that comes, and writes that one's id into the file `submission.N` of the run directory, N
// being their common number. Any other ends at once with code 0, which says nothing of the run.
//
// The file is looked for only where it can matter: for a job that has ended, for one that is not the one that was told of, where there are
// two, and where there is none any more. Once there, it never changes.
#include "daemon/exec/slurm/inside.h"
#include "schema/base/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *claim_look(struct entry *entry, int64_t submission)
{
    if (!entry->directory || submission <= 0)
        return NULL;
    if (entry->claimed == submission)
        return entry->claimant;
    char *path = string_format("%s/" SUBMISSION_FILE ".%" PRId64, entry->directory, submission);
    struct text bytes;
    text_init(&bytes, sizeof entry->claimant);
    if (file_exists(path) && file_read(path, &bytes, NULL) == 0) {
        size_t length = strspn(bytes.at, "0123456789_");
        if (length > 0 && length < sizeof entry->claimant && strcmp(bytes.at + length, "\n") == 0) {
            memcpy(entry->claimant, bytes.at, length);
            entry->claimant[length] = 0;
            entry->claimed = submission;
        }
    }
    text_release(&bytes);
    free(path);
    return entry->claimed == submission ? entry->claimant : NULL;
}

bool claim_is_anothers(const struct entry *entry, int64_t submission, const char *id)
{
    return submission > 0 && entry->claimed == submission && strcmp(entry->claimant, id) != 0;
}
