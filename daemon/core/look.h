// What the witnesses of a run say in this tick (look.c), for what is made of it (watch.c).
#pragma once
#include "daemon/core/core.h"

// Fills w, and end where there is an exit record; records are read on the way. attempt is the row of the run's last attempt, job what its executor
// says of it.
void watch_look(struct daemon *daemon, const struct view *view, const struct attempt_row *attempt, const struct job *job, struct witnesses *w,
    struct exit_record *end);
