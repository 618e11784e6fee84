// Answers of the API as tables: what several commands show alike.
#pragma once
#include "schema/base/json.h"
#include <stdio.h>

void view_runs(FILE *out, const struct json *runs);             // the list's members
void view_comparison(FILE *out, const struct json *comparison);
char *view_value(const struct json *value);                     // any JSON value in one line; a string without quotes; free()
char *view_run_name(const struct json *run);                    // "project/name"; free()
char *view_state(const struct json *run);                        // its state, and that its loss is lost; free()
bool view_ended(const struct json *run);                        // its state is a last one
