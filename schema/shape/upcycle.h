// A dense model becomes experts (model.from.upcycle), as Megatron does it (and arXiv 2410.07524): the arithmetic that `plan` shows and the
// worker makes weights by.
//
//   G = granularity, E experts of a layer, k = top_k; expansion = E / G: how often each slice of the dense FFN is there.
//   expert j: slice j mod G: rows of gate and up (and of their biases), columns of down; the bias of down as it is
//   router:   row j is row j div G of its own initial values: G neighbours, which together are one FFN, are chosen together
//   scale:    gate, up and down (and the biases of the first two) times s^(1/3) with a gate, s^(1/2) without;
//             s = expansion·G²/k where the softmax comes before the choice, else G
//   all else: the dense model's; layers that stay dense too
#pragma once
#include "schema/spec/spec.h"

double upcycle_weight_scale(const struct spec *spec, int64_t experts); // experts: of the layer
