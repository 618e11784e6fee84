// Text to tokens: reads a file as a stream of bytes, cuts it into documents and writes them as a pair. A document is a paragraph (lines
// up to a blank one; inner newlines kept), a line, the whole file, or the text of one line of JSONL; empty ones are skipped. The byte
// tokenizer: a byte is its own token, and token 256 ends each document. Memory is bounded by JSON_LINE_MAX whatever the file's size.
#include "schema/base/file.h"
#include "schema/base/json.h"
#include "worker/data/data.h"
#include "worker/data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BLOCK = 1 << 16, JSON_LINE_MAX = 256 << 20, BLANK_MAX = 1 << 16, PROGRESS_BYTES = 4 << 20 };

struct tokenizing {
    const struct tokenize_options *options;
    struct input *input;
    struct indexed_writer *writer;
    int64_t text_bytes, line;
    int64_t reported;       // text_bytes at the last progress call
    struct text blank;      // blanks at a line's start that are not known yet to be text, with the newline before them
    bool in_document;
    struct text json_line;
};

static int put_bytes(struct tokenizing *at, const char *bytes, size_t count, struct error *err)
{
    int32_t tokens[4096];
    while (count > 0) {
        size_t take = count < 4096 ? count : 4096;
        for (size_t i = 0; i < take; i++)
            tokens[i] = (unsigned char)bytes[i];
        if (indexed_writer_tokens(at->writer, tokens, take, err) != 0)
            return -1;
        bytes += take;
        count -= take;
    }
    return 0;
}

static int end_document(struct tokenizing *at, struct error *err)
{
    const int32_t eod = BYTE_TOKEN_EOD;
    at->in_document = false;
    return indexed_writer_document(at->writer, &eod, 1, err);
}

static int text_of_document(struct tokenizing *at, const char *bytes, size_t count, struct error *err)
{
    at->in_document = true;
    return put_bytes(at, bytes, count, err);
}

// One document for the whole file.
static int take_file(struct tokenizing *at, const char *bytes, size_t count, struct error *err)
{
    return text_of_document(at, bytes, count, err);
}

