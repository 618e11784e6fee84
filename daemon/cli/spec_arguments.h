// What validate, plan, run and submit share: SPEC, --run NAME, --set path.to.key=value, and how faults of a spec are shown.
#pragma once
#include "daemon/cli/command.h"
#include "schema/spec/spec.h"

// Rows for a command's option table.
#define SPEC_OPTION_ROWS \
    {"run", 0, "NAME", true, "only this entry of `runs:` (repeatable)"}, \
    {"set", 0, "path.to.key=value", true, "applied last, to each chosen run (repeatable)"}

// Loads the spec named by the first word. Warnings and faults go to stderr with their places. CLI_DONE or CLI_USAGE; release in both cases.
int spec_arguments_load(struct spec_file *file, const struct arguments *arguments);
// The same without a word on stderr, for commands that put the faults into their JSON. 0 or -1.
int spec_arguments_load_quiet(struct spec_file *file, const struct arguments *arguments);
// For run and submit: says at its line what this build cannot run yet. CLI_DONE or CLI_USAGE.
int spec_arguments_require_runnable(const struct spec_file *file);

// spec_memory.c: adds what the plan's arithmetic says about memory to the faults and warnings, of each run whose sizes are good.
void spec_check_memory(struct spec_file *file);
// spec_cores.c: warns of runs that want more cores than this machine has.
void spec_check_cores(struct spec_file *file);
