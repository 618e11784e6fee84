// Formats of two bytes: numbers there and back, products that round what they read and write, and what else reads or writes weights. Every
// device of a format is judged by the reference's fp64 sums over operands that the reference has rounded: a result must be the number next
// to the exact sum, give or take the error that fp32 sums are allowed.
#include "schema/base/text.h"
#include "tests/ops/trial.h"
#include "worker/device/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char *const names[FORMATS] = {"fp32", "bf16", "fp16"}, *const instruction_sets[] = {"plain", "avx2", "avx512", "avx512bf16"};

// Calls each(device) with the reference and every cpu device of the format, one thread each.
static void each_alone(enum format format, void (*each)(const struct device *device))
{
    each(device_reference_in(format));
    for (size_t k = 0; k < sizeof instruction_sets / sizeof *instruction_sets; k++)
        if (cpu_has(instruction_sets[k]))
            each(cpu_configure_in(1, instruction_sets[k], format));
}

// The same, and two threads behind the guard after one.
static void each_device(enum format format, void (*each)(const struct device *device))
{
    each(device_reference_in(format));
    for (size_t k = 0; k < sizeof instruction_sets / sizeof *instruction_sets; k++) {
        if (!cpu_has(instruction_sets[k]))
            continue;
        each(cpu_configure_in(1, instruction_sets[k], format));
        const struct device *threaded = cpu_configure_in(2, instruction_sets[k], format);
        cpu.least_work = 0;
        each(device_guard(threaded));
    }
}

static void *upload(const struct device *device, const double *values, size_t count)
{
    void *at = device->memory->alloc((count + 1) * device->real_bytes);
    device->ops->from_double(at, values, count);
    return at;
}

static void *upload_weights(const struct device *device, const double *values, size_t count)
{
    void *reals = upload(device, values, count), *at = device->memory->alloc((count + 1) * device->weight_bytes);
    device->ops->narrow_rows(at, reals, NULL, 1, count);
    device->memory->free(reals, (count + 1) * device->real_bytes);
    return at;
}

static double *download(const struct device *device, void *at, size_t count)
{
    double *values = allocate(count, sizeof *values);
    device->ops->to_double(values, at, count);
    device->memory->free(at, (count + 1) * device->real_bytes);
    return values;
}

static double *randoms(size_t count, double scale)
{
    double *values = allocate(count, sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)(normal() * scale);
    return values;
}

// Through the format and back on the reference.
static double *through(enum format format, const double *values, size_t count)
{
    const struct device *device = device_reference_in(format);
    void *at = upload(device, values, count);
    device->ops->round_rows(at, at, NULL, 1, count);
    return download(device, at, count);
}

// ---- numbers ----

static void test_known_numbers(void **test)
{
    (void)test;
    static const struct {
        enum format format;
        double in, out;
        uint16_t bytes;
    } known[] = {
        {FORMAT_BF16, 1, 1, 0x3f80}, {FORMAT_BF16, -2.5, -2.5, 0xc020}, {FORMAT_BF16, 0, 0, 0},
        {FORMAT_BF16, 1 + 0x1p-8, 1, 0x3f80}, {FORMAT_BF16, 1 + 3 * 0x1p-8, 1 + 0x1p-6, 0x3f82}, // ties go to the even one
        {FORMAT_BF16, 1 + 0x1p-8 + 0x1p-20, 1 + 0x1p-7, 0x3f81}, {FORMAT_BF16, 0x1.fep127, 0x1.fep127, 0x7f7f},
        {FORMAT_BF16, 0x1.ffp127, INFINITY, 0x7f80}, {FORMAT_BF16, -INFINITY, -INFINITY, 0xff80}, {FORMAT_BF16, 0x1p-126, 0x1p-126, 0x0080},
        {FORMAT_FP16, 1, 1, 0x3c00}, {FORMAT_FP16, 65504, 65504, 0x7bff}, {FORMAT_FP16, 65519.996, 65504, 0x7bff},
        {FORMAT_FP16, 65520, INFINITY, 0x7c00}, {FORMAT_FP16, -1e6, -INFINITY, 0xfc00}, {FORMAT_FP16, 0x1p-24, 0x1p-24, 0x0001},
        {FORMAT_FP16, 0x1p-25, 0, 0x0000}, {FORMAT_FP16, 0x1.8p-24, 0x1p-23, 0x0002}, {FORMAT_FP16, 0x1p-14, 0x1p-14, 0x0400},
        {FORMAT_FP16, 1 + 0x1p-11, 1, 0x3c00}, {FORMAT_FP16, 1 + 3 * 0x1p-11, 1 + 0x1p-9, 0x3c02},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint16_t mine = narrowed((float)known[i].in, known[i].format), judged;
        void *at = upload_weights(device_reference_in(known[i].format), &known[i].in, 1);
        memcpy(&judged, at, sizeof judged);
        if (mine != known[i].bytes || judged != known[i].bytes || (double)widened(mine, known[i].format) != known[i].out)
            fail_msg("%s %a: %04x, the reference %04x, expected %04x", names[known[i].format], known[i].in, mine, judged, known[i].bytes);
        device_reference()->memory->free(at, 2 * sizeof(uint16_t));
    }
}

