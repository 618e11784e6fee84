#include "daemon/cli/listed.h"
#include "daemon/cli/view.h"
#include "daemon/serve/target.h"
#include "schema/base/near.h"

#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"created", "queued", "submitted", "pending", "running", "finishing", "succeeded", "failed", "cancelled",
    "timed_out", "out_of_memory", "lost"};
enum { STATES = sizeof state_names / sizeof *state_names };

static int check_state(const char *state)
{
    for (size_t i = 0; i < STATES; i++)
        if (strcmp(state_names[i], state) == 0)
            return 0;
    struct text all;
    text_init(&all, 256);
    for (size_t i = 0; i < STATES; i++)
        text_addf(&all, "%s%s", i ? ", " : "", state_names[i]);
    const char *near = near_name(state, state_names, STATES);
    int code = strchr(state, ',')
        ? usage_error("'%s' is more than one state: give --state once for each", state)
        : usage_error("'%s' is no state of a run%s%s%s: they are %s", state, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "", all.at);
    text_release(&all);
    return code;
}

int listed_check(const struct listed_choice *choice)
{
    if (choice->project && !target_is_name(choice->project))
        return usage_error("'%s' is no name of a project", choice->project);
    if (choice->submission && !client_is_run_name(choice->submission))
        return usage_error("'%s' is no name of a run", choice->submission);
    int code = CLI_DONE;
    for (size_t i = 0; i < choice->states_count && code == CLI_DONE; i++)
        code = check_state(choice->states[i]);
    return code;
}

bool listed_is_in(const struct json *run, const char *const *states, size_t count)
{
    const char *state = js_string_of(js_get(run, "state"), "");
    for (size_t i = 0; i < count; i++)
        if (strcmp(states[i], state) == 0)
            return true;
    return false;
}

// NULL after a sentence.
static struct json *shown_run(struct client *client, const char *run)
{
    char *path = client_run_path(client, run);
    struct json *shown = path ? client_get(client, path) : NULL;
    free(path);
    return shown;
}

// The runs of one submission have its number in common; one that was adopted came with no other.
static bool is_together(const struct json *run, const struct json *other)
{
    int64_t number = js_integer_of(js_get(other, "submission"), 0);
    if (number > 0)
        return js_integer_of(js_get(run, "submission"), 0) == number;
    return strcmp(js_string_of(js_get(run, "run_id"), ""), js_string_of(js_get(other, "run_id"), "")) == 0;
}

struct json *listed_runs(struct client *client, const struct listed_choice *choice)
{
    struct json *with = choice->submission ? shown_run(client, choice->submission) : NULL;
    if (choice->submission && !with)
        return NULL;
    char *path = choice->project ? string_format("/api/v1/runs?project=%s", choice->project) : string_copy("/api/v1/runs");
    struct json *answer = client_get(client, path), *chosen = answer ? js_array() : NULL;
    const struct json *all = js_get(answer, "runs");
    free(path);
    for (size_t i = 0; chosen && i < js_count(all); i++) {
        const struct json *run = js_at(all, i);
        if ((!with || is_together(run, with)) && (choice->states_count == 0 || listed_is_in(run, choice->states, choice->states_count)))
            js_append(chosen, js_keep(run));
    }
    js_free(answer);
    js_free(with);
    return chosen;
}

static int phase_of(const struct json *run)
{
    static const char *const at_work[] = {"running", "finishing"};
    return listed_is_in(run, at_work, sizeof at_work / sizeof *at_work) ? 0 : view_ended(run) ? 2 : 1;
}

struct json *listed_by_phase(const struct json *runs)
{
    struct json *ordered = js_array();
    for (int phase = 0; phase < 3; phase++)
        for (size_t i = 0; i < js_count(runs); i++)
            if (phase_of(js_at(runs, i)) == phase)
                js_append(ordered, js_keep(js_at(runs, i)));
    return ordered;
}
