// The places of a sweep with `concurrency`: how many of a submission's trials may be with an executor at once, whichever that is.
#include "daemon/core/core.h"

#include <stdio.h>
#include <stdlib.h>

// Counted once in a round; what starts in it is counted by who starts it.
static struct sweep_place *place_of(struct daemon *daemon, struct sweep_places *places, const struct trial_row *trial)
{
    for (size_t i = 0; i < places->count; i++)
        if (places->at[i].experiment == trial->experiment)
            return &places->at[i];
    places->at = reallocate(places->at, places->count + 1, sizeof *places->at);
    struct sweep_place *place = &places->at[places->count++];
    *place = (struct sweep_place){.experiment = trial->experiment, .most = trial->concurrency};
    place->taken = state_trials_started(daemon->state, trial->experiment);
    return place;
}

bool places_look(struct daemon *daemon, struct sweep_places *places, const struct view *view, struct sweep_place **place, char *reason, size_t size)
{
    struct trial_row trial;
    *place = NULL;
    pthread_mutex_lock(&daemon->lock);
    if (state_get_trial(daemon->state, view->id, &trial, NULL) == 0) {
        if (trial.concurrency > 0)
            *place = place_of(daemon, places, &trial);
        js_free(trial.sweep);
    }
    pthread_mutex_unlock(&daemon->lock);
    if (!*place || (*place)->taken < (*place)->most)
        return true;
    snprintf(reason, size, "waits for one of the sweep's %lld places (`sweep.concurrency`)", (long long)(*place)->most);
    return false;
}

void places_release(struct sweep_places *places)
{
    free(places->at);
    *places = (struct sweep_places){0};
}