static void all_numbers(const struct device *device)
{
    enum { ALL = 1 << 16 };
    uint16_t *numbers = allocate(ALL, sizeof *numbers), *again = allocate(ALL, sizeof *again);
    double *expected = allocate(ALL, sizeof *expected);
    for (size_t i = 0; i < ALL; i++) {
        numbers[i] = (uint16_t)i;
        expected[i] = widened(numbers[i], device->format);
    }
    void *narrow = device->memory->alloc(ALL * device->weight_bytes), *wide = device->memory->alloc((ALL + 1) * device->real_bytes);
    device->memory->upload(narrow, numbers, ALL * sizeof *numbers);
    device->ops->widen_rows(wide, narrow, NULL, 4, ALL / 4);
    device->ops->narrow_rows(narrow, wide, NULL, 4, ALL / 4);
    device->memory->read_back(again, narrow, ALL * sizeof *again);
    double *actual = download(device, wide, ALL);
    for (size_t i = 0; i < ALL; i++) {
        if (isnan(expected[i]) ? !isnan(actual[i]) : actual[i] != expected[i] || again[i] != numbers[i])
            fail_msg("%s, %s: number %04zx is %g, expected %g, and goes back as %04x", device->name, device->isa, i, actual[i], expected[i], again[i]);
    }
    device->memory->free(narrow, ALL * device->weight_bytes);
    free(numbers);
    free(again);
    free(expected);
    free(actual);
}

// Rounded as the reference rounds, at every size of number and every length of a row.
static void rounds(const struct device *device)
{
    enum { COUNT = 3000 };
    double *values = randoms(COUNT, 1);
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)ldexp(values[i], (int)below(60) - 30);
    uint32_t half = device->format == FORMAT_BF16 ? 0x8000u : 0x1000u; // what of a float's bits makes a tie
    for (size_t i = 0; i < COUNT; i += 3)
        values[i] = float_of_bits((float_bits((float)values[i]) & ~(2 * half - 1)) | half);
    double *expected = through(device->format, values, COUNT);
    for (size_t length = 1; length <= 67; length += 11) {
        void *at = upload(device, values, COUNT);
        device->ops->round_rows(at, at, NULL, COUNT / length, length);
        double *actual = download(device, at, COUNT);
        for (size_t i = 0; i < COUNT / length * length; i++)
            if (actual[i] != expected[i])
                fail_msg("%s, %s: %a becomes %a, expected %a", device->name, device->isa, values[i], actual[i], expected[i]);
        free(actual);
    }
    free(values);
    free(expected);
}

