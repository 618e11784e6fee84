// `switchyard config slurm`: what this cluster is, asked once and written down with its source beside each value, for people to look
// through and change.
#pragma once
#include "schema/base/error.h"
#include "schema/base/text.h"
#include "schema/spec/config.h"

enum { PROBE_SINFO, PROBE_CONFIG, PROBE_MPI, PROBE_LIMITS, PROBES };

struct slurm_probe {
    char *said[PROBES]; // what each command printed; NULL: it did not answer
};

// Asks the commands, each with a deadline. -1 where there is no Slurm here, or none that answers.
int slurm_probe(struct slurm_probe *probe, struct error *err);
void slurm_probe_release(struct slurm_probe *probe);

// A whole config.yaml from the answers. known: what a person has set already and no command can tell (hosts, account) is kept.
void slurm_probe_write(struct text *yaml, const struct slurm_probe *probe, const struct config *known);
