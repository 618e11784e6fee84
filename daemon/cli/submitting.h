// While a submission is being taken in: how far it is, and Ctrl-C, which gives it up as long as it is not complete.
#pragma once
#include "daemon/cli/client.h"
#include <stdbool.h>

struct submitting {
    const struct arguments *arguments;
    struct client *other;  // asks beside the request that is waited for
    char id[33];           // the daemon's word for the submission
    int heard;             // interrupts before it began
    bool terminal, drawn;
    bool cancelled;        // by Ctrl-C
    double began, told;    // steady seconds
};

void submitting_begin(struct submitting *submitting, struct client *client, const struct arguments *arguments);
void submitting_end(struct submitting *submitting, struct client *client);
