// The whole record of a submission: each part from its file of this room, put together and written beside the run.
#include "daemon/record/inside.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATCH_MAX = 40 << 20, MANIFEST_MAX = 16 << 20, FILES_MAX = 100000, VERSION_MAX = 65536, VERSION_DEADLINE_MS = 10000 };

// ---- image and data ----

// A file is hashed; an unpacked image or a reference into a registry is named, with why it has no digest.
static struct json *describe_image(const char *path, struct digests *digests, struct error *err)
{
    struct stat info;
    if (!path)
        return js_null();
    bool is_reference = strstr(path, "://") != NULL, is_directory = !is_reference && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    if (!is_reference && !is_directory) {
        struct json *image = digest_of_file(digests, path, err);
        if (!image)
            error_context(err, "image.path");
        return image;
    }
    struct json *image = js_object();
    js_set(image, "path", js_string(path));
    js_set(image, "size", js_null());
    js_set(image, "sha256", js_null());
    js_set(image, "reason", js_string(is_directory ? "an unpacked image: a directory has no digest" : "a reference: not a file on this machine"));
    return image;
}

static int add_file(struct json *files, struct digests *digests, const char *path, const char *key, struct error *err)
{
    if (js_count(files) >= FILES_MAX)
        return error_set(err, "%s: more than %d files", key, FILES_MAX);
    struct json *file = digest_of_file(digests, path, err);
    if (!file)
        return error_context(err, "%s", key);
    js_append(files, file);
    return 0;
}

static int add_pair(struct json *files, struct digests *digests, const char *prefix, const char *key, struct error *err)
{
    char *bin = string_format("%s.bin", prefix), *idx = string_format("%s.idx", prefix);
    int status = add_file(files, digests, bin, key, err);
    if (status == 0)
        status = add_file(files, digests, idx, key, err);
    free(bin);
    free(idx);
    return status;
}

// A manifest has a prefix a line, after a weight if there is one; relative ones are beside the manifest.
static int add_manifest(struct json *files, struct digests *digests, const char *path, struct error *err)
{
    struct text lines;
    text_init(&lines, MANIFEST_MAX);
    char *up = path_join(path, ".."), *directory = path_absolute(up, NULL);
    int status = file_read(path, &lines, err) == 0 ? add_file(files, digests, path, "data.manifest", err) : error_context(err, "data.manifest");
    for (char *save = NULL, *line = strtok_r(lines.at, "\n", &save); line && status == 0; line = strtok_r(NULL, "\n", &save)) {
        size_t length = strlen(line);
        while (length && isspace((unsigned char)line[length - 1]))
            line[--length] = 0;
        line += strspn(line, " \t");
        if (!*line || *line == '#')
            continue;
        size_t number = strspn(line, "0123456789.eE+-"), blank = strspn(line + number, " \t");
        char *prefix = path_join(directory, number && blank ? line + number + blank : line);
        status = add_pair(files, digests, prefix, "data.manifest", err);
        free(prefix);
    }
    free(up);
    free(directory);
    text_release(&lines);
    return status;
}

static struct json *describe_data(const struct spec_data *data, struct digests *digests, struct error *err)
{
    struct json *answer = js_object(), *files = js_array();
    js_set(answer, "manifest", js_string(data->manifest));
    js_set(answer, "files", files);
    int status = data->text ? add_file(files, digests, data->text, "data.text", err) : 0;
    if (status == 0 && data->prefix)
        status = add_pair(files, digests, data->prefix, "data.prefix", err);
    if (status == 0 && data->manifest)
        status = add_manifest(files, digests, data->manifest, err);
    if (status == 0 && data->tokenizer && data->tokenizer[0] == '/')
        status = add_file(files, digests, data->tokenizer, "data.tokenizer", err);
    if (status == 0)
        return answer;
    js_free(answer);
    return NULL;
}

// ---- environment and versions ----

static struct json *all_variables(const struct spec *spec, const struct json *environment)
{
    struct json *variables = environment ? js_copy(environment) : js_object();
    for (size_t i = 0; i < spec->environment.variables.count; i++)
        js_set(variables, spec->environment.variables.keys[i], js_string(spec->environment.variables.values[i]));
    return variables;
}

static struct json *ask_worker(const char *worker)
{
    if (!worker)
        return js_null();
    const char *const argv[] = {worker, "--version", "--json", NULL};
    struct text out;
    text_init(&out, VERSION_MAX);
    struct command command = {.argv = argv, .deadline_ms = VERSION_DEADLINE_MS, .out = &out};
    struct json *answer = child_run(&command, NULL) == 0 && command.code == 0 ? js_parse(out.at, out.length, NULL) : NULL;
    text_release(&command.complaint);
    text_release(&out);
    return answer ? answer : js_null();
}

static struct json *describe_versions(const struct provenance_request *request)
{
    struct json *versions = js_object(), *libraries = request->libraries ? js_copy(request->libraries) : js_object();
    js_set(libraries, "libc", js_string(gnu_get_libc_version()));
    js_set(versions, "switchyard", js_string(SWITCHYARD_VERSION));
    js_set(versions, "worker", ask_worker(request->worker));
    js_set(versions, "libraries", libraries);
    return versions;
}

