// The repository a run came from: commit, branch, what differs from it, where it was cloned from. Nothing of the repository's configuration
// is allowed to start a program.
#include "daemon/record/inside.h"
#include "schema/base/file.h"
#include "schema/base/hash.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GIT_DEADLINE_MS = 30000, DIFF_MAX = 16 << 20, LIST_MAX = 64 << 20, UNTRACKED_SHOWN = 1000, WORDS_MAX = 24 };

// `git -C path words…`; the exit code, or -1. complaint (may be NULL) gets the first line of stderr, free().
static int git(const char *path, struct text *out, char **complaint, struct error *err, ...)
{
    const char *argv[WORDS_MAX] = {"git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-C", path};
    size_t count = 7;
    va_list words;
    va_start(words, err);
    while ((argv[count] = va_arg(words, const char *)) && count < WORDS_MAX - 2)
        count++;
    va_end(words);
    argv[count] = NULL;
    struct command command = {.argv = argv, .deadline_ms = GIT_DEADLINE_MS, .out = out};
    text_clear(out);
    int status = child_run(&command, err);
    if (complaint)
        *complaint = string_format("%.*s", (int)strcspn(command.complaint.at, "\n"), command.complaint.at);
    text_release(&command.complaint);
    return status != 0 ? -1 : command.code;
}

static void cut_line_end(struct text *text)
{
    while (text->length && (text->at[text->length - 1] == '\n' || text->at[text->length - 1] == '\r'))
        text->at[--text->length] = 0;
}

// "scheme://user:password@host" anywhere in a text loses what is between the slashes and the '@'.
char *url_without_userinfo(const char *text)
{
    struct text clean;
    text_init(&clean, strlen(text) + 1);
    for (const char *at = text; *at;) {
        const char *scheme = strstr(at, "://");
        if (!scheme || scheme == text || !isalnum((unsigned char)scheme[-1])) {
            text_add(&clean, at);
            break;
        }
        const char *authority = scheme + 3;
        size_t length = strcspn(authority, "/?# \t\r\n\"'<>");
        text_add_bytes(&clean, at, (size_t)(authority - at));
        const char *sign = memrchr(authority, '@', length);
        at = sign ? sign + 1 : authority;
    }
    return text_take(&clean);
}

// The line of a command that answers with one, or null when it has no answer.
static struct json *ask_line(const char *path, struct text *out, const char *first, const char *second, const char *third, const char *fourth)
{
    if (git(path, out, NULL, NULL, first, second, third, fourth, NULL) != 0)
        return js_null();
    cut_line_end(out);
    return js_string(out->at);
}

static struct json *ask_remote(const char *path, struct text *out)
{
    if (git(path, out, NULL, NULL, "remote", "get-url", "origin", NULL) != 0)
        return js_null();
    cut_line_end(out);
    char *clean = url_without_userinfo(out->at);
    struct json *remote = js_string(clean);
    free(clean);
    return remote;
}

// A name as a comment line of the patch: a line break in it must not begin a line of its own.
static void note_untracked(struct text *patch, const char *name)
{
    text_add(patch, "# untracked: ");
    for (const char *at = name; *at; at++)
        text_add_bytes(patch, (unsigned char)*at < 0x20 ? "?" : at, 1);
    text_add(patch, "\n");
}

// `git status -z`: "XY name" and a NUL for each file; X is the index, Y the working tree, ?? untracked.
static int list_changes(const char *path, struct text *out, struct json *code, struct text *patch, struct error *err)
{
    if (git(path, out, NULL, err, "status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=all", NULL) != 0)
        return -1;
    struct json *untracked = js_array();
    int64_t staged = 0, unstaged = 0, untracked_count = 0;
    for (const char *at = out->at, *end = out->at + out->length; end - at > 3; at += strlen(at) + 1) {
        if (at[0] == '?') {
            if (untracked_count++ < UNTRACKED_SHOWN) {
                js_append(untracked, js_string(at + 3));
                note_untracked(patch, at + 3);
            }
            continue;
        }
        staged += at[0] != ' ';
        unstaged += at[1] != ' ';
    }
    js_set(code, "dirty", js_boolean(staged > 0 || unstaged > 0));
    js_set(code, "staged", js_integer(staged));
    js_set(code, "unstaged", js_integer(unstaged));
    js_set(code, "untracked", untracked);
    js_set(code, "untracked_count", js_integer(untracked_count));
    return 0;
}

