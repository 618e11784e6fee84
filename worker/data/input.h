// A text file as a stream of bytes: plain, or gzip by content (dictzip's .dict.dz is gzip too). The only file that includes zlib.h is
// input.c.
#pragma once
#include "schema/base/error.h"
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct input;
int input_open(struct input **input, const char *path, struct error *err);
void input_close(struct input *input);
ssize_t input_read(struct input *input, char *out, size_t count, struct error *err); // 0: end; -1: error
int64_t input_position(const struct input *input); // bytes of the file consumed, compressed if it is
int64_t input_size(const struct input *input);
