// What a spec may say to a scheduler: each value becomes one word of another program's command line, and holds nothing that could be more.
#include "tests/unit/spec_support.h"

static const struct { const char *lines, *expected; } faults[] = {
    {"environment: {modules: cuda}", "`environment.modules` expects a list of strings of letters, digits and `_.+/@=:,-`, not `cuda`: write `[cuda]`"},
    {"environment: {modules: [cuda/12.4, gcc@13+x]}", NULL},
    {"environment: {modules: [cuda, 'a b']}", "`environment.modules` expects a list of strings of letters, digits and `_.+/@=:,-`, not the string `a b`: another character is in it"},
    {"environment: {modules: ['$$(id)']}", "`environment.modules` expects a list of strings of letters, digits and `_.+/@=:,-`, not the string `$$(id)`: another character is in it"},
    {"environment: {modules: [--help]}", "`environment.modules` expects a list of strings of letters, digits and `_.+/@=:,-`, not `--help`: it may not begin with `-`"},
    {"environment: {modules: ['']}", "`environment.modules` expects a list of strings of letters, digits and `_.+/@=:,-`, not the string ``: it is empty"},
    {"slurm: {partition: 'a b'}", "`slurm.partition` expects a string of letters, digits and `_.+,-`, not the string `a b`: another character is in it"},
    {"slurm: {partition: \"gpu\\n#SBATCH --uid=0\"}", "`slurm.partition` expects a string of letters, digits and `_.+,-`, not the string `gpu?#SBATCH --uid=0`: another character is in it"},
    {"slurm: {partition: --uid=0}", "`slurm.partition` expects a string of letters, digits and `_.+,-`, not `--uid=0`: it may not begin with `-`"},
    {"slurm: {partition: ''}", "`slurm.partition` expects a string of letters, digits and `_.+,-`, not the string ``: it is empty"},
    {"slurm: {partition: 'gpu,gpu-long_2'}", NULL},
    {"slurm: {account: a;b}", "`slurm.account` expects a string of letters, digits and `_.+@-`, not `a;b`: another character is in it"},
    {"slurm: {qos: $$HOME}", "`slurm.qos` expects a string of letters, digits and `_.+@,-`, not `$$HOME`: another character is in it"},
    {"slurm: {reservation: \"r\\0\"}", "a NUL character in a value"},
    {"slurm: {reservation: r/s}", "`slurm.reservation` expects a string of letters, digits and `_.+@,-`, not `r/s`: another character is in it"},
    {"slurm: {constraint: '[rack1*2&gpu|(a,b)]!c=2'}", NULL},
    {"slurm: {constraint: \"a'b\"}", "`slurm.constraint` expects a string of letters, digits and `_.,&|*[]()!:=+-`, not the string `a'b`: another character is in it"},
    {"slurm: {nodelist: 'n[1-4,7],login.x'}", NULL},
    {"slurm: {nodelist: ./nodes.txt}", "`slurm.nodelist` expects a string of letters, digits and `_.,[]-`, not `./nodes.txt`: another character is in it"},
    {"slurm: {exclude: n1 n2}", "`slurm.exclude` expects a string of letters, digits and `_.,[]-`, not `n1 n2`: another character is in it"},
    {"slurm: {mpi: 'pmix,x'}", "`slurm.mpi` expects a string of letters, digits and `_.-`, not the string `pmix,x`: another character is in it"},
    {"slurm: {grace: 2d}", "`slurm.grace` expects a time with its unit, such as 30m or 1h30m, not `2d`: out of range"},
    {"slurm: {signal: USR1@120}", NULL},
    {"slurm: {signal: 'B:TERM@65535'}", NULL},
    {"slurm: {signal: USR2}", NULL},
    {"slurm: {signal: KILL@10}", "`slurm.signal` expects USR1, USR2 or TERM, and @SECONDS up to 65535, such as USR1@120, not `KILL@10`"},
    {"slurm: {signal: USR1@65536}", "`slurm.signal` expects USR1, USR2 or TERM, and @SECONDS up to 65535, such as USR1@120, not `USR1@65536`"},
    {"slurm: {signal: USR1@}", "`slurm.signal` expects USR1, USR2 or TERM, and @SECONDS up to 65535, such as USR1@120, not `USR1@`"},
    {"slurm: {signal: USR1@10 --uid=0}", "`slurm.signal` expects USR1, USR2 or TERM, and @SECONDS up to 65535, such as USR1@120, not `USR1@10 --uid=0`"},
    {"slurm: {}\noutput: \"/a\\nb\"", "`output` has a control character or a backslash: such a directory cannot be a Slurm job's"},
    {"slurm: {}\noutput: '/a\\b'", "`output` has a control character or a backslash: such a directory cannot be a Slurm job's"},
    {"output: \"/a\\nb\"", NULL},
};

static void test_faults(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        check_rule(faults[i].lines, faults[i].expected);
}

// Keys that do nothing where they stand, or something that one may not want: the file is good, and says so.
static const struct { const char *lines, *expected; } warnings[] = {
    {"slurm: {signal: USR1@120, grace: 30s}", "`slurm.grace` is not used: `slurm.signal` has its own time"},
    {"slurm: {grace: 5m}\nresources: {time_limit: 4m}", "the run is told to stop 300 s (`slurm.grace`) before the end of its 240 s: as soon as it starts"},
    {"slurm: {requeue: true}", "a run that is requeued after a node failed begins anew: it has no `checkpoint.interval`"},
    {"executor: local\nslurm: {partition: gpu}", "the keys of `slurm` are not used by this `executor`"},
};

static void test_warnings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof warnings / sizeof *warnings; i++) {
        struct spec_file file;
        char *text = string_format("base: good.yaml\n%s\n", warnings[i].lines);
        load_text(&file, text, NULL);
        if (file.errors || !strstr(file.warnings.at, warnings[i].expected))
            fail_msg("%s\n expected: %s\n actual:\n%s%s", warnings[i].lines, warnings[i].expected, file.problems.at, file.warnings.at);
        spec_file_release(&file);
        free(text);
    }
}

// Of all byte strings only those of the alphabet come through, in a file as in a submission.
static void test_alphabet(void **state)
{
    (void)state;
    struct spec_file file;
    load_good(&file, GOOD_SPEC "slurm: {partition: gpu}\n", NULL);
    struct spec *spec = &file.runs[0].spec, back;
    for (int byte = 1; byte < 256; byte++) {
        char value[] = {'a', (char)byte, 'b', 0};
        bool good = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || strchr("_.+,-", byte);
        free(spec->slurm.partition);
        spec->slurm.partition = string_copy(value);
        struct json *json = spec_to_json(spec);
        struct error err;
        int status = spec_from_json(&back, json, &err);
        if ((status == 0) != good)
            fail_msg("byte 0x%02X: %s", (unsigned)byte, status == 0 ? "taken" : err.text);
        if (status == 0)
            spec_release(&back);
        js_free(json);
    }
    spec_file_release(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_faults), cmocka_unit_test(test_warnings), cmocka_unit_test(test_alphabet)};
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