// A document a line; empty lines are none.
static int take_lines(struct tokenizing *at, const char *bytes, size_t count, struct error *err)
{
    while (count > 0) {
        const char *newline = memchr(bytes, '\n', count);
        size_t piece = newline ? (size_t)(newline - bytes) : count;
        if (piece > 0 && text_of_document(at, bytes, piece, err) != 0)
            return -1;
        if (!newline)
            return 0;
        if (at->in_document && end_document(at, err) != 0)
            return -1;
        bytes += piece + 1;
        count -= piece + 1;
    }
    return 0;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// Paragraphs: `blank` holds a newline and the blanks after it until it is known whether text follows on that line (then they are part
// of the document) or another newline does (then the document has ended).
static int take_paragraphs(struct tokenizing *at, const char *bytes, size_t count, struct error *err)
{
    for (size_t i = 0; i < count;) {
        char c = bytes[i];
        if (c == '\n') {
            bool was_blank_line = at->blank.length > 0;
            if (was_blank_line && at->in_document && end_document(at, err) != 0)
                return -1;
            text_clear(&at->blank);
            text_add_bytes(&at->blank, "\n", 1);
            i++;
            continue;
        }
        if (is_blank(c) && at->blank.length > 0 && at->blank.length < BLANK_MAX) {
            text_add_bytes(&at->blank, &c, 1);
            i++;
            continue;
        }
        size_t skip = at->in_document || !at->blank.length ? 0 : 1; // a document does not begin with a newline
        if (put_bytes(at, at->blank.at + skip, at->blank.length - (at->blank.length ? skip : 0), err) != 0)
            return -1;
        text_clear(&at->blank);
        size_t end = i;
        while (end < count && bytes[end] != '\n')
            end++;
        if (text_of_document(at, bytes + i, end - i, err) != 0)
            return -1;
        i = end;
    }
    return 0;
}

static int take_json_line(struct tokenizing *at, struct error *err)
{
    const struct text *line = &at->json_line;
    const char *key = at->options->json_key ? at->options->json_key : "text";
    at->line++;
    if (strspn(line->at, " \t\r") == line->length)
        return 0;
    struct json *value = js_parse(line->at, line->length, err);
    if (!value)
        return error_context(err, "%s:%lld", at->options->input, (long long)at->line);
    const struct json *member = js_get(value, key);
    int status = 0;
    if (js_kind(member) != JSON_KIND_STRING)
        status = error_set(err, "%s:%lld: no string member \"%s\"", at->options->input, (long long)at->line, key);
    else {
        const char *text = js_string_of(member, "");
        if (*text)
            status = text_of_document(at, text, strlen(text), err) == 0 ? end_document(at, err) : -1;
    }
    js_free(value);
    return status;
}

static int take_json(struct tokenizing *at, const char *bytes, size_t count, struct error *err)
{
    while (count > 0) {
        const char *newline = memchr(bytes, '\n', count);
        size_t piece = newline ? (size_t)(newline - bytes) : count;
        text_add_bytes(&at->json_line, bytes, piece);
        if (at->json_line.overflowed)
            return error_set(err, "%s:%lld: a line of more than %d bytes", at->options->input, (long long)at->line + 1, JSON_LINE_MAX);
        if (!newline)
            return 0;
        if (take_json_line(at, err) != 0)
            return -1;
        text_clear(&at->json_line);
        bytes += piece + 1;
        count -= piece + 1;
    }
    return 0;
}

typedef int take_function(struct tokenizing *at, const char *bytes, size_t count, struct error *err);

static take_function *choose(const struct tokenize_options *options, struct error *err)
{
    const char *gz = strstr(options->input, ".jsonl");
    if (gz && (strcmp(gz, ".jsonl") == 0 || strcmp(gz, ".jsonl.gz") == 0))
        return take_json;
    if (strcmp(options->document, "paragraph") == 0)
        return take_paragraphs;
    if (strcmp(options->document, "line") == 0)
        return take_lines;
    if (strcmp(options->document, "file") == 0)
        return take_file;
    error_set(err, "document \"%s\": expected paragraph, line or file", options->document);
    return NULL;
}

static void report(struct tokenizing *at)
{
    int64_t documents, tokens = indexed_writer_count(at->writer, &documents);
    at->reported = at->text_bytes;
    if (at->options->progress)
        at->options->progress(at->options->context, input_position(at->input), input_size(at->input), documents, tokens);
}

static int read_all(struct tokenizing *at, take_function *take, struct error *err)
{
    char block[READ_BLOCK];
    ssize_t got;
    while ((got = input_read(at->input, block, sizeof block, err)) > 0) {
        if (take(at, block, (size_t)got, err) != 0)
            return -1;
        at->text_bytes += got;
        if (at->text_bytes - at->reported >= PROGRESS_BYTES)
            report(at);
    }
    if (got < 0)
        return -1;
    if (at->json_line.length && take_json_line(at, err) != 0)
        return -1;
    if (at->in_document && end_document(at, err) != 0)
        return -1;
    report(at);
    return 0;
}

static int write_complete(const struct tokenize_options *options, const struct indexed_written *written, int64_t text_bytes, struct error *err)
{
    struct json *json = js_object();
    js_set(json, "v", js_integer(1));
    js_set(json, "documents", js_integer(written->documents));
    js_set(json, "tokens", js_integer(written->tokens));
    js_set(json, "bytes", js_integer(text_bytes));
    js_set(json, "bin_bytes", js_integer(written->bin_bytes));
    js_set(json, "bin_sha256", js_string(written->bin_sha256));
    js_set(json, "idx_bytes", js_integer(written->idx_bytes));
    js_set(json, "idx_sha256", js_string(written->idx_sha256));
    struct text text;
    text_init(&text, 1 << 16);
    js_write_pretty(&text, json);
    const char *slash = strrchr(options->prefix, '/');
    char *path = string_format("%.*s%s", slash ? (int)(slash + 1 - options->prefix) : 0, options->prefix, "complete.json");
    int status = file_write_atomic(path, text.at, text.length, 0644, err);
    free(path);
    text_release(&text);
    js_free(json);
    return status;
}

int tokenize_file(struct tokenize_result *result, const struct tokenize_options *options, struct error *err)
{
    *result = (struct tokenize_result){0};
    struct tokenizing at = {.options = options};
    struct indexed_written written;
    text_init(&at.blank, 2 * BLANK_MAX);
    text_add(&at.blank, "\n"); // a file begins at the start of a line
    text_init(&at.json_line, JSON_LINE_MAX);
    int status = -1;
    if (strcmp(options->tokenizer, "byte") != 0) {
        error_set(err, "tokenizer \"%s\": this build has only byte", options->tokenizer);
        goto out;
    }
    take_function *take = choose(options, err);
    if (!take || input_open(&at.input, options->input, err) != 0)
        goto out;
    if (indexed_writer_open(&at.writer, options->prefix, BYTE_VOCABULARY, err) != 0 || read_all(&at, take, err) != 0)
        goto out;
    int64_t documents;
    if (indexed_writer_count(at.writer, &documents) == 0) {
        error_set(err, "%s: no text in it", options->input);
        goto out;
    }
    struct indexed_writer *writer = at.writer;
    at.writer = NULL;
    if (indexed_writer_finish(writer, &written, err) != 0 || write_complete(options, &written, at.text_bytes, err) != 0)
        goto out;
    *result = (struct tokenize_result){written.documents, written.tokens, at.text_bytes};
    status = 0;
out:
    indexed_writer_abandon(at.writer);
    input_close(at.input);
    text_release(&at.blank);
    text_release(&at.json_line);
    return status;
}
