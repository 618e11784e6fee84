// What happened to a run, for people: a line an event, but one for checkpoints that come one after another.
#pragma once
#include "schema/base/json.h"

void show_events(const struct json *events, const struct json *left_out); // the two members of a run that is shown
