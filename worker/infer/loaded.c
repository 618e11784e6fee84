#include "worker/infer/loaded.h"
#include "worker/train/checkpoint.h"

#include <sched.h>

int loaded_device(const struct device **device, const struct spec *spec, int64_t threads, struct error *err)
{
    cpu_set_t usable;
    if (spec->resources.device == DEVICE_CUDA)
        return error_set(err, "resources.device: this build cannot compute on cuda yet");
    if (threads == 0)
        threads = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : 1;
    *device = spec->resources.device == DEVICE_REFERENCE ? device_reference() : device_cpu((int)threads);
    return 0;
}

int loaded_open(struct loaded *loaded, const struct trained *trained, int64_t threads, struct error *err)
{
    *loaded = (struct loaded){.self = comm_self()};
    if (loaded_device(&loaded->device, &trained->job.spec, threads, err) != 0 ||
        parallel_init(&loaded->parallel, &trained->job.spec, loaded->self, err) != 0 ||
        model_new_for_inference(&loaded->model, &trained->job.spec, loaded->device, &loaded->parallel, NULL, err) != 0)
        return -1;
    int status = checkpoint_weights(loaded->model, trained->checkpoint, err);
    model_refresh_weights(loaded->model);
    return status;
}

void loaded_close(struct loaded *loaded)
{
    model_free(loaded->model);
    parallel_release(&loaded->parallel);
    comm_finish(loaded->self);
}
