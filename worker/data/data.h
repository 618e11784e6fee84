// What training reads: Megatron's indexed pairs, and GPT samples drawn from them exactly as Megatron's GPTDataset does (facts: Megatron
// 1.1–1.9). Stands alone: no other room of the worker is included here.
#pragma once
#include "schema/base/error.h"
#include <stddef.h>
#include <stdint.h>

// ---- one pair PREFIX.bin / PREFIX.idx, memory-mapped and checked at open (magic, version, sizes, offsets, tokens within .bin) ----
struct indexed;
int indexed_open(struct indexed **indexed, const char *prefix, struct error *err);
void indexed_close(struct indexed *indexed);
int64_t indexed_sequences(const struct indexed *indexed);
int64_t indexed_length(const struct indexed *indexed, int64_t sequence); // tokens
void indexed_read(const struct indexed *indexed, int64_t sequence, int64_t first, int64_t count, int32_t *out);

// ---- writing a pair: temporary names, renamed into place by finish ----
struct indexed_writer;
int indexed_writer_open(struct indexed_writer **writer, const char *prefix, int64_t vocabulary, struct error *err); // u16 if < 65500, else i32
int indexed_writer_document(struct indexed_writer *writer, const int32_t *tokens, size_t count, struct error *err);
int indexed_writer_finish(struct indexed_writer *writer, struct error *err); // frees the writer in any case
void indexed_writer_abandon(struct indexed_writer *writer);

// ---- samples of one split ----
enum data_split { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST };
struct samples;
// split: weights as in the spec; wanted: samples needed (0: one epoch); seed: training.seed.
int samples_open(struct samples **samples, const struct indexed *indexed, enum data_split which, const double split[3], int64_t sequence_length,
    int64_t wanted, int64_t seed, struct error *err);
void samples_close(struct samples *samples);
int64_t samples_count(const struct samples *samples);
void samples_read(const struct samples *samples, int64_t index, int32_t *out); // S + 1 tokens

// ---- tokenising ----
struct tokenize_options {
    const char *input;      // text, .jsonl, each plain or gzip (by content)
    const char *prefix;     // output pair
    const char *document;   // "paragraph", "line", "file"
    const char *json_key;   // for .jsonl(.gz)
    const char *tokenizer;  // "byte"
    void (*progress)(void *context, int64_t bytes_done, int64_t bytes_total, int64_t documents, int64_t tokens); // may be NULL
    void *context;
};
struct tokenize_result { int64_t documents, tokens, bytes; };
int tokenize_file(struct tokenize_result *result, const struct tokenize_options *options, struct error *err);
