// The plan for people: runs side by side in one table, then what is each run's own.
#include "daemon/cli/plan.h"
#include "daemon/cli/format.h"
#include "daemon/cli/table.h"
#include "schema/base/clock.h"
#include "schema/base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_ABREAST = 4, CURVE_WIDTH = 48, STAGES_SHOWN = 6 };
enum unit { COUNT, BYTES, PERCENT };

static const struct row {
    const char *label;
    const char *path; // into a run's plan, members joined by dots
    enum unit unit;
} rows[] = {
    {"parameters", "parameters.total", COUNT},
    {"  active for a token", "parameters.active", COUNT},
    {"FLOP per token", "flops_per_token", COUNT},
    {"tokens per step", "tokens_per_step", COUNT},
    {"tokens in all", "tokens_total", COUNT},
    {"micro batches per step and rank", "micro_batches", COUNT},
    {"ranks", "layout.world", COUNT},
    {"  data parallel", "layout.data", COUNT},
    {"  tensor parallel", "layout.tensor", COUNT},
    {"  pipeline parallel", "layout.pipeline", COUNT},
    {"  context parallel", "layout.context", COUNT},
    {"  expert parallel", "layout.expert", COUNT},
    {"  tensor parallel in experts", "layout.expert_tensor", COUNT},
    {"  replicas of each expert", "layout.expert_data", COUNT},
    {"threads per rank", "threads", COUNT},
    {"pipeline bubble", "bubble", PERCENT},
    {"memory per rank (bytes)", "memory.total", BYTES},
    {"  parameters", "memory.parameters", BYTES},
    {"  gradients", "memory.gradients", BYTES},
    {"  optimizer", "memory.optimizer", BYTES},
    {"  = state", "memory.state", BYTES},
    {"  activations, balanced routing", "memory.activations_balanced", BYTES},
    {"  dispatch, balanced routing", "memory.dispatch_balanced", BYTES},
    {"  activations, worst routing", "memory.activations_worst", BYTES},
    {"  dispatch, worst routing", "memory.dispatch_worst", BYTES},
    {"  total, worst routing", "memory.total_worst", BYTES},
    {"  the process itself (on CPUs)", "memory.process", BYTES},
    {"  copy for checkpoints (on the host)", "memory.checkpoint", BYTES},
    {"all-to-all per step and rank (bytes)", "alltoall_bytes_per_step", BYTES},
    {"  forward and backward", "volume.alltoall_passes", BYTES},
    {"    rows", "volume.alltoall_rows", BYTES},
    {"    router probabilities", "volume.alltoall_probabilities", BYTES},
    {"  repeated by recomputation", "volume.alltoall_recompute", BYTES},
    {"gradients reduced per step (bytes)", "volume.gradient_reduce", BYTES},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const struct json *member(const struct json *object, const char *path)
{
    char *copy = string_copy(path), *rest = NULL;
    for (char *key = strtok_r(copy, ".", &rest); key; key = strtok_r(NULL, ".", &rest))
        object = js_get(object, key);
    free(copy);
    return object;
}

// 9,142,778,880
static void write_count(struct text *out, int64_t count)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    for (int i = 0; i < length; i++)
        text_addf(out, i && digits[i - 1] != '-' && (length - i) % 3 == 0 ? ",%c" : "%c", digits[i]);
}

static char *cell(const struct json *run, const struct row *row)
{
    const struct json *value = member(run, row->path);
    struct text out;
    text_init(&out, 128);
    if (row->unit == PERCENT)
        text_addf(&out, "%.1f %%", 100 * js_real_of(value, 0));
    else if (js_kind(value) == JSON_KIND_INTEGER)
        write_count(&out, js_integer_of(value, 0));
    else
        js_write_real(&out, js_real_of(value, NAN));
    char human[FORMAT_MAX];
    double bytes = js_real_of(value, 0);
    if (row->unit == BYTES && bytes >= 1024)
        text_addf(&out, " = %s", format_bytes(human, bytes));
    return text_take(&out);
}

static void show_table(const struct json *runs, size_t first, size_t count)
{
    struct table table;
    char align[RUNS_ABREAST + 2] = "lrrrr";
    align[count + 1] = '\0';
    table_init(&table, align);
    table_cell(&table, "");
    for (size_t i = 0; i < count; i++)
        table_cell(&table, js_string_of(js_get(js_at(runs, first + i), "name"), ""));
    for (size_t r = 0; r < ROWS; r++) {
        table_cell(&table, rows[r].label);
        for (size_t i = 0; i < count; i++) {
            char *text = cell(js_at(runs, first + i), &rows[r]);
            table_cell(&table, text);
            free(text);
        }
    }
    table_print(&table, stdout, 0);
    table_release(&table);
}

