// Rules of jobs that a scheduler starts.
#include "schema/spec/rules.h"

#include <stdlib.h>
#include <string.h>

enum { SECONDS_MAX = 65535 }; // of sbatch's --signal

// [B:]NAME[@SECONDS]. Other signals would end the script, or are the scheduler's own.
static bool is_signal(const char *text)
{
    static const char *const names[] = {"USR1", "USR2", "TERM"};
    if (strncmp(text, "B:", 2) == 0)
        text += 2;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(text, names[i], strlen(names[i])) != 0)
            continue;
        const char *rest = text + strlen(names[i]);
        if (!*rest)
            return true;
        size_t digits = strspn(rest + 1, "0123456789");
        return *rest == '@' && digits > 0 && digits <= 5 && rest[1 + digits] == 0 && atoi(rest + 1) <= SECONDS_MAX;
    }
    return false;
}

// What Slurm cannot show on one line, or reads as one of its own.
static bool is_unfit(const char *path)
{
    for (; *path; path++)
        if ((unsigned char)*path < 0x20 || *path == 0x7F || *path == '\\')
            return true;
    return false;
}

static void check_signal(struct check *check)
{
    const struct spec *spec = check->spec;
    const char *signal = spec->slurm.signal;
    if (!rule_reads(check, "slurm.signal", NULL) || !signal)
        return;
    if (!is_signal(signal))
        check_at(check, "slurm.signal", false, "`slurm.signal` expects USR1, USR2 or TERM, and @SECONDS up to %d, such as USR1@120, not `%.40s`", SECONDS_MAX, signal);
    else if (strchr(signal, '@') && rule_written(check, "slurm.grace"))
        check_at(check, "slurm.grace", true, "`slurm.grace` is not used: `slurm.signal` has its own time");
}

void check_slurm(struct check *check)
{
    const struct spec *spec = check->spec;
    if (rule_reads(check, "slurm", "executor", NULL) && spec->slurm.present && spec->executor != EXECUTOR_SLURM)
        check_at(check, "slurm", true, "the keys of `slurm` are not used by this `executor`");
    check_signal(check);
    if (!rule_reads(check, "executor", NULL) || spec->executor != EXECUTOR_SLURM)
        return;
    if (rule_reads(check, "output", NULL) && spec->output && is_unfit(spec->output))
        check_at(check, "output", false, "`output` has a control character or a backslash: such a directory cannot be a Slurm job's");
    if (rule_reads(check, "slurm.grace", "resources.time_limit", "slurm.signal", NULL) && spec->resources.time_limit > 0 &&
        spec->slurm.grace >= spec->resources.time_limit && !spec->slurm.signal)
        check_at(check, "resources.time_limit", true, "the run is told to stop %.15g s (`slurm.grace`) before the end of its %.15g s: as soon as it starts",
            spec->slurm.grace, spec->resources.time_limit);
    if (rule_reads(check, "slurm.requeue", "checkpoint.interval", NULL) && spec->slurm.requeue && spec->checkpoint.interval == 0)
        check_at(check, "slurm.requeue", true, "a run that is requeued after a node failed begins anew: it has no `checkpoint.interval`");
}
