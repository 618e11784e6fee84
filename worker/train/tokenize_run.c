// `tokenize RUN_DIR`: a stage of its own, so that runs which need the same data share one. Progress goes into the records, at most one a
// second; the result appears as a whole: the pair by rename, complete.json last.
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/record/layout.h"
#include "worker/train/journal.h"
#include "worker/train/train.h"
#include "worker/train/version.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct telling {
    struct journal *journal;
    double told; // clock_steady of the last record
};

static void tell(void *context, int64_t done, int64_t total, int64_t documents, int64_t tokens)
{
    struct telling *telling = context;
    double now = clock_steady();
    if (now - telling->told < 1 && done < total)
        return;
    telling->told = now;
    struct json *members = js_object();
    js_set(members, "done", js_integer(done));
    js_set(members, "total", js_integer(total));
    js_set(members, "documents", js_integer(documents));
    js_set(members, "tokens", js_integer(tokens));
    record_other(telling->journal->writer, "progress", members, NULL); // a lost bar is no reason to lose the work
    if (documents > 0 || done < total) // else the fault that follows says that there is nothing
        fprintf(stderr, "%.0f %%  %lld documents  %lld tokens\n", total ? 100.0 * (double)done / (double)total : 100.0, (long long)documents,
            (long long)tokens);
}

// The directory of the pair, made if need be.
static int make_room(const char *prefix, struct error *err)
{
    const char *slash = strrchr(prefix, '/');
    if (!slash || slash == prefix)
        return 0;
    char *directory = string_format("%.*s", (int)(slash - prefix), prefix);
    int status = directory_make(directory, err);
    free(directory);
    return status;
}

static int tokenize(const struct job *job, struct journal *journal, struct tokenize_result *result, struct error *err)
{
    const struct json *keys = js_get(job->run, "tokenize");
    struct telling telling = {.journal = journal};
    struct tokenize_options options = {.input = js_string_of(js_get(keys, "input"), NULL),
        .prefix = js_string_of(js_get(keys, "prefix"), NULL),
        .document = js_string_of(js_get(keys, "document"), "paragraph"),
        .json_key = js_string_of(js_get(keys, "json_key"), "text"),
        .tokenizer = js_string_of(js_get(keys, "tokenizer"), "byte"),
        .progress = tell,
        .context = &telling};
    if (!options.input || !options.prefix)
        return error_set(err, "%s/%s: tokenize needs an input and a prefix", job->run_directory, RUN_FILE);
    return make_room(options.prefix, err) == 0 ? tokenize_file(result, &options, err) : -1;
}

int tokenize_run(const char *run_directory)
{
    struct job job;
    struct journal journal = {0};
    struct error err = {0};
    struct tokenize_result result = {0};
    int code = EXIT_BAD_INPUT;
    if (job_open(&job, run_directory, "tokenize", &err) != 0 || job_claim(&job, &err) != 0 || journal_open(&journal, &job, &err) != 0)
        goto out;
    if (journal_start(&journal, version_json(), -1, &err) != 0)
        code = EXIT_FAILED;
    else if (tokenize(&job, &journal, &result, &err) == 0)
        code = EXIT_DONE;
    struct json *members = js_object();
    js_set(members, "documents", js_integer(result.documents));
    js_set(members, "tokens", js_integer(result.tokens));
    js_set(members, "bytes", js_integer(result.bytes));
    js_set(members, "peak_memory_bytes", js_integer((int64_t)peak_memory_bytes()));
    if (code != EXIT_DONE)
        journal_event(&journal, 0, "failed", err.text, NULL);
    journal_end(&journal, code, members);
out:
    if (code != EXIT_DONE)
        fprintf(stderr, "switchyard-worker: %s\n", err.text);
    journal_close(&journal);
    job_release(&job);
    return code;
}
