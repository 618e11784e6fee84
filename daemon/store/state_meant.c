// What may have been meant by a word that names no run: the run it lacks the number of, its project, the number of its job, a slip of the
// fingers. For people, after a look-up has failed; no tick asks.
#include "daemon/store/state_inside.h"
#include "schema/base/near.h"

#include <stdlib.h>
#include <string.h>

enum { NEAR_NAMES = 1000 }; // the newest runs, whose names are compared letter by letter

// The answer's first column, or NULL. free()
static char *first_answer(struct state *state, const char *question, const char *a, const char *b)
{
    struct error err;
    struct sql_query *query = sql_ask(state->sql, &err, question, "tt", a, b);
    char *answer = query && sql_step(query, &err) > 0 ? string_copy(sql_text(query, 0)) : NULL;
    if (query)
        sql_done(query);
    return answer;
}

static char *near_run(struct state *state, const char *project, const char *name)
{
    struct error err;
    struct sql_query *query = sql_ask(state->sql, &err, "SELECT name, project || '/' || name FROM runs WHERE ?1 IS NULL OR project = ?1 "
        "ORDER BY id DESC LIMIT ?2", "ti", project, (int64_t)NEAR_NAMES);
    char **names = allocate(NEAR_NAMES, sizeof *names), **whole = allocate(NEAR_NAMES, sizeof *whole), *found = NULL;
    size_t count = 0;
    while (query && count < NEAR_NAMES && sql_step(query, &err) > 0) {
        names[count] = string_copy(sql_text(query, 0));
        whole[count++] = string_copy(sql_text(query, 1));
    }
    if (query)
        sql_done(query);
    const char *near = near_name(name, (const char *const *)names, count);
    for (size_t i = 0; i < count; i++) {
        if (!found && near == names[i])
            found = string_copy(whole[i]);
        free(names[i]);
        free(whole[i]);
    }
    free(names);
    free(whole);
    return found;
}

bool state_has_project(struct state *state, const char *project)
{
    char *one = first_answer(state, "SELECT project FROM runs WHERE project = ?1 AND ?2 IS NULL LIMIT 1", project, NULL);
    free(one);
    return one != NULL;
}

char *state_run_meant(struct state *state, const char *text)
{
    const char *slash = strchr(text, '/'), *name = slash ? slash + 1 : text;
    char *project = slash ? string_format("%.*s", (int)(slash - text), text) : NULL;
    // '-' and '.' are neighbours: the names that go on with '-', those first that go on with a number alone.
    char *run = first_answer(state, "SELECT project || '/' || name FROM runs WHERE name > ?1 || '-' AND name < ?1 || '.' AND (?2 IS NULL OR project = ?2) "
        "ORDER BY instr(substr(name, length(?1) + 2), '-') > 0, id DESC LIMIT 1", name, project);
    char *job = run || slash ? NULL : first_answer(state, "SELECT r.project || '/' || r.name FROM attempts a JOIN runs r ON r.id = a.run WHERE a.job = ?1 "
        "AND ?2 IS NULL ORDER BY r.id DESC LIMIT 1", name, NULL);
    if (!run && !job && !state_has_project(state, text))
        run = near_run(state, project, name);
    char *sentence = run ? string_format("; did you mean %s?", run)
        : job            ? string_format("; it is the number of a job of %s", job)
        : !slash && state_has_project(state, text) ? string_format("; %s is a project: `switchyard ls --project %s` has its runs", text, text)
                                                   : string_copy("");
    free(job);
    free(run);
    free(project);
    return sentence;
}
