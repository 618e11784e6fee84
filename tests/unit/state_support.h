// What the tests of switchyard.db share: a database of their own, and rows for it.
#pragma once
#include "daemon/store/state.h"
#include "tests/unit/store_support.h"

static struct state *open_state(void **context)
{
    struct error err;
    struct state *state = NULL;
    char *path = in_folder(context, "home/switchyard.db");
    assert_fine(state_open(&state, path, &err), err);
    free(path);
    return state;
}

static struct run_row make_row(const char *project, const char *name, int number)
{
    struct run_row row = {.iterations = 7};
    snprintf(row.project, sizeof row.project, "%s", project);
    snprintf(row.name, sizeof row.name, "%s", name);
    snprintf(row.run_id, sizeof row.run_id, "%032x", number);
    strcpy(row.kind, "train");
    return row;
}

static int64_t add_run(struct state *state, const char *project, const char *name, int number, const char *expected_name)
{
    struct error err;
    struct run_row row = make_row(project, name, number);
    assert_fine(state_add_run(state, &row, &err), err);
    assert_string_equal(row.name, expected_name);
    int64_t id = row.id;
    run_row_release(&row);
    return id;
}