// ---- each run's own ----

// The rate at a step, from the curve's points, straight lines between.
static double rate_at(const struct json *points, double step)
{
    double before = 0, rate = 0;
    for (size_t i = 0; i < js_count(points); i++) {
        double at = js_real_of(js_at(js_at(points, i), 0), 0), value = js_real_of(js_at(js_at(points, i), 1), 0);
        if (at >= step)
            return i == 0 || at == before ? value : rate + (value - rate) * (step - before) / (at - before);
        before = at;
        rate = value;
    }
    return rate;
}

void plan_show_rates(const char *name, const struct json *points)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    size_t count = js_count(points), highest = 0;
    if (count == 0)
        return;
    for (size_t i = 1; i < count; i++)
        if (js_real_of(js_at(js_at(points, i), 1), 0) > js_real_of(js_at(js_at(points, highest), 1), 0))
            highest = i;
    double last = js_real_of(js_at(js_at(points, count - 1), 0), 1), peak = js_real_of(js_at(js_at(points, highest), 1), 0);
    printf("  %-15s", strcmp(name, "expert_learning_rate") == 0 ? "expert rate" : "learning rate");
    for (int i = 0; i < CURVE_WIDTH; i++) {
        double part = peak > 0 ? rate_at(points, 1 + (last - 1) * i / (CURVE_WIDTH - 1)) / peak : 0;
        int height = (int)(part * 7 + 0.5);
        fputs(bars[height < 0 ? 0 : height > 7 ? 7 : height], stdout);
    }
    printf("  %.4g at step 1", js_real_of(js_at(js_at(points, 0), 1), 0));
    if (highest > 0 && highest + 1 < count)
        printf(", %.4g at %lld", peak, (long long)js_integer_of(js_at(js_at(points, highest), 0), 0));
    if (count > 1)
        printf(", %.4g at %.0f", js_real_of(js_at(js_at(points, count - 1), 1), 0), last);
    printf("\n");
}

void plan_show_ramp(const struct json *stages)
{
    size_t count = js_count(stages);
    for (size_t i = 0; i < count; i++) {
        const struct json *stage = js_at(stages, i);
        long long step = (long long)js_integer_of(js_at(stage, 0), 0), samples = (long long)js_integer_of(js_at(stage, 1), 0);
        if (i == 0)
            printf("  batch ramp     %lld samples a step", samples);
        else if (i < STAGES_SHOWN || i + 1 == count)
            printf(", %lld from step %lld", samples, step);
        else if (i == STAGES_SHOWN)
            printf(", …");
    }
    if (count)
        printf("\n");
}

// A word as it would have to be typed in a shell.
static void print_word(const char *word)
{
    if (*word && strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%") == strlen(word)) {
        fputs(word, stdout);
        return;
    }
    putchar('\'');
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stdout);
        else
            putchar(*word);
    putchar('\'');
}

static void show_words(const char *label, const struct json *words, size_t count)
{
    printf("  %-14s", label);
    for (size_t i = 0; i < count; i++) {
        putchar(' ');
        print_word(js_string_of(js_at(words, i), ""));
    }
}

// The words up to the command itself, which has a line of its own.
static void show_command(const struct json *run)
{
    const struct json *argv = js_get(run, "argv"), *sbatch = js_get(run, "sbatch"), *modules = js_get(run, "modules");
    if (sbatch) {
        show_words("sbatch", sbatch, js_count(sbatch) - js_count(argv));
    } else {
        show_words("job script", NULL, 0);
        putchar(' ');
        print_word(js_string_of(js_get(run, "job_script"), ""));
        putchar(' ');
        print_word(js_string_of(js_get(run, "run_directory"), ""));
        for (size_t i = 0; i < js_count(modules); i++) {
            printf(" -m ");
            print_word(js_string_of(js_at(modules, i), ""));
        }
        printf(" --");
    }
    printf(" argv…\n");
    show_words("argv", argv, js_count(argv));
    printf("\n");
    show_words("environment", js_get(run, "environment"), js_count(js_get(run, "environment")));
    printf("\n");
}

// "Slurm says      it would start 2026-11-30 07:12:00 UTC on n[1-2]"
static void show_slurm(const struct json *slurm)
{
    double starts = js_real_of(js_get(slurm, "starts"), 0);
    const char *refusal = js_string_of(js_get(slurm, "refusal"), NULL), *nodes = js_string_of(js_get(slurm, "nodes"), NULL);
    if (!refusal && !(starts > 0))
        return;
    char when[CLOCK_TEXT];
    clock_text(when, starts);
    char *words = clean_line(refusal ? refusal : nodes ? nodes : "");
    if (refusal)
        printf("  Slurm says     it would refuse this job: %s\n", words);
    else
        printf("  Slurm says     it would start %.10s %.8s UTC%s%s\n", when, when + 11, nodes ? " on " : "", words);
    free(words);
}