// An index gathers on the way.
static void gathers(const struct device *device)
{
    enum { R = 5, C = 33 };
    static const int32_t index[R] = {3, 0, 4, 4, 1};
    double *values = randoms(R * C, 1), *expected = through(device->format, values, R * C);
    int32_t *known = device->memory->alloc(sizeof index);
    device->memory->upload(known, index, sizeof index);
    void *in = upload(device, values, R * C), *narrow = device->memory->alloc(R * C * device->weight_bytes);
    void *outs[2] = {upload(device, values, R * C), upload(device, values, R * C)};
    device->ops->round_rows(outs[0], in, known, R, C);
    device->ops->narrow_rows(narrow, in, NULL, R, C);
    device->ops->widen_rows(outs[1], narrow, known, R, C);
    device->ops->narrow_rows(narrow, in, known, R, C);
    device->ops->widen_rows(in, narrow, NULL, R, C);
    double *actual[3] = {download(device, outs[0], R * C), download(device, outs[1], R * C), download(device, in, R * C)};
    for (size_t r = 0; r < R; r++)
        for (size_t way = 0; way < 3; way++)
            assert_true(same_bits(actual[way] + r * C, expected + (size_t)index[r] * C, C));
    device->memory->free(known, sizeof index);
    device->memory->free(narrow, R * C * device->weight_bytes);
    for (size_t way = 0; way < 3; way++)
        free(actual[way]);
    free(values);
    free(expected);
}

static void test_numbers(void **test)
{
    (void)test;
    for (enum format format = FORMAT_BF16; format < FORMATS; format++) {
        each_alone(format, all_numbers);
        each_device(format, rounds);
        each_device(format, gathers);
    }
}

// ---- products ----

// Half the distance between numbers of the format next to x.
static double half_step(enum format format, double x)
{
    int exponent, digits = format == FORMAT_BF16 ? 8 : 11, least = format == FORMAT_BF16 ? -125 : -13;
    frexp(x, &exponent);
    return format == FORMAT_FP32 ? 0 : ldexp(1, (exponent > least ? exponent : least) - digits - 1);
}

static void judge(const char *what, const struct device *device, enum format written, const double *actual, const double *exact, size_t count)
{
    double largest = 1e-30;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(exact[i]));
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(actual[i] - exact[i]) <= half_step(written, exact[i]) * (1 + 1e-3) + 4e-6 * largest))
            fail_msg("%s on %s, %s: element %zu is %.9g, exact %.9g", what, device->name, device->isa, i, actual[i], exact[i]);
        if (written != FORMAT_FP32 && (double)widened(narrowed((float)actual[i], written), written) != actual[i])
            fail_msg("%s on %s, %s: element %zu is %.9g, which is no number of the format", what, device->name, device->isa, i, actual[i]);
    }
}

struct operands { // of one linear layer, plain or in groups: values, and as the format has them
    size_t T, N, K, groups;
    int64_t counts[8];
    double *x, *dout, *weight, *x_f, *dout_f, *weight_f;
};

static void operands_init(struct operands *o, enum format format)
{
    size_t weights = o->groups * o->N * o->K;
    o->x = randoms(o->T * o->K, 1);
    o->dout = randoms(o->T * o->N, 1);
    o->weight = randoms(weights, 0.1);
    o->x_f = through(format, o->x, o->T * o->K);
    o->dout_f = through(format, o->dout, o->T * o->N);
    o->weight_f = through(format, o->weight, weights);
}

