// A table of its own, walked like that of specs: rows convert their values by the same code, which writes where a row says.
#include "schema/spec/config.h"
#include "schema/spec/check.h"
#include "schema/base/file.h"
#include "schema/base/near.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define LARGE 9007199254740992.0
#define AT(member) offsetof(struct config, member)
#define PARTITION(member) offsetof(struct config_partition, member)

static const struct field rows[] = {
    {"allowed_hosts", FIELD_STRINGS, AT(allowed_hosts), .letters = "_.:[]-", .help = "more names that browsers may call the daemon by: NAME or NAME:PORT"},
    {"gpus", FIELD_INTEGER, AT(gpus), NULL, 0, CONFIG_GPUS_MAX, .help = "GPUs of this machine that local runs may have, by their numbers"},
    {"slurm.mpi", FIELD_STRING, AT(slurm.mpi), .letters = "_.-", .help = "srun's --mpi of specs without slurm.mpi"},
    {"slurm.gpus", FIELD_CHOICE, AT(slurm.gpus), "gres", .choices = CHOICES("gres", "gpus-per-node"), .help = "how GPUs are asked for: --gres=gpu:N or --gpus-per-node=N"},
    {"slurm.gpu_type", FIELD_STRING, AT(slurm.gpu_type), .letters = "_.-", .help = "type of GPU that is asked for"},
    {"slurm.partition", FIELD_STRING, AT(slurm.partition), .letters = "_.+,-", .help = "partition of specs without slurm.partition"},
    {"slurm.account", FIELD_STRING, AT(slurm.account), .letters = "_.+@-", .help = "account of specs without slurm.account"},
    {"slurm.max_submit_jobs", FIELD_INTEGER, AT(slurm.max_submit_jobs), NULL, 1, LARGE, .help = "jobs that may be in the queue at once; more wait in the daemon's own"},
    {"slurm.max_array_size", FIELD_INTEGER, AT(slurm.max_array_size), NULL, 1, LARGE, .help = "elements of an array, as which runs of one kind are handed over; 1: each run by itself"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const struct field partition_rows[] = {
    {"slurm.partitions.nodes", FIELD_INTEGER, PARTITION(nodes), NULL, 0, LARGE, .help = "nodes"},
    {"slurm.partitions.cpus_per_node", FIELD_INTEGER, PARTITION(cpus_per_node), NULL, 0, LARGE, .help = "CPUs of a node"},
    {"slurm.partitions.gpus_per_node", FIELD_INTEGER, PARTITION(gpus_per_node), NULL, 0, LARGE, .help = "GPUs of a node"},
    {"slurm.partitions.memory_per_node", FIELD_BYTES, PARTITION(memory_per_node), NULL, 0, LARGE, .help = "memory of a node"},
    {"slurm.partitions.time_limit", FIELD_DURATION, PARTITION(time_limit), NULL, 0, 1e9, .help = "longest time of a job"},
};
enum { PARTITION_ROWS = sizeof partition_rows / sizeof *partition_rows };

struct reader {
    struct problems problems;
    struct pool *pool;
    struct config *config;
};

static const struct field *find_row(const struct field *table, size_t count, const char *section, const char *key)
{
    size_t length = strlen(section);
    for (size_t i = 0; i < count; i++)
        if (strncmp(table[i].path, section, length) == 0 && strcmp(table[i].path + length, key) == 0)
            return &table[i];
    return NULL;
}

// What a person may look for here, and cannot change of a daemon that runs.
static const char *elsewhere(const char *section, const char *key)
{
    static const char *const words[][2] = {
        {"home", "the home is SWITCHYARD_HOME, and a daemon's own for as long as it runs"},
        {"port", "the port is `switchyard serve --port N`, and a daemon's own for as long as it runs"},
        {"bind", "the address is `switchyard serve --bind ADDRESS`, and a daemon's own for as long as it runs"},
        {"token", "the token is made by the daemon, and is in daemon.json"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words && !*section; i++)
        if (strcmp(key, words[i][0]) == 0)
            return words[i][1];
    return NULL;
}

static void unknown(struct reader *reader, const struct node *key, const char *section, const char *const *names, size_t count)
{
    const char *near = near_name(key->text, names, count), *where = elsewhere(section, key->text);
    if (where) {
        problem_at(&reader->problems, key, "unknown key `%.60s`: %s", key->text, where);
        return;
    }
    problem_at(&reader->problems, key, "unknown key `%.60s`%s%s%s%s%s%s", key->text, *section ? " in `" : "", section, *section ? "`" : "",
        near ? "; did you mean `" : "", near ? near : "", near ? "`?" : "");
}

// One value into the struct at base.
static void convert_value(struct reader *reader, const struct field *row, const struct node *value, void *base)
{
    struct check check = {.problems = &reader->problems, .pool = reader->pool, .spec = base};
    value_convert(&check, row, value);
}

static bool is_map(struct reader *reader, const struct node *node, const char *path)
{
    if (node->kind != NODE_MAP)
        problem_at(&reader->problems, node, "`%s` expects a section of keys", path);
    return node->kind == NODE_MAP;
}

static void read_partition(struct reader *reader, const struct node *name, const struct node *keys)
{
    static const char *const names[] = {"nodes", "cpus_per_node", "gpus_per_node", "memory_per_node", "time_limit"};
    static const struct field named = {.path = "slurm.partitions", .type = FIELD_STRING, .letters = "_.+-", .offset = PARTITION(name)};
    struct config_slurm *slurm = &reader->config->slurm;
    if (!is_map(reader, keys, "slurm.partitions"))
        return;
    slurm->partitions = reallocate(slurm->partitions, slurm->partitions_count + 1, sizeof *slurm->partitions);
    struct config_partition *partition = &slurm->partitions[slurm->partitions_count++];
    *partition = (struct config_partition){0};
    convert_value(reader, &named, name, partition);
    for (size_t i = 0; i < keys->count; i++) {
        const struct field *row = find_row(partition_rows, PARTITION_ROWS, "slurm.partitions.", keys->keys[i]->text);
        if (row)
            convert_value(reader, row, keys->items[i], partition);
        else
            unknown(reader, keys->keys[i], "slurm.partitions", names, sizeof names / sizeof *names);
    }
}

static void read_slurm(struct reader *reader, const struct node *slurm)
{
    static const char *const names[] = {"mpi", "gpus", "gpu_type", "partition", "account", "max_submit_jobs", "max_array_size", "partitions"};
    for (size_t i = 0; is_map(reader, slurm, "slurm") && i < slurm->count; i++) {
        const struct node *key = slurm->keys[i], *value = slurm->items[i];
        const struct field *row = find_row(rows, ROWS, "slurm.", key->text);
        if (row)
            convert_value(reader, row, value, reader->config);
        else if (strcmp(key->text, "partitions") != 0)
            unknown(reader, key, "slurm", names, sizeof names / sizeof *names);
        else if (is_map(reader, value, "slurm.partitions") && value->count > CONFIG_PARTITIONS_MAX)
            problem_at(&reader->problems, value, "`slurm.partitions`: more than %d", CONFIG_PARTITIONS_MAX);
        else
            for (size_t j = 0; value->kind == NODE_MAP && j < value->count; j++)
                read_partition(reader, value->keys[j], value->items[j]);
    }
}

static void read_root(struct reader *reader, const struct node *root)
{
    static const char *const names[] = {"allowed_hosts", "gpus", "slurm"};
    if (root->kind != NODE_MAP) {
        problem_at(&reader->problems, root, "a configuration is a map of keys, such as `allowed_hosts: [NAME]`");
        return;
    }
    for (size_t i = 0; i < root->count; i++) {
        const struct field *row = find_row(rows, ROWS, "", root->keys[i]->text);
        if (row)
            convert_value(reader, row, root->items[i], reader->config);
        if (row && reader->config->allowed_hosts.count > CONFIG_HOSTS_MAX)
            problem_at(&reader->problems, root->items[i], "`allowed_hosts`: more than %d names", CONFIG_HOSTS_MAX);
        if (row)
            continue;
        if (strcmp(root->keys[i]->text, "slurm") == 0)
            read_slurm(reader, root->items[i]);
        else
            unknown(reader, root->keys[i], "", names, sizeof names / sizeof *names);
    }
}

static int tell(struct problems *problems, struct error *err)
{
    struct text text;
    text_init(&text, ERROR_TEXT_MAX - 1);
    problems_sort(problems);
    for (size_t i = 0; i < problems->count; i++)
        problem_show(&text, &problems->items[i]);
    while (text.length && text.at[text.length - 1] == '\n')
        text.at[--text.length] = 0;
    int status = problems_errors(problems) ? error_set(err, "%s", text.at) : 0;
    text_release(&text);
    return status;
}

// A file of comments alone is one without keys, as the file that is not there.
static bool is_only_comments(const char *at)
{
    while (*at) {
        at += strspn(at, " \t\r\n");
        if (*at && *at != '#')
            return false;
        at += strcspn(at, "\n");
    }
    return true;
}

int config_load(struct config *config, const char *home, struct error *err)
{
    *config = (struct config){.path = path_join(home, CONFIG_FILE), .gpus = -1};
    struct stat place;
    if (lstat(config->path, &place) != 0 && errno == ENOENT)
        return 0; // a link to nothing is a mistake of somebody's, not a home without one
    config->found = true;
    struct source source = {.path = config->path, .directory = (char *)(uintptr_t)home};
    struct reader reader = {.pool = pool_new(), .config = config};
    text_init(&source.bytes, SPEC_BYTES_MAX);
    int status = file_read(config->path, &source.bytes, err);
    if (status == 0 && !is_only_comments(source.bytes.at)) {
        const struct node *root = yaml_read(reader.pool, &source, 0, &reader.problems);
        if (root)
            read_root(&reader, root);
        status = tell(&reader.problems, err);
    }
    problems_release(&reader.problems);
    pool_free(reader.pool);
    text_release(&source.bytes);
    return status;
}

void config_release(struct config *config)
{
    for (size_t i = 0; i < ROWS; i++)
        value_release(&rows[i], (struct spec *)(void *)config);
    for (size_t i = 0; i < config->slurm.partitions_count; i++)
        free(config->slurm.partitions[i].name);
    free(config->slurm.partitions);
    free(config->path);
    *config = (struct config){0};
}

const struct config_partition *config_find_partition(const struct config_slurm *slurm, const char *name)
{
    for (size_t i = 0; i < slurm->partitions_count; i++)
        if (slurm->partitions[i].name && strcmp(slurm->partitions[i].name, name) == 0)
            return &slurm->partitions[i];
    return NULL;
}

static struct json *integer_or_null(int64_t value)
{
    return value ? js_integer(value) : js_null();
}

static struct json *partitions_to_json(const struct config_slurm *slurm)
{
    struct json *partitions = js_object();
    for (size_t i = 0; i < slurm->partitions_count; i++) {
        const struct config_partition *partition = &slurm->partitions[i];
        struct json *item = js_object();
        js_set(item, "nodes", integer_or_null(partition->nodes));
        js_set(item, "cpus_per_node", integer_or_null(partition->cpus_per_node));
        js_set(item, "gpus_per_node", integer_or_null(partition->gpus_per_node));
        js_set(item, "memory_per_node", integer_or_null(partition->memory_per_node));
        js_set(item, "time_limit", partition->time_limit > 0 ? js_real(partition->time_limit) : js_null());
        js_set(partitions, partition->name, item);
    }
    return partitions;
}

struct json *config_to_json(const struct config *config)
{
    const struct config_slurm *slurm = &config->slurm;
    struct json *json = js_object(), *section = js_object(), *hosts = js_array();
    for (size_t i = 0; i < config->allowed_hosts.count; i++)
        js_append(hosts, js_string(config->allowed_hosts.items[i]));
    js_set(json, "file", config->found ? js_string(config->path) : js_null());
    js_set(json, "allowed_hosts", hosts);
    js_set(json, "gpus", config->gpus >= 0 ? js_integer(config->gpus) : js_null());
    js_set(section, "mpi", js_string(slurm->mpi ? slurm->mpi : "pmix"));
    js_set(section, "gpus", js_string(slurm->gpus == SLURM_GPUS_PER_NODE ? "gpus-per-node" : "gres"));
    js_set(section, "gpu_type", js_string(slurm->gpu_type));
    js_set(section, "partition", js_string(slurm->partition));
    js_set(section, "account", js_string(slurm->account));
    js_set(section, "max_submit_jobs", integer_or_null(slurm->max_submit_jobs));
    js_set(section, "max_array_size", integer_or_null(slurm->max_array_size));
    js_set(section, "partitions", partitions_to_json(slurm));
    js_set(json, "slurm", section);
    return json;
}
