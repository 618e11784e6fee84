#include "worker/infer/loaded.h"
#include "worker/train/checkpoint.h"
#include "worker/train/compute.h"

int loaded_prepare(struct loaded *loaded, struct trained *trained, int64_t threads, struct error *err)
{
    int used;
    *loaded = (struct loaded){.self = comm_self()};
    trained->job.spec.resources.threads_per_rank = threads;
    if (compute_device(&loaded->device, &used, &trained->job.spec, err) != 0)
        return -1;
    return parallel_init(&loaded->parallel, &trained->job.spec, loaded->self, err);
}

int loaded_read(struct loaded *loaded, const struct trained *trained, const struct expert_store *store, struct error *err)
{
    if (trained_verify(trained, store ? VERIFY_WEIGHTS_BUT_EXPERTS : VERIFY_WEIGHTS, err) != 0)
        return -1;
    if (model_new_for_inference(&loaded->model, &trained->job.spec, loaded->device, &loaded->parallel, store, err) != 0)
        return -1;
    struct extra_states extra = {0};
    extra_states_add_model(&extra, loaded->model);
    int status = checkpoint_weights(loaded->model, trained->checkpoint, err);
    if (status == 0)
        status = extra_states_load_model(&extra, trained->checkpoint, err);
    extra_states_release(&extra);
    return status;
}

int loaded_open(struct loaded *loaded, struct trained *trained, int64_t threads, struct error *err)
{
    return loaded_prepare(loaded, trained, threads, err) == 0 ? loaded_read(loaded, trained, NULL, err) : -1;
}

void loaded_close(struct loaded *loaded)
{
    model_free(loaded->model);
    parallel_release(&loaded->parallel);
    comm_finish(loaded->self);
}
