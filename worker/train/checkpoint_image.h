// What one rank writes of a checkpoint: files as lists of tensors, whose bytes come from the device, or from a snapshot in host memory
// that stays as it is while training goes on. Private to the checkpoint files of this room; nothing here is collective.
#pragma once
#include "worker/train/checkpoint.h"
#include "worker/weights/safetensors.h"

enum { IMAGE_FILES = 5, FILE_NAME = 96 };

struct written { // one file; travels between ranks as bytes
    char name[FILE_NAME];
    int64_t bytes;
    char hex[HASH_HEX];
};

struct image_file {
    char name[FILE_NAME];
    struct tensor_entry *entries;
    size_t count;
    bool on_device;             // where the entries' sources are
};

struct image {
    const struct job *job;
    const struct device *device;
    int64_t step;
    bool diverged; // of weights that are not finite: older checkpoints stay, whatever checkpoint.keep says
    struct image_file files[IMAGE_FILES];
    size_t count;
    struct json *trainer, *index; // rank 0: trainer.json; Hugging Face's map, NULL for a dense model
    char *temporary, *final;
};

void image_init(struct image *image, const struct training_state *state);
void image_release(struct image *image);
size_t image_bytes(const struct image *image);             // of all its tensors
void image_snapshot(struct image *image, void *memory);    // copies them there (image_bytes), and is read from there from now on

// Rank 0: an empty temporary directory.
int image_prepare(const struct image *image, struct error *err);
// Every rank: its tensors into the temporary directory, flushed to the disk.
int image_write(const struct image *image, struct written written[IMAGE_FILES], struct error *err);
// Rank 0, when all ranks have written: the small files, the rename, the mark that makes it a checkpoint; then removes old ones
// (checkpoint.keep). all(count): the files of all ranks.
int image_publish(const struct image *image, const struct written *all, size_t count, int64_t *bytes, struct error *err);
// Rank 0: all but the newest `keep` complete checkpoints (0: keeps all), and what killed attempts left half-written. A loss that is not finite
// removes none.
void image_remove_old(const struct image *image);
