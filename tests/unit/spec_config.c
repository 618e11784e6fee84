// config.yaml: read as strictly as a spec, each fault at its place; a home without one has the defaults.
#include "schema/spec/config.h"
#include "tests/unit/spec_support.h"

static int load(struct config *config, const char *text, struct error *err)
{
    *err = (struct error){0};
    write_text(CONFIG_FILE, text);
    return config_load(config, ".", err);
}

static void test_none(void **state)
{
    (void)state;
    struct config config;
    struct error err;
    unlink(CONFIG_FILE);
    assert_int_equal(config_load(&config, ".", &err), 0);
    assert_false(config.found);
    assert_int_equal(config.slurm.gpus, SLURM_GRES);
    assert_null(config.slurm.mpi);
    config_release(&config);
    assert_int_equal(load(&config, "# nothing is said here\n\n", &err), 0);
    assert_true(config.found);
    config_release(&config);
}

static void test_link_to_nothing(void **state)
{
    (void)state;
    struct config config;
    static const char *const targets[] = {"no/such/file", CONFIG_FILE};
    for (size_t i = 0; i < 2; i++) {
        struct error err = {0};
        unlink(CONFIG_FILE);
        assert_int_equal(symlink(targets[i], CONFIG_FILE), 0);
        assert_int_equal(config_load(&config, ".", &err), -1);
        assert_non_null(strstr(err.text, CONFIG_FILE));
        config_release(&config);
    }
    unlink(CONFIG_FILE);
}

static void test_values(void **state)
{
    (void)state;
    struct config config;
    struct error err;
    int status = load(&config,
        "allowed_hosts: [login1.cluster, 'node:8642']\n"
        "gpus: 4\n"
        "slurm:\n"
        "  mpi: pmix_v4\n"
        "  gpus: gpus-per-node\n"
        "  gpu_type: h100\n"
        "  partition: main\n"
        "  account: ours\n"
        "  max_submit_jobs: 10000\n"
        "  max_array_size: 1001\n"
        "  partitions:\n"
        "    main: {nodes: 2, cpus_per_node: 16, gpus_per_node: 8, memory_per_node: 16GB, time_limit: 1d12h}\n"
        "    long: {}\n",
        &err);
    if (status != 0)
        fail_msg("%s", err.text);
    assert_int_equal(config.allowed_hosts.count, 2);
    assert_int_equal(config.gpus, 4);
    assert_string_equal(config.allowed_hosts.items[1], "node:8642");
    const struct config_slurm *slurm = &config.slurm;
    assert_string_equal(slurm->mpi, "pmix_v4");
    assert_int_equal(slurm->gpus, SLURM_GPUS_PER_NODE);
    assert_string_equal(slurm->gpu_type, "h100");
    assert_int_equal(slurm->max_submit_jobs, 10000);
    assert_int_equal(slurm->max_array_size, 1001);
    const struct config_partition *main_partition = config_find_partition(slurm, "main");
    assert_non_null(main_partition);
    assert_int_equal(main_partition->nodes, 2);
    assert_int_equal(main_partition->gpus_per_node, 8);
    assert_true(main_partition->memory_per_node == 16000000000 && main_partition->time_limit == 129600);
    assert_non_null(config_find_partition(slurm, "long"));
    assert_null(config_find_partition(slurm, "mai"));
    struct json *json = config_to_json(&config);
    assert_string_equal(js_string_of(js_get(js_get(json, "slurm"), "gpus"), ""), "gpus-per-node");
    assert_int_equal(js_integer_of(js_get(js_get(js_get(js_get(json, "slurm"), "partitions"), "main"), "cpus_per_node"), 0), 16);
    js_free(json);
    config_release(&config);
}

static const struct { const char *text, *expected; } faults[] = {
    {"slurm: {mpy: pmix}\n", "./config.yaml:1:9: unknown key `mpy` in `slurm`; did you mean `mpi`?\n     1 | slurm: {mpy: pmix}\n       |         ^"},
    {"alowed_hosts: [a]\n", "./config.yaml:1:1: unknown key `alowed_hosts`; did you mean `allowed_hosts`?\n     1 | alowed_hosts: [a]\n       | ^"},
    {"slurm: {gpus: all}\n", "./config.yaml:1:15: `slurm.gpus` expects one of `gres`, `gpus-per-node`, not `all`\n     1 | slurm: {gpus: all}\n       |               ^"},
    {"slurm: {mpi: '--x'}\n", "./config.yaml:1:14: `slurm.mpi` expects a string of letters, digits and `_.-`, not the string `--x`: it may not begin with `-`\n     1 | slurm: {mpi: '--x'}\n       |              ^"},
    {"allowed_hosts: [a b]\n", "./config.yaml:1:17: `allowed_hosts` expects a list of strings of letters, digits and `_.:[]-`, not `a b`: another character is in it\n     1 | allowed_hosts: [a b]\n       |                 ^"},
    {"slurm: {partitions: {p: {time_limit: 2}}}\n", "./config.yaml:1:38: `slurm.partitions.time_limit` expects a time with its unit, such as 30m or 1h30m, not `2`: the unit is missing\n     1 | slurm: {partitions: {p: {time_limit: 2}}}\n       |                                      ^"},
    {"slurm: {partitions: {p: {node: 2}}}\n", "./config.yaml:1:26: unknown key `node` in `slurm.partitions`; did you mean `nodes`?\n     1 | slurm: {partitions: {p: {node: 2}}}\n       |                          ^"},
    {"slurm: 3\n", "./config.yaml:1:8: `slurm` expects a section of keys\n     1 | slurm: 3\n       |        ^"},
    {"slurm: {mpi: a}\nslurm: {mpi: b}\n", "./config.yaml:2:1: duplicate key `slurm`: line 1 has it already, and line 2 has it again\n     2 | slurm: {mpi: b}\n       | ^"},
    {"- a\n", "./config.yaml:1:1: a configuration is a map of keys, such as `allowed_hosts: [NAME]`\n     1 | - a\n       | ^"},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct config config;
        struct error err;
        assert_int_equal(load(&config, faults[i].text, &err), -1);
        assert_string_equal(err.text, faults[i].expected);
        config_release(&config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_none), cmocka_unit_test(test_link_to_nothing), cmocka_unit_test(test_values), cmocka_unit_test(test_faults)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