// "starts from     run dense, as experts: each of the 4 slices of its FFN in 4 of them, weights x 1.587"
static void show_start(const struct json *from)
{
    const char *run = js_string_of(js_get(from, "run"), NULL), *path = js_string_of(js_get(from, "path"), NULL);
    const struct json *upcycle = js_get(from, "upcycle");
    if (!run && !path)
        return;
    char *source = clean_line(run ? run : path);
    printf("  starts from    %s %s", run ? "run" : "checkpoint", source);
    if (js_integer_of(js_get(from, "step"), 0))
        printf(", step %lld", (long long)js_integer_of(js_get(from, "step"), 0));
    if (js_kind(upcycle) == JSON_KIND_OBJECT)
        printf(", as experts: each of the %lld slices of its FFN in %lld of them, weights x %.4g", (long long)js_integer_of(js_get(upcycle, "granularity"), 0),
            (long long)js_integer_of(js_get(upcycle, "copies"), 0), js_real_of(js_get(upcycle, "weight_scale"), 0));
    printf("\n");
    free(source);
}

static void show_needs(const struct json *run)
{
    const struct json *needs = js_get(run, "needs");
    for (size_t i = 0; i < js_count(needs); i++)
        printf("%s%s", i ? ", " : "  after          ", js_string_of(js_at(needs, i), "?"));
    if (js_count(needs))
        printf("\n");
}

static bool trains(const struct json *run)
{
    return strcmp(js_string_of(js_get(run, "kind"), "train"), "train") == 0;
}

static void show_run(const struct json *run)
{
    printf("\n%s/%s, %sexecutor %s\n", js_string_of(js_get(run, "project"), ""), js_string_of(js_get(run, "name"), ""),
        trains(run) ? "" : "a stage that tokenizes, ", js_string_of(js_get(run, "executor"), ""));
    show_needs(run);
    plan_show_rates("learning_rate", js_get(run, "learning_rate"));
    plan_show_rates("expert_learning_rate", js_get(run, "expert_learning_rate"));
    plan_show_ramp(js_get(run, "batch_ramp"));
    show_start(js_get(run, "from"));
    if (js_get(run, "argv"))
        show_command(run);
    show_slurm(js_get(run, "slurm"));
    char *silence = clean_line(js_string_of(js_get(run, "slurm_silent"), ""));
    if (*silence)
        printf("  Slurm says     nothing: %s\n", silence);
    free(silence);
    const struct json *image = js_get(run, "image"), *unsupported = js_get(run, "unsupported");
    if (js_kind(image) == JSON_KIND_OBJECT) {
        char *path = clean_line(js_string_of(js_get(image, "path"), ""));
        printf("  image          %s, %lld bytes, sha256:%s\n", path, (long long)js_integer_of(js_get(image, "size"), 0),
            js_string_of(js_get(image, "sha256"), ""));
        free(path);
    }
    for (size_t i = 0; i < js_count(unsupported); i++) {
        char *message = clean_line(js_string_of(js_get(js_at(unsupported, i), "message"), ""));
        printf("%s%s\n", i == 0 ? "  not yet        " : "                 ", message);
        free(message);
    }
}

void plan_show_one(const struct json *plan)
{
    struct table table;
    table_init(&table, "lr");
    for (size_t r = 0; r < ROWS; r++) {
        if (js_kind(member(plan, rows[r].path)) == JSON_KIND_NULL)
            continue;
        char *text = cell(plan, &rows[r]);
        table_cell(&table, rows[r].label);
        table_cell(&table, text);
        free(text);
    }
    if (table.count)
        printf("\nPlan\n");
    table_print(&table, stdout, 2);
    table_release(&table);
    plan_show_rates("learning_rate", js_get(plan, "learning_rate"));
    plan_show_rates("expert_learning_rate", js_get(plan, "expert_learning_rate"));
    plan_show_ramp(js_get(plan, "batch_ramp"));
    show_start(js_get(plan, "from"));
}

void plan_show(const struct json *runs)
{
    struct json *training = js_array();
    for (size_t i = 0; i < js_count(runs); i++)
        if (trains(js_at(runs, i)))
            js_append(training, js_keep(js_at(runs, i)));
    for (size_t first = 0; first < js_count(training); first += RUNS_ABREAST) {
        size_t left = js_count(training) - first;
        if (first)
            printf("\n");
        show_table(training, first, left < RUNS_ABREAST ? left : RUNS_ABREAST);
    }
    js_free(training);
    for (size_t i = 0; i < js_count(runs); i++)
        show_run(js_at(runs, i));
}
