// The places of a sweep with `concurrency`: how many of a submission's trials may be with an executor at once, whichever that is.
#include "daemon/core/core.h"

#include <stdlib.h>

// Counted once in a round; what starts in it is counted by who starts it.
struct sweep_place *places_of(struct daemon *daemon, struct sweep_places *places, const struct queued *queued)
{
    if (!queued->experiment || queued->concurrency <= 0)
        return NULL;
    for (size_t i = places->count; i-- > 0;)
        if (places->at[i].experiment == queued->experiment)
            return &places->at[i];
    places->at = reallocate(places->at, places->count + 1, sizeof *places->at);
    struct sweep_place *place = &places->at[places->count++];
    *place = (struct sweep_place){.experiment = queued->experiment, .most = queued->concurrency};
    pthread_mutex_lock(&daemon->lock);
    place->taken = state_trials_started(daemon->state, queued->experiment);
    pthread_mutex_unlock(&daemon->lock);
    return place;
}

void places_release(struct sweep_places *places)
{
    free(places->at);
    *places = (struct sweep_places){0};
}
