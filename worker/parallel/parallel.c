#include "worker/parallel/parallel.h"

#include "schema/base/error.h"

#include <inttypes.h>

static struct comm *group_comm(const struct parallel *parallel, enum group_kind kind)
{
    struct comm *world = parallel->world;
    return world->ops->split(world, group_color(&parallel->layout, kind, world->rank), group_index(&parallel->layout, kind, world->rank));
}

int parallel_init(struct parallel *parallel, const struct spec *spec, struct comm *world, struct error *err)
{
    *parallel = (struct parallel){.world = world};
    if (layout_from_spec(&parallel->layout, spec, err) < 0)
        return -1;
    if (parallel->layout.world != world->size)
        return error_set(err, "the run is laid out for %" PRId64 " ranks (nodes · ranks_per_node), but %" PRId64 " were started",
            parallel->layout.world, world->size);
    parallel->dp = group_comm(parallel, GROUP_DP);
    parallel->ep = group_comm(parallel, GROUP_EP);
    parallel->edp = group_comm(parallel, GROUP_EDP);
    return 0;
}

void parallel_release(struct parallel *parallel)
{
    struct comm *groups[] = {parallel->edp, parallel->ep, parallel->dp};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (groups[i])
            groups[i]->ops->free(groups[i]);
    *parallel = (struct parallel){0};
}
