// A directory that is whole or absent: written under a name of its own beside its place, then renamed into it, which must be free. A signal that
// would end the program (TERM, INT, HUP) is kept meanwhile, so that nothing half written stays; only SIGKILL and a power loss leave
// something: a directory .export-HOST-XXXXXXXX.tmp beside the place, which the next export to there from that machine removes.
#pragma once
#include "schema/base/error.h"
#include <stdbool.h>

struct placed {
    char *target, *temporary; // absolute; temporary is to be filled
    int lock;                 // held while it is
};

int placed_begin(struct placed *placed, const char *path, struct error *err); // release in both cases, by placed_end
int placed_make(struct placed *placed, struct error *err); // the directory that is to be filled
// status 0: takes its place. Else, or where that is taken: nothing is left of it. A signal that was kept ends the program here.
int placed_end(struct placed *placed, int status, struct error *err);
bool placed_is_interrupted(void); // a signal has come: stop soon
