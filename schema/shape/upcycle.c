#include "schema/shape/upcycle.h"
#include "schema/shape/params.h"

#include <math.h>

double upcycle_weight_scale(const struct spec *spec, int64_t experts)
{
    const struct spec_moe *moe = &spec->model.moe;
    double G = (double)spec->model.from.upcycle.granularity, expansion = (double)experts / G;
    double s = moe->pre_softmax ? expansion * G * G / (double)moe->top_k : G;
    return pow(s, dims_of(spec).gated ? 1.0 / 3.0 : 1.0 / 2.0);
}
