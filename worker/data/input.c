// See input.h. A gzip file is one or more members; zeros may follow the last (padding of tapes), anything else is an error, and so is an
// end inside a member: half a corpus must not look like a whole one.
#include "worker/data/input.h"
#include "schema/base/file.h"
#include "schema/base/text.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { INPUT_BLOCK = 1 << 18 };

struct input {
    char *path;
    int fd;
    int64_t position, size;
    int gzip;        // by content: the first two bytes are 1f 8b
    int inside;      // within a gzip member
    z_stream stream;
    unsigned char block[INPUT_BLOCK];
    size_t at, end;  // unread part of block
};

// Makes sure that block has unread bytes; 0 at the end of the file.
static ssize_t refill(struct input *input, struct error *err)
{
    if (input->at < input->end)
        return (ssize_t)(input->end - input->at);
    ssize_t got = read(input->fd, input->block, sizeof input->block);
    if (got < 0)
        return error_errno(err, "%s", input->path);
    input->at = 0;
    input->end = (size_t)got;
    input->position += got;
    return got;
}

int input_open(struct input **result, const char *path, struct error *err)
{
    *result = NULL;
    int fd = file_open(path, err);
    struct stat info;
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) != 0) {
        close(fd);
        return error_errno(err, "%s", path);
    }
    struct input *input = allocate(1, sizeof *input);
    input->fd = fd;
    input->path = string_copy(path);
    input->size = info.st_size;
    if (refill(input, err) < 0) {
        input_close(input);
        return -1;
    }
    input->gzip = input->end >= 2 && input->block[0] == 0x1f && input->block[1] == 0x8b;
    if (input->gzip && inflateInit2(&input->stream, 15 + 16) != Z_OK) {
        input->gzip = 0;
        input_close(input);
        return error_set(err, "%s: zlib cannot start", path);
    }
    *result = input;
    return 0;
}

void input_close(struct input *input)
{
    if (!input)
        return;
    if (input->gzip)
        inflateEnd(&input->stream);
    close(input->fd);
    free(input->path);
    free(input);
}

static ssize_t read_plain(struct input *input, char *out, size_t count, struct error *err)
{
    ssize_t have = refill(input, err);
    if (have <= 0)
        return have;
    if (count > (size_t)have)
        count = (size_t)have;
    for (size_t i = 0; i < count; i++)
        out[i] = (char)input->block[input->at + i];
    input->at += count;
    return (ssize_t)count;
}

// Between members: true when another begins; false at the end of the file, after padding zeros.
static int next_member(struct input *input, struct error *err)
{
    ssize_t have;
    while ((have = refill(input, err)) > 0 && input->block[input->at] == 0)
        input->at++;
    if (have <= 0)
        return (int)have;
    if (input->block[input->at] != 0x1f)
        return error_set(err, "%s: corrupt gzip: bytes that are not gzip after its end", input->path);
    inflateReset(&input->stream);
    return input->inside = 1;
}

static ssize_t read_gzip(struct input *input, char *out, size_t count, struct error *err)
{
    z_stream *stream = &input->stream;
    stream->next_out = (unsigned char *)out;
    stream->avail_out = (unsigned)count;
    while (stream->avail_out == count) {
        if (!input->inside) {
            int more = next_member(input, err);
            if (more <= 0)
                return more;
        }
        ssize_t have = refill(input, err);
        if (have < 0)
            return -1;
        if (have == 0)
            return error_set(err, "%s: corrupt gzip: it ends inside its data", input->path);
        stream->next_in = input->block + input->at;
        stream->avail_in = (unsigned)have;
        int code = inflate(stream, Z_NO_FLUSH);
        input->at = input->end - stream->avail_in;
        if (code == Z_STREAM_END)
            input->inside = 0;
        else if (code != Z_OK && code != Z_BUF_ERROR)
            return error_set(err, "%s: corrupt gzip: %s", input->path, stream->msg ? stream->msg : "bad data");
    }
    return (ssize_t)(count - stream->avail_out);
}

ssize_t input_read(struct input *input, char *out, size_t count, struct error *err)
{
    return input->gzip ? read_gzip(input, out, count, err) : read_plain(input, out, count, err);
}

int64_t input_position(const struct input *input)
{
    return input->position - (int64_t)(input->end - input->at);
}

int64_t input_size(const struct input *input)
{
    return input->size;
}
