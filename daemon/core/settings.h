// What config.yaml says, as it counts now: read when the daemon opens, and again when the file has changed. A file that is broken changes
// nothing: what counted before goes on to count, and the fault is told until the file is mended. Everything in it takes effect at once but
// for runs that were submitted already: what they ask of a scheduler was worked out then.
#pragma once
#include "schema/base/error.h"
#include "schema/base/json.h"
#include "schema/spec/config.h"
#include <pthread.h>
#include <sys/stat.h>

struct settings {
    char *home, *path;
    struct config config;
    int64_t gpus;         // as the command line declares them; -1: as the file says. Set by who opens
    double read;          // wall seconds; when config was last taken over
    char *fault;          // why the file as it is now does not count; NULL: it does
    struct stat seen;     // the file at the last look; all zero: there was none
    struct stat settled;  // the file that config, or fault, is from
    pthread_mutex_t lock; // guards what follows from another thread's view: config.allowed_hosts, fault, read
};

// -1: the file is broken, and there is nothing from before that could go on to count.
int settings_open(struct settings *settings, const char *home, struct error *err);
void settings_close(struct settings *settings);

// One look at the file. True where it is another than the one that was read last, and was so at the look before too: nobody is in the middle
// of writing it.
bool settings_have_changed(struct settings *settings);
// Reads it. 0: config is the new one. -1: config is as before, and fault says why. The caller sees to it that nobody else reads config.
int settings_take(struct settings *settings);

int64_t settings_gpus(const struct settings *settings); // that are declared; -1: nobody did
struct json *settings_json(struct settings *settings);  // {"file": path|null, "read": seconds, "fault": text|null}
