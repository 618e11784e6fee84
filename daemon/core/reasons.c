// New reasons for the same state: gathered over a group of runs and written together, for a scheduler may change its mind about ten thousand
// runs at once, and each transaction waits for a disk.
#include "daemon/core/core.h"
#include "schema/base/clock.h"

#include <stdlib.h>
#include <string.h>

struct reason { // of a run that stays in its state
    int64_t run;
    enum run_state state;
    const char *witness; // static
    char *text;
    bool told;           // as an event too
};

// A queue changes its mind every few seconds: it is shown, but told as an event only now and then.
void reason_say(struct daemon *daemon, const struct view *view, const struct judgement *judgement)
{
    struct watch *watch = view->watch;
    if (!judgement->reason[0] || (view->reason && strcmp(view->reason, judgement->reason) == 0))
        return;
    struct reasons *reasons = &daemon->reasons;
    if (reasons->count == reasons->room) {
        reasons->room = reasons->room ? 2 * reasons->room : 16;
        reasons->at = reallocate(reasons->at, reasons->room, sizeof *reasons->at);
    }
    double now = clock_steady();
    bool told = watch->reason_said == 0 || now - watch->reason_said >= REASON_PAUSE;
    if (told)
        watch->reason_said = now;
    reasons->at[reasons->count++] = (struct reason){view->id, judgement->to, judgement->witness, string_copy(judgement->reason), told};
}

void reasons_write(struct daemon *daemon)
{
    struct reasons *reasons = &daemon->reasons;
    struct error err = {0};
    if (reasons->count == 0)
        return;
    int status = change_begin(daemon, &err);
    if (status == 0) {
        for (size_t i = 0; i < reasons->count && status == 0; i++) {
            const struct reason *reason = &reasons->at[i];
            status = reason->told ? core_change(daemon, reason->run, reason->state, reason->text, reason->witness, &err)
                                  : state_set_reason(daemon->state, reason->run, reason->text, &err);
        }
        status = change_end(daemon, status, &err);
    }
    if (status != 0)
        core_log("reasons of %zu runs: %s", reasons->count, err.text);
    for (size_t i = 0; i < reasons->count; i++)
        free(reasons->at[i].text);
    reasons->count = 0;
}
