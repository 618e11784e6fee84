// What the parts of `inspect` share.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"

int inspect_print(struct json *json, struct error *err); // takes json
int inspect_complain(const struct error *err);           // the exit code of bad input
void inspect_show(const struct json *json);              // inspect_show.c: a checkpoint's description for people