static void operands_release(struct operands *o)
{
    double *const all[] = {o->x, o->dout, o->weight, o->x_f, o->dout_f, o->weight_f};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void run_kind(const struct device *device, const struct operands *o, size_t kind, void *x, void *dout, void *weight)
{
    const struct device_ops *ops = device->ops;
    if (o->groups == 1 && kind == 0)
        ops->linear_forward(dout, x, weight, o->T, o->N, o->K);
    else if (o->groups == 1 && kind == 1)
        ops->linear_dinput(x, dout, weight, o->T, o->N, o->K);
    else if (o->groups == 1)
        ops->linear_dweight(weight, dout, x, o->T, o->N, o->K);
    else if (kind == 0)
        ops->grouped_forward(dout, x, weight, o->counts, o->groups, o->N, o->K);
    else if (kind == 1)
        ops->grouped_dinput(x, dout, weight, o->counts, o->groups, o->N, o->K);
    else
        ops->grouped_dweight(weight, dout, x, o->counts, o->groups, o->N, o->K);
}

// The result of one of the three products on a device; dweight starts from the weights as reals.
static double *result(const struct device *device, const struct operands *o, size_t kind, const double *x, const double *dout, const double *weight)
{
    size_t weights = o->groups * o->N * o->K;
    void *at[3] = {upload(device, dout, o->T * o->N), upload(device, x, o->T * o->K),
        kind == 2 ? upload(device, weight, weights) : upload_weights(device, weight, weights)};
    run_kind(device, o, kind, at[1], at[0], at[2]);
    size_t counts[3] = {o->T * o->N, o->T * o->K, weights}, bytes[3] = {device->real_bytes, device->real_bytes,
        kind == 2 ? device->real_bytes : device->weight_bytes};
    double *values = NULL;
    for (size_t i = 0; i < 3; i++)
        if (i == kind)
            values = download(device, at[i], counts[i]);
        else
            device->memory->free(at[i], (counts[i] + 1) * bytes[i]);
    return values;
}

static struct operands given;
static double *exact[3], *first_bits[3];

static void judge_products(const struct device *device)
{
    static const char *const kinds[] = {"forward", "dinput", "dweight"};
    size_t counts[3] = {given.T * given.N, given.T * given.K, given.groups * given.N * given.K};
    for (size_t kind = 0; kind < 3; kind++) {
        double *actual = result(device, &given, kind, given.x, given.dout, given.weight);
        char what[128];
        snprintf(what, sizeof what, "%s%s %zu×%zu×%zu in %s", given.groups > 1 ? "grouped " : "", kinds[kind], given.T, given.N, given.K,
            names[device->format]);
        judge(what, device, kind == 2 ? FORMAT_FP32 : device->format, actual, exact[kind], counts[kind]);
        if (strncmp(device->name, "guard", 5) != 0) { // the next device is the same with two threads
            free(first_bits[kind]);
            first_bits[kind] = actual;
        } else {
            if (!same_bits(actual, first_bits[kind], counts[kind]))
                fail_msg("%s on %s: two threads give other bits", what, device->isa);
            free(actual);
        }
    }
}

static void products_case(struct operands shape)
{
    for (enum format format = FORMAT_BF16; format < FORMATS; format++) {
        given = shape;
        operands_init(&given, format);
        for (size_t kind = 0; kind < 3; kind++)
            exact[kind] = result(device_reference_f64(), &given, kind, given.x_f, given.dout_f, kind == 2 ? given.weight : given.weight_f);
        each_device(format, judge_products);
        for (size_t kind = 0; kind < 3; kind++) {
            free(exact[kind]);
            free(first_bits[kind]);
            first_bits[kind] = NULL;
        }
        operands_release(&given);
    }
}

static void test_products(void **test)
{
    (void)test;
    static const size_t odd[] = {1, 2, 3, 7, 16, 33, 65};
    enum { ODD = sizeof odd / sizeof *odd };
    for (size_t i = 0; i < ODD * ODD * ODD; i += 11)
        products_case((struct operands){.T = odd[i % ODD], .N = odd[i / ODD % ODD], .K = odd[i / (ODD * ODD)], .groups = 1});
    static const size_t blocks[][3] = {{173, 40, 300}, {300, 173, 41}, {40, 301, 173}, {15, 530, 257}, {257, 15, 531}, {531, 257, 15}, {31, 48, 1033},
        {1033, 31, 48}, {48, 1033, 31}, {3, 5, 0}, {0, 5, 3}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        products_case((struct operands){.T = blocks[i][0], .N = blocks[i][1], .K = blocks[i][2], .groups = 1});
}

static void test_grouped(void **test)
{
    (void)test;
    products_case((struct operands){.T = 23, .N = 13, .K = 7, .groups = 4, .counts = {5, 0, 1, 17}});
    products_case((struct operands){.T = 302, .N = 37, .K = 270, .groups = 2, .counts = {300, 2}});
    products_case((struct operands){.T = 209, .N = 40, .K = 36, .groups = 8, .counts = {3, 33, 0, 7, 65, 1, 10, 90}});
}

// Rows of a product have the same bits alone and among others; a group's too.
static void rows_alone(const struct device *device)
{
    enum { T = 67, N = 45, K = 301 };
    struct operands all = {.T = T, .N = N, .K = K, .groups = 1};
    operands_init(&all, device->format);
    for (size_t kind = 0; kind < 2; kind++) {
        size_t width = kind ? K : N;
        double *whole = result(device, &all, kind, all.x, all.dout, all.weight);
        for (size_t row = 0; row < T; row += 3)
            for (size_t rows = 1; row + rows <= T; rows += 13) {
                struct operands some = {.T = rows, .N = N, .K = K, .groups = 1};
                double *part = result(device, &some, kind, all.x + row * K, all.dout + row * N, all.weight);
                if (!same_bits(part, whole + row * width, rows * width))
                    fail_msg("product %zu in %s on %s: rows %zu…%zu have other bits alone", kind, names[device->format], device->isa, row, row + rows - 1);
                free(part);
            }
        free(whole);
    }
    struct operands grouped = {.T = T, .N = N, .K = 7, .groups = 3, .counts = {20, 0, 47}};
    operands_init(&grouped, device->format);
    for (size_t kind = 0; kind < 3; kind++) {
        double *whole = result(device, &grouped, kind, grouped.x, grouped.dout, grouped.weight);
        size_t row = 0, matrix = N * 7;
        for (size_t g = 0; g < 3; row += (size_t)grouped.counts[g++]) {
            struct operands one = {.T = (size_t)grouped.counts[g], .N = N, .K = 7, .groups = 1};
            double *alone = result(device, &one, kind, grouped.x + row * 7, grouped.dout + row * N, grouped.weight + g * matrix);
            size_t at[3] = {row * N, row * 7, g * matrix}, size[3] = {one.T * N, one.T * 7, matrix};
            if (!same_bits(alone, whole + at[kind], size[kind]))
                fail_msg("grouped product %zu in %s on %s: group %zu has other bits alone", kind, names[device->format], device->isa, g);
            free(alone);
        }
        free(whole);
    }
    operands_release(&grouped);
    operands_release(&all);
}

// A weight's gradient may be made of pieces, cut where device.h says.
static void rows_cut(const struct device *device)
{
    enum { T = 3 * DWEIGHT_ROWS + 77, N = 37, K = 29, CUT = 2 * DWEIGHT_ROWS };
    double *x = randoms(T * K, 1), *dout = randoms(T * N, 1), *weight = randoms(N * K, 1);
    void *at = upload(device, x, T * K), *from = upload(device, dout, T * N), *sums[2] = {upload(device, weight, N * K), upload(device, weight, N * K)};
    device->ops->linear_dweight(sums[0], from, at, T, N, K);
    device->ops->linear_dweight(sums[1], from, at, CUT, N, K);
    device->ops->linear_dweight(sums[1], real_at(device, from, CUT * N), real_at(device, at, CUT * K), T - CUT, N, K);
    double *whole = download(device, sums[0], N * K), *pieces = download(device, sums[1], N * K);
    if (!same_bits(whole, pieces, N * K))
        fail_msg("a weight's gradient in pieces has other bits in %s on %s", names[device->format], device->isa);
    device->memory->free(at, (T * K + 1) * device->real_bytes);
    device->memory->free(from, (T * N + 1) * device->real_bytes);
    double *const values[] = {x, dout, weight, whole, pieces};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        free(values[i]);
}

static void test_rows_cut(void **test)
{
    (void)test;
    for (enum format format = FORMAT_BF16; format < FORMATS; format++)
        for (size_t k = 0; k < sizeof instruction_sets / sizeof *instruction_sets; k++)
            if (cpu_has(instruction_sets[k]))
                rows_cut(cpu_configure_in(1, instruction_sets[k], format));
}

static void test_rows_alone(void **test)
{
    (void)test;
    for (enum format format = FORMAT_BF16; format < FORMATS; format++)
        each_alone(format, rows_alone);
}

// ---- the router's products, on every device in every arithmetic ----

static void router(const struct device *device)
{
    enum { T = 37, E = 9, C = 65 };
    const struct device_ops *ops = device->ops;
    for (enum arithmetic arithmetic = ARITHMETIC_FP32; arithmetic <= ARITHMETIC_FP64; arithmetic++) {
        struct operands o = {.T = T, .N = E, .K = C, .groups = 1};
        operands_init(&o, arithmetic == ARITHMETIC_BF16 ? FORMAT_BF16 : FORMAT_FP32);
        for (size_t kind = 0; kind < 3; kind++) {
            double *expected = result(device_reference_f64(), &o, kind, o.x_f, o.dout_f, kind == 2 ? o.weight : o.weight_f);
            void *x = upload(device, o.x, T * C), *dlogits = upload(device, o.dout, T * E), *weight = upload(device, o.weight, E * C);
            if (kind == 0)
                ops->router_linear_forward(dlogits, x, weight, T, E, C, arithmetic);
            else if (kind == 1)
                ops->router_linear_dinput(x, dlogits, weight, T, E, C, arithmetic);
            else
                ops->router_linear_dweight(weight, dlogits, x, T, E, C, arithmetic);
            double *actual[3] = {download(device, dlogits, T * E), download(device, x, T * C), download(device, weight, E * C)};
            size_t counts[3] = {T * E, T * C, E * C};
            judge("the router's product", device, FORMAT_FP32, actual[kind], expected, counts[kind]);
            for (size_t i = 0; i < 3; i++)
                free(actual[i]);
            free(expected);
        }
        operands_release(&o);
    }
}

static void test_router(void **test)
{
    (void)test;
    for (enum format format = FORMAT_FP32; format < FORMATS; format++)
        each_alone(format, router);
}

// ---- embedding, biases, optimizer ----

static void weights_elsewhere(const struct device *device)
{
    enum { V = 7, C = 35, T = 6 };
    static const int32_t tokens[T] = {3, 0, 6, 6, 2, 3};
    double *table = randoms(V * C, 1), *rounded = through(device->format, table, V * C);
    int32_t *known = device->memory->alloc(sizeof tokens);
    device->memory->upload(known, tokens, sizeof tokens);
    void *weights = upload_weights(device, table, V * C), *out = upload(device, table, T * C), *bias = upload(device, table, C);
    device->ops->embedding_forward(out, weights, known, T, C);
    device->ops->bias_add(out, bias, 2, C); // the first two rows
    double *actual = download(device, out, T * C), *biased = allocate(2 * C, sizeof *biased);
    for (size_t t = 0; t < T; t++)
        for (size_t c = 0; c < C; c++) {
            double *row = &rounded[(size_t)tokens[t] * C + c];
            if (t < 2)
                biased[t * C + c] = (float)((float)*row + (float)table[c]);
            else
                assert_true(actual[t * C + c] == *row);
        }
    judge("a bias", device, device->format, actual, biased, 2 * C);

    double moments[V * C] = {0};
    void *param = upload(device, table, V * C), *m = upload(device, moments, V * C), *v = upload(device, moments, V * C);
    void *gradient = upload(device, rounded, V * C), *copy = upload(device, table, V * C);
    device->ops->adamw(param, weights, m, v, gradient, V * C, 1, 1e-2, 0.9, 0.95, 1e-8, 0.1, 1);
    device->ops->widen_rows(copy, weights, NULL, V, C);
    double *updated = download(device, param, V * C), *expected = through(device->format, updated, V * C), *copied = download(device, copy, V * C);
    assert_true(same_bits(copied, expected, V * C) && !same_bits(copied, rounded, V * C));
    void *const rest[] = {bias, m, v, gradient};
    const size_t counts[] = {C, V * C, V * C, V * C};
    for (size_t i = 0; i < 4; i++)
        device->memory->free(rest[i], (counts[i] + 1) * device->real_bytes);
    device->memory->free(weights, (V * C + 1) * device->weight_bytes);
    device->memory->free(known, sizeof tokens);
    double *const values[] = {table, rounded, actual, biased, updated, expected, copied};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        free(values[i]);
}

static void test_weights_elsewhere(void **test)
{
    (void)test;
    for (enum format format = FORMAT_BF16; format < FORMATS; format++)
        each_device(format, weights_elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_numbers),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_grouped),
        cmocka_unit_test(test_rows_alone),
        cmocka_unit_test(test_rows_cut),
        cmocka_unit_test(test_router),
        cmocka_unit_test(test_weights_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
