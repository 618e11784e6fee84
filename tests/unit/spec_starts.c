// Runs that start from other weights (model.from): what may not be, with the exact text that a user reads.
#include "tests/unit/spec_support.h"

static const struct {
    const char *lines;    // behind a spec that is good
    const char *expected; // the message, or NULL where all is good
} rules[] = {
    {"model: {from: {path: ck, upcycle: {}}}", "`model.from.upcycle` makes experts: it needs a model with experts (`model.moe`)"},
    {"model: {from: {path: ck, upcycle: {granularity: 4}}, moe: {experts: 8, top_k: 4, expert_ffn_hidden_size: 64}}", "an expert is a slice of the dense FFN: `granularity` 4 x `expert_ffn_hidden_size` 64 = 256 is not `model.ffn_hidden_size` 128"},
    {"model: {from: {path: ck, upcycle: {}}, moe: {experts: 8, expert_ffn_hidden_size: 48}}", "an expert is a slice of the dense FFN: `granularity` 2 x `expert_ffn_hidden_size` 48 = 96 is not `model.ffn_hidden_size` 128"},
    {"model: {from: {path: ck, upcycle: {}}, moe: {experts: 8, expert_ffn_hidden_size: 256}}", "an expert is a slice of the dense FFN: `granularity` 1 x `expert_ffn_hidden_size` 256 = 256 is not `model.ffn_hidden_size` 128"},
    {"model: {from: {path: ck, upcycle: {}}, moe: {experts: 6, top_k: 4, expert_ffn_hidden_size: 32}}", "`model.moe.experts` 6 is not divisible by `granularity` of `model.from.upcycle` 4 (remainder 2)"},
    {"model: {from: {path: ck, upcycle: {}}, moe: {experts_per_layer: [8, 6], top_k: 4, expert_ffn_hidden_size: 32}}", "`model.moe.experts_per_layer` 6 is not divisible by `granularity` of `model.from.upcycle` 4 (remainder 2)"},
    {"model: {from: {path: ck, upcycle: {}}, moe: {experts: 4, shared_expert_size: 16}}", "`model.from.upcycle` has no weights for a shared expert: the dense FFN becomes the routed ones"},
    {"model: {from: {path: ck, upcycle: {}}, moe: {experts: 4, residual: true}}", "`model.from.upcycle` has no weights for a residual FFN: the dense FFN becomes the experts"},
    {"model: {from: {path: ck, upcycle: {granularity: 4}}, moe: {experts: 8, top_k: 4, expert_ffn_hidden_size: 32}}", NULL},
    {"model: {from: {path: ck, upcycle: {granularity: 0}}, moe: {experts: 8}}", "`model.from.upcycle.granularity` expects a whole number from 1 to 65536, not `0`"},
    {"model: {from: {upcycle: {}}, moe: {experts: 8}}", "`model.from` needs exactly one of `run` and `path`"},
    {"runs: {a: {model: {from: {run: a}}}}", "`model.from.run`: run `a` would start from its own weights"},
    {"runs: {a: {model: {from: {run: b}}}, b: {}}", "`model.from.run`: run `b` saves no weights to start from: give it a `checkpoint.interval`"},
    {"runs: {a: {model: {from: {run: b}}}, b: {model: {from: {run: c}}}, c: {model: {from: {run: a}}}}", "`model.from.run`: run `b` would start from its own weights"},
    {"checkpoint: {interval: 5}\nruns: {a: {model: {from: {run: b}}}, b: {model: {from: {run: c}}}, c: {model: {from: {run: d}}}}", NULL},
    {"checkpoint: {interval: 5}\nruns: {a: {}, b: {model: {from: {run: a}, moe: {experts: 8, expert_ffn_hidden_size: 32}}}}", "`model.from.run`: run `a` is dense and this one has 8 experts a layer: `model.from.upcycle: {granularity: 4}` makes them of its FFN"},
    {"checkpoint: {interval: 5}\nruns: {a: {model: {moe: {experts: 4}}}, b: {model: {from: {run: a, upcycle: {}}, moe: {experts: 8}}}}", "`model.from.run`: `model.from.upcycle` takes a dense model, and run `a` has 4 experts a layer"},
    {"checkpoint: {interval: 5}\nruns: {a: {model: {moe: {experts: 4}}}, b: {model: {from: {run: a}}}}", "`model.from.run`: run `a` has 4 experts a layer and this one has none"},
    {"checkpoint: {interval: 5}\nruns: {a: {}, b: {model: {from: {run: a, upcycle: {}}, hidden_size: 32, moe: {experts: 8}}}}", "`model.from.run`: `model.hidden_size` is 32 and in run `a` 64: its weights do not fit"},
    {"checkpoint: {interval: 5}\nruns: {a: {}, b: {model: {from: {run: a, upcycle: {granularity: 2}}, ffn_hidden_size: 64, moe: {experts: 8, expert_ffn_hidden_size: 32}}}}", "`model.from.run`: `model.ffn_hidden_size` is 64 and in run `a` 128: its weights do not fit"},
    {"checkpoint: {interval: 5}\nruns: {a: {model: {moe: {experts: 4}}}, b: {model: {from: {run: a}, moe: {experts: 8}}}}", "`model.from.run`: `model.moe.experts` is 8 and in run `a` 4: its weights do not fit"},
    {"checkpoint: {interval: 5}\nruns: {a: {model: {moe: {experts: 4}}}, b: {model: {from: {run: a}, moe: {experts: 4, layer_frequency: 2}}}}", "`model.from.run`: layer 1 has 0 experts and in run `a` 4: its weights do not fit"},
    {"checkpoint: {interval: 5}\nruns: {a: {}, b: {model: {from: {run: a, upcycle: {}}, moe: {experts: 8, top_k: 4, expert_ffn_hidden_size: 32}}}}", NULL},
};

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        check_rule(rules[i].lines, rules[i].expected);
}

// A number of chosen experts that cuts FFNs is odd, but it is what some try.
static void test_odd_choice_only_warns(void **state)
{
    (void)state;
    struct spec_file file;
    assert_int_equal(load_text(&file, "base: good.yaml\nmodel: {from: {path: ck, upcycle: {}}, moe: {experts: 8, top_k: 3, expert_ffn_hidden_size: 64}}\n", NULL), 0);
    assert_true(has_message(file.warning_list, "`model.moe.top_k` 3 is not a multiple of `granularity` 2: a token's slices do not make whole FFNs"));
    assert_int_equal(file.runs[0].spec.model.from.upcycle.granularity, 2);
    spec_file_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rules), cmocka_unit_test(test_odd_choice_only_warns)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
