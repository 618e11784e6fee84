// What routers did in a step, as metrics and as a record of loads, and the watch over a balance that has stopped moving.
#pragma once
#include "schema/base/json.h"
#include "worker/model/model.h"

// Adds the mean over MoE layers of the losses that are measured and of the tokens that were dropped, and, with per_layer_metrics, each layer's.
void routing_add_means(struct json *metrics, const struct moe_report *report, const struct spec *spec);
void routing_add_layers(struct json *metrics, const struct moe_report *report, const struct spec *spec);
struct json *routing_load(const struct moe_report *report, const struct spec *spec); // members of an expert_load record

// A balance loss that is exactly the same for BALANCE_STEPS steps, where tokens could go elsewhere, is no sign of health: it has lost its
// gradient (scores that are all the same, or counts that something overwrote), and 1.0 looks the same as balance.
enum { BALANCE_STEPS = 20 };
struct balance_watch {
    double *last;       // (layers): of the last step
    int64_t *steps;     // (layers): steps since it changed
};
void balance_watch_init(struct balance_watch *watch, const struct spec *spec);
void balance_watch_release(struct balance_watch *watch);
// One step. Returns the first layer whose balance has just become constant, or -1.
int64_t balance_watch_step(struct balance_watch *watch, const struct moe_report *report, const struct spec *spec);
