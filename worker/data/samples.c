// GPT samples of one split of one pair, exactly as Megatron's GPTDataset makes them: a document index (epochs of shuffled sequences),
// a sample index (where each run of S + 1 tokens starts; neighbours share one token) and a shuffle of the samples. One random state
// seeded by the run's seed shuffles documents first, samples second.
#include "schema/base/text.h"
#include "worker/data/data.h"
#include "worker/data/sample_cache.h"
#include "worker/data/shuffle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct samples {
    const struct indexed *indexed;
    int64_t first;             // the split's first sequence
    int64_t sequence_length;
    struct sample_index index;
};

bool split_range(int64_t *first, int64_t *end, const double split[3], enum data_split which, int64_t sequences)
{
    double sum = split[0] + split[1] + split[2], begin = 0;
    for (int i = 0; i < (int)which; i++)
        begin += split[i] / sum;
    *first = (int64_t)nearbyint(begin * (double)sequences);
    *end = (int64_t)nearbyint((begin + split[which] / sum) * (double)sequences);
    return split[which] > 0;
}

static void fill_documents(struct sample_index *index, int64_t sequences, struct mt19937 *random)
{
    for (int64_t i = 0; i < index->document_count; i++)
        index->document[i] = (int32_t)(i % sequences);
    int64_t together = index->document_count - (index->separate_epoch ? sequences : 0);
    shuffle_i32(random, index->document, together);
    shuffle_i32(random, index->document + together, index->document_count - together);
}

// Walks the documents, S tokens at a time; a sample also holds the first token of the next.
static void fill_starts(struct sample_index *index, const int32_t *lengths, int64_t sequence_length)
{
    int64_t position = 0, offset = 0;
    for (int64_t row = 1; row <= index->count; row++) {
        int64_t needed = sequence_length + 1;
        while (needed > 0) {
            int64_t left = lengths[index->document[position]] - offset;
            if (left >= needed) {
                offset += needed - 1;
                needed = 0;
            } else {
                needed -= left;
                position++;
                offset = 0;
            }
        }
        index->start[row][0] = position;
        index->start[row][1] = offset;
    }
}

static void fill_shuffle(struct sample_index *index, int64_t before_last_epoch, struct mt19937 *random)
{
    for (int64_t i = 0; i < index->count; i++)
        index->shuffle[i] = (uint32_t)i;
    int64_t together = index->separate_epoch ? before_last_epoch : index->count;
    shuffle_u32(random, index->shuffle, together);
    shuffle_u32(random, index->shuffle + together, index->count - together);
}

int sample_index_init(struct sample_index *index, const int32_t *lengths, int64_t sequences, int64_t sequence_length, int64_t wanted,
    int64_t seed, struct error *err)
{
    *index = (struct sample_index){.epochs = 1};
    const int64_t S = sequence_length;
    int64_t T = 0; // tokens an epoch
    for (int64_t i = 0; i < sequences; i++)
        T += lengths[i];
    if (T == 0)
        return error_set(err, "no tokens to make samples of");
    if (wanted > (INT64_MAX / 2) / S)
        return error_set(err, "%lld samples of %lld tokens are more than can be counted", (long long)wanted, (long long)S);
    if (wanted > 0)
        index->epochs = (wanted * S + 1 + T - 1) / T;
    index->count = (index->epochs * T - 1) / S;
    index->document_count = index->epochs * sequences;
    if (index->count == 0)
        return error_set(err, "%lld tokens are too few for one sample of %lld", (long long)T, (long long)(S + 1));
    if (index->document_count >= UINT32_MAX || index->count >= UINT32_MAX)
        return error_set(err, "%lld epochs of %lld sequences are more than this build can shuffle", (long long)index->epochs,
            (long long)sequences);
    int64_t have = ((index->epochs - 1) * T - 1) / S; // samples before the last epoch
    if (index->epochs > 1)
        index->separate_epoch = wanted - have < (int64_t)(0.80 * (double)((T - 1) / S));

    index->document = allocate((size_t)index->document_count, sizeof *index->document);
    index->start = allocate((size_t)index->count + 1, sizeof *index->start);
    index->shuffle = allocate((size_t)index->count, sizeof *index->shuffle);
    struct mt19937 random;
    mt19937_seed(&random, (uint32_t)seed);
    fill_documents(index, sequences, &random);
    fill_starts(index, lengths, S);
    fill_shuffle(index, have, &random);
    return 0;
}

void sample_index_release(struct sample_index *index)
{
    free(index->document);
    free(index->start);
    free(index->shuffle);
}

int samples_open(struct samples **result, const struct indexed *indexed, const struct sampling *sampling, int64_t wanted, struct error *err)
{
    static const char *const names[] = {"training", "validation", "test"};
    const double *split = sampling->split;
    *result = NULL;
    int64_t first, end;
    if (!split_range(&first, &end, split, sampling->which, indexed_sequences(indexed)) || first == end)
        return error_set(err, "the %s split is empty: %lld sequences split %g, %g, %g", names[sampling->which],
            (long long)indexed_sequences(indexed), split[0], split[1], split[2]);
    struct samples *samples = allocate(1, sizeof *samples);
    samples->indexed = indexed;
    samples->first = first;
    samples->sequence_length = sampling->sequence_length;
    int32_t *lengths = allocate((size_t)(end - first), sizeof *lengths);
    for (int64_t i = first; i < end; i++)
        lengths[i - first] = (int32_t)indexed_length(indexed, i);
    int status = sample_index_cached(&samples->index, sampling->cache, sampling->cache_needed, lengths, end - first, sampling->sequence_length,
        wanted, sampling->seed, err);
    free(lengths);
    if (status != 0) {
        samples_close(samples);
        return error_context(err, "the %s split", names[sampling->which]);
    }
    *result = samples;
    return 0;
}

void samples_close(struct samples *samples)
{
    if (!samples)
        return;
    sample_index_release(&samples->index);
    free(samples);
}

int64_t samples_count(const struct samples *samples)
{
    return samples->index.count;
}

void samples_read(const struct samples *samples, int64_t index, int32_t *out)
{
    const struct sample_index *at = &samples->index;
    const int64_t *start = at->start[at->shuffle[index]];
    int64_t position = start[0], offset = start[1], needed = samples->sequence_length + 1;
    while (needed > 0) {
        int64_t sequence = samples->first + at->document[position];
        int64_t take = indexed_length(samples->indexed, sequence) - offset;
        if (take > needed)
            take = needed;
        indexed_read(samples->indexed, sequence, offset, take, out);
        out += take;
        needed -= take;
        position++;
        offset = 0;
    }
}