static int add_diff(const char *path, struct text *patch, struct text *out, bool *cut, const char *title, const char *cached, struct error *err)
{
    if (git(path, out, NULL, err, "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--src-prefix=a/", "--dst-prefix=b/",
            cached, NULL) != 0)
        return -1;
    if (out->length == 0)
        return 0;
    text_addf(patch, "# %s\n", title);
    text_add_bytes(patch, out->at, out->length);
    *cut |= out->overflowed;
    return 0;
}

// Staged first, then unstaged on top of it: in this order `git apply` makes the tree that was there.
static int add_changes(const char *root, struct json *code, struct text *patch, struct error *err)
{
    struct text out;
    bool cut = false;
    text_init(&out, LIST_MAX);
    int status = list_changes(root, &out, code, patch, err);
    text_release(&out);
    if (status != 0)
        return -1;
    text_init(&out, DIFF_MAX);
    status = add_diff(root, patch, &out, &cut, "staged", "--cached", err);
    if (status == 0)
        status = add_diff(root, patch, &out, &cut, "unstaged", NULL, err);
    text_release(&out);
    char hex[HASH_HEX];
    hash_bytes(hex, patch->at, patch->length);
    js_set(code, "diff_sha256", patch->length ? js_string(hex) : js_null());
    js_set(code, "diff_truncated", js_boolean(cut || patch->overflowed));
    return status;
}

// A commit that the spec names must be what is checked out.
static int check_commit(const char *root, const char *wanted, const char *head, struct text *out, struct error *err)
{
    char *name = string_format("%s^{commit}", wanted);
    int code = git(root, out, NULL, err, "rev-parse", "--verify", "--quiet", "--end-of-options", name, NULL);
    free(name);
    if (code < 0)
        return -1;
    cut_line_end(out);
    if (code != 0)
        return error_set(err, "code.commit: %s has no commit %s", root, wanted);
    if (!head || strcmp(out->at, head) != 0)
        return error_set(err, "code.commit: %s is not checked out in %s, where HEAD is %s: `git checkout %s` there, or name that one", wanted, root,
            head ? head : "no commit yet", wanted);
    return 0;
}

static struct json *describe(const char *root, const char *wanted, struct text *patch, struct error *err)
{
    struct text out;
    text_init(&out, 65536);
    struct json *code = js_object();
    js_set(code, "path", js_string(root));
    js_set(code, "commit", ask_line(root, &out, "rev-parse", "--verify", "--quiet", "HEAD"));
    js_set(code, "branch", ask_line(root, &out, "symbolic-ref", "--short", "--quiet", "HEAD"));
    js_set(code, "remote", ask_remote(root, &out));
    int status = wanted ? check_commit(root, wanted, js_string_of(js_get(code, "commit"), NULL), &out, err) : 0;
    text_release(&out);
    struct error why;
    if (status == 0 && add_changes(root, code, patch, &why) != 0)
        js_set(code, "incomplete", js_string(why.text)); // a huge tree: the commit is known, the rest is not
    if (status == 0)
        return code;
    js_free(code);
    return NULL;
}

struct json *code_collect(const char *path, const char *commit, struct text *patch, char **reason, struct error *err)
{
    struct stat info;
    *reason = NULL;
    if (!path) {
        if (commit)
            return error_set(err, "code.commit is given, but no code.path"), NULL;
        *reason = string_copy("the spec names no code");
        return js_null();
    }
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return error_set(err, "code.path: %s is not a directory", path), NULL;
    struct text root;
    struct error why = {0};
    char *complaint = NULL;
    text_init(&root, 65536);
    int code = git(path, &root, &complaint, &why, "rev-parse", "--show-toplevel", NULL);
    cut_line_end(&root);
    struct json *answer = NULL;
    if (code == 0 && root.length)
        answer = describe(root.at, commit, patch, err);
    else
        *reason = string_format("%s: %s", path, code < 0 ? why.text : complaint && *complaint ? complaint : "not a git working tree");
    if (*reason && commit) {
        error_set(err, "code.commit: %s", *reason);
        free(*reason);
        *reason = NULL;
    } else if (*reason) {
        answer = js_null();
    }
    free(complaint);
    text_release(&root);
    return answer;
}
