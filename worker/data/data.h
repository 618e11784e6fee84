// What training reads: Megatron's indexed pairs, and GPT samples drawn from them exactly as Megatron's GPTDataset and BlendedDataset do.
// Stands alone: no other room of the worker is included here.
#pragma once
#include "schema/base/error.h"
#include "schema/base/hash.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- one pair PREFIX.bin / PREFIX.idx, memory-mapped and checked at open (magic, version, sizes, offsets, .bin as long as told) ----
struct indexed;
int indexed_open(struct indexed **indexed, const char *prefix, struct error *err);
void indexed_close(struct indexed *indexed);
int64_t indexed_sequences(const struct indexed *indexed);
int64_t indexed_length(const struct indexed *indexed, int64_t sequence); // tokens
// A token that does not fit an int32_t reads as -1.
void indexed_read(const struct indexed *indexed, int64_t sequence, int64_t first, int64_t count, int32_t *out);
// Identity of the content: SHA-256 over the .idx file, the length of .bin and its bytes: all of them up to 256 MiB, else 256 blocks of
// 1 MiB at equal distances, first and last included.
int indexed_fingerprint(char hex[HASH_HEX], const char *prefix, struct error *err);

// ---- writing a pair: temporary names, renamed into place by finish. Memory: 4 bytes a document ----
struct indexed_writer;
struct indexed_written { // what finish wrote
    int64_t documents, tokens, bin_bytes, idx_bytes;
    char bin_sha256[HASH_HEX], idx_sha256[HASH_HEX];
};
int indexed_writer_open(struct indexed_writer **writer, const char *prefix, int64_t vocabulary, struct error *err); // u16 if < 65500, else i32
int indexed_writer_tokens(struct indexed_writer *writer, const int32_t *tokens, size_t count, struct error *err);   // more of this document
int indexed_writer_end_document(struct indexed_writer *writer, struct error *err);                                  // none since the last: skipped
int indexed_writer_document(struct indexed_writer *writer, const int32_t *tokens, size_t count, struct error *err); // both
int64_t indexed_writer_count(const struct indexed_writer *writer, int64_t *documents);                              // tokens so far
int indexed_writer_finish(struct indexed_writer *writer, struct indexed_written *written, struct error *err);       // frees the writer in any case
void indexed_writer_abandon(struct indexed_writer *writer);

// ---- samples of one split of one pair ----
enum data_split { SPLIT_TRAIN, SPLIT_VALID, SPLIT_TEST };
struct samples;
struct sampling {           // what samples are made by
    enum data_split which;
    const double *split;    // three weights, as in the spec
    int64_t sequence_length;
    int64_t seed;           // training.seed
    const char *cache;      // directory for sample indices; NULL: none
    bool cache_needed;      // not being able to write there is an error
};
// wanted: samples needed (0: one epoch).
int samples_open(struct samples **samples, const struct indexed *indexed, const struct sampling *sampling, int64_t wanted, struct error *err);
void samples_close(struct samples *samples);
int64_t samples_count(const struct samples *samples);
void samples_read(const struct samples *samples, int64_t index, int32_t *out); // S + 1 tokens

// The sequences of a split: [*first, *end) of `sequences`, bounds rounded half to even. False if the split's weight is zero.
bool split_range(int64_t *first, int64_t *end, const double split[3], enum data_split which, int64_t sequences);

// The three arrays that make the samples of sequences with these lengths; for tests and tools. Freed by sample_index_release.
struct sample_index {
    int32_t *document;      // [document_count]: sequences in reading order, epoch after epoch
    int64_t (*start)[2];    // [count + 1]: position in document, token offset there
    uint32_t *shuffle;      // [count]
    int64_t document_count, count, epochs;
    bool separate_epoch;    // the last epoch is shuffled on its own
};
int sample_index_init(struct sample_index *index, const int32_t *lengths, int64_t sequences, int64_t sequence_length, int64_t wanted,
    int64_t seed, struct error *err);
void sample_index_release(struct sample_index *index);

// ---- samples over one or several pairs: what the trainer reads ----
struct blend_part { const char *prefix; double weight; }; // weights <= 0 everywhere: unweighted, each pair for one epoch
struct blend;
int blend_open(struct blend **blend, const struct blend_part *parts, size_t count, const struct sampling *sampling, int64_t wanted,
    struct error *err);
void blend_close(struct blend *blend);
int64_t blend_count(const struct blend *blend);
void blend_read(const struct blend *blend, int64_t index, int32_t *out); // S + 1 tokens

// The order of a blend: sample s comes from the pair that lags most behind weight · s; first maximum wins. weights are normalised.
void blend_order(int16_t *dataset, int64_t *sample, const double *weights, size_t datasets, int64_t size);

// ---- documents within samples ----
// The token that ends a document: the byte tokenizer's own, or the one with this text in a tokenizer.json.
int document_end_token(int32_t *id, const char *tokenizer, const char *text, struct error *err);
// starts(count): for each token the place in the row where its document begins; the token that ends a document is its last.
void document_starts(int32_t *starts, const int32_t *tokens, int64_t count, int32_t end);

// ---- tokenising ----
enum { BYTE_TOKEN_EOD = 256, BYTE_VOCABULARY = 257 };
struct tokenize_options {
    const char *input;      // text, .jsonl, each plain or gzip (by content)
    const char *prefix;     // output pair; complete.json is written beside it, last
    const char *document;   // "paragraph", "line", "file"; a line of JSONL is one document
    const char *json_key;   // for .jsonl(.gz)
    const char *tokenizer;  // "byte"
    void (*progress)(void *context, int64_t bytes_done, int64_t bytes_total, int64_t documents, int64_t tokens); // may be NULL
    void *context;
};
struct tokenize_result { int64_t documents, tokens, bytes; }; // bytes: of text, after decompression
int tokenize_file(struct tokenize_result *result, const struct tokenize_options *options, struct error *err);
