// Where a home's daemon can be reached: daemon.json, written by `serve`, read by every other command. It holds the token, so it is
// private to its owner (mode 0600), and a file that others can read is not believed.
#pragma once
#include "schema/base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { TOKEN_DIGITS = 64 };

struct address {
    char *url;     // http://127.0.0.1:PORT
    char *token;   // NULL: none known
    int64_t pid;
    char *host;    // name of the machine it runs on
    bool alive;    // on this machine, since this boot, with a process of that pid
    bool elsewhere; // on another machine: alive cannot be known
};

// Reads home/daemon.json. 0 found (alive or not), 1 none there, -1 it cannot be used.
int address_read(struct address *address, const char *home, struct error *err);
// Writes it for this process.
int address_write(const char *home, const char *url, const char *token, struct error *err);
void address_remove(const char *home);
void address_release(struct address *address);
