#include "daemon/exec/slurm/tally.h"
#include "daemon/exec/slurm/array.h"
#include "schema/base/text.h"

#include <stdlib.h>

void slurm_tally_add(struct slurm_tally *tally, const struct launch *launch, const char *run_directory)
{
    char key[HASH_HEX];
    tally->jobs++;
    if (!array_key(key, run_directory, &launch->argv, &launch->options, &launch->environment, &launch->modules))
        return;
    if (!tally->kinds)
        tally->kinds = js_object();
    js_set(tally->kinds, key, js_integer(js_integer_of(js_get(tally->kinds, key), 0) + 1));
}

struct json *slurm_tally_end(struct slurm_tally *tally, const struct config_slurm *site)
{
    size_t arrays = 0, elements = 0, most = array_most(site->max_array_size);
    for (void *at = tally->kinds ? js_first(tally->kinds) : NULL; at; at = js_next(tally->kinds, at))
        for (size_t left = (size_t)js_integer_of(js_value(at), 0), taken; left > 0; left -= taken) {
            taken = array_take(left, most);
            arrays += taken > 1;
            elements += taken > 1 ? taken : 0;
        }
    struct json *json = tally->jobs ? js_object() : js_null();
    if (tally->jobs) {
        js_set(json, "jobs", js_integer((int64_t)tally->jobs));
        js_set(json, "arrays", js_integer((int64_t)arrays));
        js_set(json, "elements", js_integer((int64_t)elements));
        js_set(json, "max_array_size", js_integer((int64_t)most));
        js_set(json, "max_submit_jobs", site->max_submit_jobs ? js_integer(site->max_submit_jobs) : js_null());
    }
    js_free(tally->kinds);
    *tally = (struct slurm_tally){0};
    return json;
}

char *slurm_tally_words(const struct json *tally)
{
    long long jobs = js_integer_of(js_get(tally, "jobs"), 0), arrays = js_integer_of(js_get(tally, "arrays"), 0);
    long long elements = js_integer_of(js_get(tally, "elements"), 0), most = js_integer_of(js_get(tally, "max_submit_jobs"), 0);
    struct text words;
    if (jobs == 0)
        return NULL;
    text_init(&words, 1000);
    text_addf(&words, "%lld job%s", jobs, jobs == 1 ? "" : "s");
    if (arrays)
        text_addf(&words, "%s%lld elements of %lld array%s (`sbatch --array`)", elements == jobs ? ", as the " : ", of these ", elements, arrays,
            arrays == 1 ? "" : "s");
    else if (jobs > 1)
        text_add(&words, ", each by itself");
    if (most && jobs > most)
        text_addf(&words, "; at most %lld at once (`slurm.max_submit_jobs`), the others as those end", most);
    return text_take(&words);
}