// ---- files ----

static int write_bytes(const char *directory, const char *name, const char *bytes, size_t count, struct error *err)
{
    char *path = path_join(directory, name);
    int status = file_write_atomic(path, bytes, count, 0600, err);
    free(path);
    return status;
}

static int write_part(const char *directory, const char *name, const struct json *part, struct error *err)
{
    if (js_kind(part) == JSON_KIND_NULL)
        return 0;
    struct text text;
    text_init(&text, SIZE_MAX / 2);
    js_write_pretty(&text, part);
    int status = write_bytes(directory, name, text.at, text.length, err);
    text_release(&text);
    return status;
}

static int write_files(const struct json *record, const struct text *patch, const char *run_directory, struct error *err)
{
    char *directory = path_join(run_directory, "provenance");
    int status = directory_make(run_directory, err);
    if (status == 0 && mkdir(directory, 0700) != 0 && errno != EEXIST)
        status = error_errno(err, "%s", directory);
    const char *commit = js_string_of(js_get(js_get(record, "code"), "commit"), NULL);
    char *line = string_format("%s\n", commit ? commit : "");
    if (status == 0 && commit)
        status = write_bytes(directory, "commit", line, strlen(line), err);
    if (status == 0 && patch->length)
        status = write_bytes(directory, "diff.patch", patch->at, patch->length, err);
    static const char *const parts[] = {"image", "data", "environment", "machine"};
    for (size_t i = 0; status == 0 && i < sizeof parts / sizeof parts[0]; i++) {
        char *name = string_format("%s.json", parts[i]);
        status = write_part(directory, name, js_get(record, parts[i]), err);
        free(name);
    }
    free(line);
    free(directory);
    return status;
}

// ---- all of it ----

static int fill(struct json *record, const struct provenance_request *request, struct digests *digests, struct text *patch, struct error *err)
{
    const struct spec *spec = request->spec;
    char *reason = NULL;
    struct json *code = code_collect(spec->code.path, spec->code.commit, patch, &reason, err);
    if (!code)
        return -1;
    js_set(record, "code", code);
    if (reason)
        js_set(record, "code_reason", js_string(reason));
    free(reason);
    struct json *image = describe_image(spec->image.path, digests, err);
    if (!image)
        return -1;
    js_set(record, "image", image);
    struct json *data = describe_data(&spec->data, digests, err);
    if (!data)
        return -1;
    js_set(record, "data", data);
    struct json *variables = all_variables(spec, request->environment), *masked = js_array();
    js_set(record, "environment", provenance_mask(variables, masked));
    js_set(record, "masked", masked);
    js_free(variables);
    js_set(record, "machine", machine_describe());
    js_set(record, "versions", describe_versions(request));
    js_set(record, "argv", request->argv ? js_copy(request->argv) : js_array());
    char now[CLOCK_TEXT];
    clock_text(now, clock_wall());
    js_set(record, "collected", js_string(now));
    return 0;
}

struct json *provenance_collect_for(const struct provenance_request *request, struct error *err)
{
    struct json *record = js_object();
    struct digests *digests = digests_open(request->digests);
    struct text patch;
    text_init(&patch, PATCH_MAX);
    int status = fill(record, request, digests, &patch, err);
    if (status == 0 && request->directory)
        status = write_files(record, &patch, request->directory, err);
    text_release(&patch);
    digests_close(digests);
    if (status == 0)
        return record;
    js_free(record);
    return NULL;
}

struct json *provenance_collect(const struct spec *spec, const struct json *environment, const char *directory, struct error *err)
{
    return provenance_collect_for(&(struct provenance_request){.spec = spec, .environment = environment, .directory = directory}, err);
}

// ---- shared ----

// One name more for the same bytes, which nobody changes; where the file system has no links, a copy.
static int share_file(const char *from, const char *to, struct error *err)
{
    struct text bytes;
    if (link(from, to) == 0 || errno == ENOENT || errno == EEXIST)
        return 0;
    text_init(&bytes, PATCH_MAX);
    int status = file_read(from, &bytes, err) == 0 ? file_write_atomic(to, bytes.at, bytes.length, 0600, err) : -1;
    text_release(&bytes);
    return status;
}

// An object of its own with the same members, which nobody changes.
static struct json *shallow_copy(const struct json *record)
{
    struct json *copy = js_object();
    for (void *i = js_first(record); i; i = js_next(record, i))
        js_set(copy, js_key(i), js_keep(js_value(i)));
    return copy;
}

struct json *provenance_share(const struct json *record, const char *from_directory, const char *to_directory, struct error *err)
{
    static const char *const files[] = {"commit", "diff.patch", "image.json", "data.json", "environment.json", "machine.json"};
    char *directory = path_join(to_directory, "provenance");
    int status = mkdir(directory, 0700) == 0 || errno == EEXIST ? 0 : error_errno(err, "%s", directory);
    for (size_t i = 0; status == 0 && i < sizeof files / sizeof *files; i++) {
        char *from = string_format("%s/provenance/%s", from_directory, files[i]), *to = path_join(directory, files[i]);
        status = share_file(from, to, err);
        free(from);
        free(to);
    }
    free(directory);
    return status == 0 ? shallow_copy(record) : NULL;
}
