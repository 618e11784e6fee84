// Sample indices kept on disk, so that a large dataset is shuffled once and not by every rank of every run.
#pragma once
#include "worker/data/data.h"

// Takes the index from a cache directory, or makes it and puts it there. directory NULL: makes it. Not being able to write is an error
// only where must_write.
int sample_index_cached(struct sample_index *index, const char *directory, bool must_write, const int32_t *lengths, int64_t sequences,
    int64_t sequence_length, int64_t wanted, int64_t seed, struct error *err);
