// What a run is recorded to be made of, in a repository made here: commit, branch, the differences as a patch that makes the tree again,
// files with their digests, the environment without secrets.
#include "daemon/record/provenance.h"
#include "schema/base/clock.h"
#include "schema/base/hash.h"
#include "tests/unit/store_support.h"

#include <fcntl.h>
#include <time.h>

// The test's own programs, by a shell: folder is the place, everything else is written here.
static void shell(const char *folder, const char *script)
{
    pid_t child = fork();
    if (child == 0) {
        if (chdir(folder) != 0)
            _exit(1);
        setenv("HOME", folder, 1);
        setenv("GIT_CONFIG_NOSYSTEM", "1", 1);
        setenv("GIT_AUTHOR_NAME", "a", 1);
        setenv("GIT_AUTHOR_EMAIL", "a@a", 1);
        setenv("GIT_COMMITTER_NAME", "a", 1);
        setenv("GIT_COMMITTER_EMAIL", "a@a", 1);
        execl("/bin/sh", "sh", "-ec", script, NULL);
        _exit(1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("failed: %s", script);
}

static char *read_all(const char *folder, const char *name)
{
    struct text text;
    struct error err;
    char *path = path_join(folder, name);
    text_init(&text, 1 << 22);
    assert_fine(file_read(path, &text, &err), err);
    free(path);
    return text_take(&text);
}

static void make_repository(const char *folder)
{
    shell(folder, "mkdir repo; cd repo; git init -q -b main .; printf 'one\\ntwo\\nthree\\n' > a.txt; printf 'x\\n' > b.txt; mkdir sub; printf '1\\n' > sub/c;"
        "git add .; git commit -qm first; git remote add origin https://user:s3cret@example.org/team/repo.git");
}

static struct json *collect(void **context, struct spec *spec, struct error *err)
{
    char *directory = in_folder(context, "run");
    struct json *record = provenance_collect(spec, NULL, directory, err);
    free(directory);
    return record;
}

static const char *text_in(const struct json *record, const char *part, const char *key)
{
    return js_string_of(js_get(js_get(record, part), key), "");
}

static int64_t number_in(const struct json *record, const char *part, const char *key)
{
    return js_integer_of(js_get(js_get(record, part), key), -1);
}

static void test_clean(void **context)
{
    struct error err;
    make_repository(*context);
    char *repository = in_folder(context, "repo"), *below = in_folder(context, "repo/sub");
    struct spec spec = {.code = {.path = below}};
    setenv("GIT_DIR", "/nowhere", 1); // a hook's environment must not lead elsewhere
    struct json *record = collect(context, &spec, &err);
    unsetenv("GIT_DIR");
    if (!record)
        fail_msg("%s", err.text);
    shell(*context, "cd repo; git rev-parse HEAD > ../head");
    char *head = read_all(*context, "head"), *written = read_all(*context, "run/provenance/commit");
    assert_string_equal(head, written);
    assert_int_equal(strlen(text_in(record, "code", "commit")), 40);
    assert_true(strncmp(head, text_in(record, "code", "commit"), 40) == 0);
    assert_string_equal(text_in(record, "code", "path"), repository);
    assert_string_equal(text_in(record, "code", "branch"), "main");
    assert_string_equal(text_in(record, "code", "remote"), "https://example.org/team/repo.git");
    assert_false(js_boolean_of(js_get(js_get(record, "code"), "dirty"), true));
    assert_int_equal(js_count(js_get(js_get(record, "code"), "untracked")), 0);
    char *patch = in_folder(context, "run/provenance/diff.patch");
    assert_false(file_exists(patch));
    js_free(record);
    free(head);
    free(written);
    free(patch);
    free(repository);
    free(below);
}

static void test_dirty(void **context)
{
    struct error err;
    make_repository(*context);
    // The same file is changed in the index and again in the tree; one is added, one removed; a binary one; odd untracked names.
    shell(*context, "cd repo; git clone -q . ../again; printf 'one\\nTWO\\nthree\\n' > a.txt; head -c 300 /dev/urandom > bin; git add a.txt bin; git rm -q b.txt;"
        "printf 'one\\nTWO\\nthree\\nfour\\n' > a.txt; printf '2\\n' > sub/c; : > 'new file'; : > \"$(printf 'line\\ndiff --git')\"; echo '*.o' > .gitignore; : > x.o;"
        "git config diff.external /bin/false; git config core.fsmonitor /bin/false");
    char *repository = in_folder(context, "repo");
    struct spec spec = {.code = {.path = repository}};
    struct json *record = collect(context, &spec, &err);
    if (!record)
        fail_msg("%s", err.text);
    assert_true(js_boolean_of(js_get(js_get(record, "code"), "dirty"), false));
    assert_null(js_get(js_get(record, "code"), "incomplete"));
    assert_int_equal(number_in(record, "code", "staged"), 3);
    assert_int_equal(number_in(record, "code", "unstaged"), 2);
    assert_int_equal(number_in(record, "code", "untracked_count"), 3); // .gitignore is one of them, x.o is not
    assert_false(js_boolean_of(js_get(js_get(record, "code"), "diff_truncated"), true));
    char hex[HASH_HEX];
    char *patch = read_all(*context, "run/provenance/diff.patch");
    hash_bytes(hex, patch, strlen(patch));
    assert_string_equal(hex, text_in(record, "code", "diff_sha256"));
    assert_non_null(strstr(patch, "# untracked: new file\n"));
    assert_non_null(strstr(patch, "# untracked: line?diff --git\n"));
    shell(*context, "cd again; git apply ../run/provenance/diff.patch; for f in a.txt bin sub/c; do cmp $f ../repo/$f; done; test ! -e b.txt");
    struct stat info;
    char *directory = in_folder(context, "run/provenance"), *file = in_folder(context, "run/provenance/diff.patch");
    assert_true(stat(directory, &info) == 0 && (info.st_mode & 0777) == 0700);
    assert_true(stat(file, &info) == 0 && (info.st_mode & 0777) == 0600);
    free(directory);
    free(file);
    free(patch);
    js_free(record);
    free(repository);
}

static void test_commit(void **context)
{
    struct error err;
    make_repository(*context);
    shell(*context, "cd repo; git tag old; printf 'y\\n' > b.txt; git commit -qam second; git rev-parse HEAD | cut -c1-10 | tr -d '\\n' > ../short");
    char *repository = in_folder(context, "repo"), *head = read_all(*context, "short"), *elsewhere = in_folder(context, "nothing");
    struct spec spec = {.code = {.path = repository, .commit = head}};
    struct json *record = collect(context, &spec, &err);
    assert_non_null(record);
    js_free(record);
    spec.code.commit = "old";
    assert_null(collect(context, &spec, &err));
    assert_non_null(strstr(err.text, "code.commit: old is not checked out"));
    spec.code.commit = "0123456789";
    assert_null(collect(context, &spec, &err));
    assert_non_null(strstr(err.text, "has no commit 0123456789"));
    spec.code.commit = "--help"; // an argument, never an option
    assert_null(collect(context, &spec, &err));
    assert_non_null(strstr(err.text, "has no commit --help"));
    shell(*context, "cd repo; git checkout -q --detach");
    spec.code.commit = NULL;
    record = collect(context, &spec, &err);
    assert_int_equal(js_kind(js_get(js_get(record, "code"), "branch")), JSON_KIND_NULL);
    js_free(record);
    shell(*context, "mkdir nothing");
    spec.code.path = elsewhere;
    record = collect(context, &spec, &err);
    assert_non_null(record);
    assert_int_equal(js_kind(js_get(record, "code")), JSON_KIND_NULL);
    assert_non_null(strstr(js_string_of(js_get(record, "code_reason"), ""), "not a git repository"));
    js_free(record);
    spec.code.commit = "main";
    assert_null(collect(context, &spec, &err));
    shell(*context, "cd nothing; git init -q .; : > a");
    spec.code.commit = NULL;
    record = collect(context, &spec, &err); // no commit yet
    assert_int_equal(js_kind(js_get(js_get(record, "code"), "commit")), JSON_KIND_NULL);
    assert_int_equal(number_in(record, "code", "untracked_count"), 1);
    js_free(record);
    spec.code.path = "/nowhere/at/all";
    assert_null(collect(context, &spec, &err));
    free(repository);
    free(head);
    free(elsewhere);
}

static void test_files(void **context)
{
    struct error err;
    shell(*context, "printf 'hello' > text; printf 'b' > p.bin; printf 'i' > p.idx; mkdir sub; printf 'B' > sub/q.bin; printf 'I' > sub/q.idx; printf 'img' > i.sqsh;"
        "printf '# two\\n\\n0.3 p\\n  sub/q  \\n' > list");
    char *text = in_folder(context, "text"), *prefix = in_folder(context, "p"), *list = in_folder(context, "list"), *image = in_folder(context, "i.sqsh");
    struct spec spec = {.data = {.text = text, .prefix = prefix, .manifest = list}, .image = {.path = image}};
    struct json *record = collect(context, &spec, &err);
    if (!record)
        fail_msg("%s", err.text);
    const struct json *files = js_get(js_get(record, "data"), "files");
    assert_int_equal(js_count(files), 8); // the text, the pair, the list itself and its two pairs
    assert_string_equal(js_string_of(js_get(js_at(files, 0), "sha256"), ""), "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
    assert_int_equal(js_integer_of(js_get(js_at(files, 0), "size"), 0), 5);
    char *last = in_folder(context, "sub/q.idx");
    assert_string_equal(js_string_of(js_get(js_at(files, 7), "path"), ""), last);
    assert_int_equal(number_in(record, "image", "size"), 3);
    assert_string_equal(text_in(record, "image", "sha256"), "b29814cf5792e684cd75d6a7fce7a67a11887e312f87ca2ac2496d81f365ff72");
    struct json *written = NULL;
    char *data = read_all(*context, "run/provenance/data.json");
    written = js_parse(data, strlen(data), &err);
    assert_true(js_equal(written, js_get(record, "data")));
    js_free(written);
    free(data);
    js_free(record);
    spec.image.path = "nvcr.io://nvidia/pytorch:25.01-py3";
    record = collect(context, &spec, &err);
    assert_int_equal(js_kind(js_get(js_get(record, "image"), "sha256")), JSON_KIND_NULL);
    js_free(record);
    spec.image.path = "/nowhere.sqsh";
    assert_null(collect(context, &spec, &err));
    assert_string_equal(err.text, "image.path: /nowhere.sqsh: No such file or directory");
    spec.image.path = NULL;
    unlink(last);
    assert_null(collect(context, &spec, &err));
    assert_non_null(strstr(err.text, "data.manifest: "));
    assert_non_null(strstr(err.text, "q.idx: No such file"));
    free(last);
    free(text);
    free(prefix);
    free(list);
    free(image);
}

// A file that has been quiet for a while is read once: the second answer comes from the memory, which the test has changed to prove it.
static void test_digests(void **context)
{
    struct error err;
    char *image = in_folder(context, "image"), *memory = in_folder(context, "digests");
    struct spec spec = {.image = {.path = image}};
    struct provenance_request request = {.spec = &spec, .digests = memory};
    shell(*context, "printf 'fresh' > image");
    js_free(provenance_collect_for(&request, &err));
    assert_false(file_exists(memory)); // changed just now: it could change again under the same time
    sleep(3);
    struct json *record = provenance_collect_for(&request, &err);
    char *real = string_copy(text_in(record, "image", "sha256"));
    js_free(record);
    char *known = read_all(*context, "digests");
    assert_true(strncmp(known, real, 64) == 0);
    memset(known, 'f', 64);
    assert_fine(file_write_atomic(memory, known, strlen(known), 0600, &err), err);
    record = provenance_collect_for(&request, &err);
    assert_true(strspn(text_in(record, "image", "sha256"), "f") == 64);
    js_free(record);
    shell(*context, "touch -r image stamp; printf 'FRESH' > image; touch -r stamp image"); // same size, inode and mtime: another ctime
    record = provenance_collect_for(&request, &err);
    char hex[HASH_HEX];
    hash_bytes(hex, "FRESH", 5);
    assert_string_equal(text_in(record, "image", "sha256"), hex);
    js_free(record);
    free(real);
    free(known);
    free(image);
    free(memory);
}

static void test_environment(void **context)
{
    struct error err;
    static const char *const given[][3] = {// name, value, shown
        {"PATH", "/usr/bin", "/usr/bin"}, {"HF_TOKEN", "abc", "***"}, {"my_api_key", "abc", "***"}, {"Db_Password", "p", "***"}, {"AWS_SECRET_ACCESS", "s", "***"},
        {"GOOGLE_APPLICATION_CREDENTIALS", "/f", "***"}, {"GITHUB_PAT", "x", "***"}, {"PATHS", "y", "y"}, {"NOTHING", "", ""},
        {"INNOCENT", "hf_abcdefghijklmnopqrst", "***"}, {"SHORT", "hf_a", "hf_a"},
        {"http_proxy", "http://me:pw@proxy.example:8080/x", "http://proxy.example:8080/x"}, {"TWO", "a=https://u@h/p b=ssh://k:l@m", "a=https://h/p b=ssh://m"},
        {"MAIL", "mailto:someone@example.org", "mailto:someone@example.org"}, {"AT", "http://host/a@b", "http://host/a@b"}, {"NCCL_DEBUG", "INFO", "INFO"}};
    enum { COUNT = sizeof given / sizeof given[0] };
    struct json *environment = js_object();
    for (int i = 0; i < COUNT; i++)
        js_set(environment, given[i][0], js_string(given[i][1]));
    char *keys[] = {"OMP_NUM_THREADS", "WANDB_API_KEY"}, *values[] = {"4", "w"};
    struct spec spec = {.environment = {.variables = {.keys = keys, .values = values, .count = 2}}};
    char *directory = in_folder(context, "run");
    struct provenance_request request = {.spec = &spec, .environment = environment, .directory = directory};
    struct json *record = provenance_collect_for(&request, &err);
    if (!record)
        fail_msg("%s", err.text);
    int masks = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_string_equal(text_in(record, "environment", given[i][0]), given[i][2]);
        masks += strcmp(given[i][2], "***") == 0;
    }
    assert_string_equal(text_in(record, "environment", "OMP_NUM_THREADS"), "4");
    assert_string_equal(text_in(record, "environment", "WANDB_API_KEY"), "***");
    assert_int_equal(js_count(js_get(record, "masked")), masks + 1);
    char *written = read_all(*context, "run/provenance/environment.json");
    assert_null(strstr(written, "abc"));
    free(written);
    free(directory);
    js_free(record);
    js_free(environment);
}

static void test_machine_and_versions(void **context)
{
    struct error err;
    shell(*context, "printf '#!/bin/sh\\ntest \"$1 $2\" = \"--version --json\" && echo \"{\\\"version\\\":\\\"9\\\"}\"' > worker; printf '#!/bin/sh\\nsleep 60' > slow; chmod +x worker slow");
    char *worker = in_folder(context, "worker"), *absent = in_folder(context, "absent");
    struct spec spec = {0};
    struct json *libraries = js_object(), *argv = js_array();
    js_set(libraries, "sqlite", js_string("3"));
    js_append(argv, js_string("mpirun"));
    struct provenance_request request = {.spec = &spec, .worker = worker, .libraries = libraries, .argv = argv};
    struct json *record = provenance_collect_for(&request, &err);
    assert_string_equal(js_string_of(js_get(js_get(js_get(record, "versions"), "worker"), "version"), ""), "9");
    assert_string_equal(text_in(record, "versions", "switchyard"), SWITCHYARD_VERSION);
    assert_string_equal(js_string_of(js_get(js_get(js_get(record, "versions"), "libraries"), "sqlite"), ""), "3");
    assert_true(js_equal(js_get(record, "argv"), argv));
    char host[256];
    gethostname(host, sizeof host);
    assert_string_equal(text_in(record, "machine", "hostname"), host);
    assert_true(number_in(record, "machine", "cores") > 0 && number_in(record, "machine", "memory_bytes") > 1 << 20);
    assert_true(strlen(text_in(record, "machine", "cpu")) > 0 && strlen(text_in(record, "machine", "kernel")) > 0);
    js_free(record);
    request.worker = absent;
    record = provenance_collect_for(&request, &err);
    assert_int_equal(js_kind(js_get(js_get(record, "versions"), "worker")), JSON_KIND_NULL);
    js_free(record);
    js_free(libraries);
    js_free(argv);
    free(worker);
    free(absent);
}

// A program that never ends is ended, its children too.
static void test_deadline(void **context)
{
    struct error err;
    shell(*context, "printf '#!/bin/sh\\nsleep 71 & echo $! > %s/child; wait' \"$PWD\" > slow; chmod +x slow");
    char *slow = in_folder(context, "slow");
    struct spec spec = {0};
    double begun = clock_steady();
    js_free(provenance_collect_for(&(struct provenance_request){.spec = &spec, .worker = slow}, &err));
    assert_true(clock_steady() - begun < 20);
    char *child = read_all(*context, "child");
    usleep(200000);
    char *status = string_format("/proc/%d/status", atoi(child));
    struct text text;
    text_init(&text, 65536);
    assert_true(file_read(status, &text, NULL) != 0 || strstr(text.at, "State:\tZ")); // gone, or waiting for init to take it
    text_release(&text);
    free(status);
    free(child);
    free(slow);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_clean), IN_FOLDER(test_dirty), IN_FOLDER(test_commit), IN_FOLDER(test_files), IN_FOLDER(test_digests), IN_FOLDER(test_environment),
        IN_FOLDER(test_machine_and_versions), IN_FOLDER(test_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
