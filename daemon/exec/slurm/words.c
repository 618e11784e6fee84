#include "daemon/exec/slurm/words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// squeue and sacct print one word: a flag, where one is set, before the base state. No flag but REVOKED is an end, and a base state only when no
// flag hides it: a job that is preempted and requeued shows COMPLETING or REQUEUED, then PENDING.
const struct state_word state_words[] = {
    // base states
    {"PENDING", "PD", JOB_PENDING, 0, "waits in the queue"},
    {"RUNNING", "R", JOB_RUNNING, 0, "runs"},
    {"SUSPENDED", "S", JOB_RUNNING, 0, "suspended by the scheduler"},
    {"COMPLETED", "CD", JOB_ENDED, END_COMPLETED, "completed"},
    {"CANCELLED", "CA", JOB_ENDED, END_CANCELLED, "cancelled"},
    {"FAILED", "F", JOB_ENDED, END_FAILED, "failed"},
    {"TIMEOUT", "TO", JOB_ENDED, END_TIME_LIMIT, "Slurm's time limit was reached"},
    {"NODE_FAIL", "NF", JOB_ENDED, END_NODE_FAILED, "a node failed"},
    {"PREEMPTED", "PR", JOB_ENDED, END_PREEMPTED, "preempted by a job of higher priority"},
    {"BOOT_FAIL", "BF", JOB_ENDED, END_REFUSED, "its nodes did not boot"},
    {"DEADLINE", "DL", JOB_ENDED, END_REFUSED, "its deadline passed"},
    {"OUT_OF_MEMORY", "OOM", JOB_ENDED, END_OUT_OF_MEMORY, "out of memory"},
    // flags
    {"COMPLETING", "CG", JOB_RUNNING, 0, "ending: its nodes are being cleared"},
    {"CONFIGURING", "CF", JOB_PENDING, 0, "its nodes are being made ready"},
    {"POWER_UP_NODE", "PO", JOB_PENDING, 0, "its nodes are being powered up"},
    {"EXPEDITING", "EX", JOB_PENDING, 0, "to be started again, ahead of others"},
    {"LAUNCH_FAILED", "LF", JOB_PENDING, 0, "its launch failed; held"},
    {"RECONFIG_FAIL", "RE", JOB_PENDING, 0, "its nodes could not be configured"},
    {"REQUEUED", "RQ", JOB_PENDING, 0, "to be started again"},
    {"REQUEUE_FED", "RF", JOB_PENDING, 0, "to be started again by its federation"},
    {"REQUEUE_HOLD", "RH", JOB_PENDING, 0, "to be started again; held"},
    {"RESV_DEL_HOLD", "RD", JOB_PENDING, 0, "held: its reservation was deleted"},
    {"SPECIAL_EXIT", "SE", JOB_PENDING, 0, "held after a special exit"},
    {"RESIZING", "RS", JOB_RUNNING, 0, "changing its size"},
    {"REVOKED", "RV", JOB_ENDED, END_REFUSED, "revoked: another cluster of its federation runs it"},
    {"SIGNALING", "SI", JOB_RUNNING, 0, "being signalled"},
    {"STAGE_OUT", "SO", JOB_RUNNING, 0, "its files are being staged out"},
    {"STOPPED", "ST", JOB_RUNNING, 0, "stopped by a signal, its cores kept"},
    {"UPDATE_DB", "UD", JOB_RUNNING, 0, "being written to accounting"},
    {0},
};

static bool is_word_byte(char byte)
{
    return isupper((unsigned char)byte) || byte == '_';
}

// The word that begins like this; NULL where none does, or several.
static const struct state_word *by_beginning(const char *text, size_t length)
{
    const struct state_word *found = NULL;
    for (const struct state_word *word = state_words; word->word; word++)
        if (strlen(word->word) > length && strncmp(word->word, text, length) == 0) {
            if (found)
                return NULL;
            found = word;
        }
    return found;
}

// What may follow the word. False: the column says something else than we understand.
static bool read_suffix(const char *rest, long long *by)
{
    *by = -1;
    if (*rest == 0)
        return true;
    if (strncmp(rest, " by ", 4) != 0 || !isdigit((unsigned char)rest[4]))
        return false;
    char *end;
    *by = strtoll(rest + 4, &end, 10);
    return *end == 0;
}

const struct state_word *state_word_of(const char *text, long long *by)
{
    size_t length = 0;
    long long nobody;
    while (is_word_byte(text[length]))
        length++;
    if (!by)
        by = &nobody;
    *by = -1;
    if (length == 0)
        return NULL;
    if (text[length] == '+' && text[length + 1] == 0)
        for (const struct state_word *word = state_words; word->word; word++)
            if (strlen(word->word) == length && strncmp(word->word, text, length) == 0)
                return word; // "CANCELLED+": what was cut off is " by 123"
    if (text[length] == '+' && text[length + 1] == 0)
        return by_beginning(text, length);
    if (!read_suffix(text + length, by))
        return NULL;
    for (const struct state_word *word = state_words; word->word; word++)
        if ((strlen(word->word) == length && strncmp(word->word, text, length) == 0) ||
            (strlen(word->compact) == length && strncmp(word->compact, text, length) == 0))
            return word;
    return NULL;
}

// ---- reasons ----

struct reason_word {
    const char *raw; // compared with blanks and underscores alike, since squeue prints one and scontrol the other
    const char *words;
};

static const struct reason_word waiting[] = {
    {"Resources", "waits for resources"},
    {"Priority", "jobs of higher priority are before it"},
    {"BeginTime", "its time to begin has not come"},
    {"Dependency", "waits for another job"},
    {"DependencyNeverSatisfied", "waits for a job that did not end as it should have, and will wait for ever"},
    {"JobHeldUser", "held by a user"},
    {"JobHeldAdmin", "held by an administrator"},
    {"JobHoldMaxRequeue", "held: it was started again too often"},
    {"MaxRequeue", "it was started again too often"},
    {"launch failed requeued held", "its launch failed; held until somebody releases it"},
    {"job requeued in held state", "put back into the queue and held"},
    {"RequeueHold", "put back into the queue and held"},
    {"JobArrayTaskLimit", "as many tasks of its array run as may"},
    {"Licenses", "waits for licences"},
    {"Reservation", "waits for its reservation"},
    {"ReservationDeleted", "its reservation was deleted"},
    {"InvalidAccount", "its account is not valid"},
    {"AccountNotAllowed", "its account may not use this partition"},
    {"InvalidQOS", "its QOS is not valid"},
    {"QOSNotAllowed", "its QOS may not be used with this partition or account"},
    {"QOSUsageThreshold", "its QOS has been used too much"},
    {"PartitionDown", "its partition is down"},
    {"PartitionInactive", "its partition takes no jobs at present"},
    {"PartitionNodeLimit", "it wants more or fewer nodes than its partition allows, or they are down"},
    {"PartitionTimeLimit", "its time limit is above its partition's"},
    {"PartitionConfig", "it wants what its partition does not allow"},
    {"AccountingPolicy", "a limit of accounting is reached"},
    {"BadConstraints", "no nodes can have what it asks for"},
    {"ConstraintsNotSatisfied", "no nodes can have what it asks for at present"},
    {"MaxMemPerLimit", "it wants more memory than a node or a CPU may be asked for"},
    {"NodeDown", "a node that it needs is down"},
    {"FrontEndDown", "no front end can start it"},
    {"Prolog", "its prolog runs"},
    {"Cleaning", "it is being started again; its last start is still being cleared away"},
    {"SystemFailure", "Slurm itself, a file system or the network failed"},
    {"JobLaunchFailure", "it could not be launched"},
    {"SchedDefer", "its turn to be looked at has not come"},
    {"BurstBufferResources", "waits for the burst buffer"},
    {"BurstBufferStageIn", "its files are being staged in"},
    {"BurstBufferOperation", "the burst buffer failed"},
    {"FedJobLock", "waits for its federation"},
    {"ReservationDown", "its reservation's nodes are down"},
    {0},
};

// By how they begin: what follows are names of nodes, or of limits.
static const struct reason_word waiting_beginnings[] = {
    {"ReqNodeNotAvail", "a node that it needs is not available"},
    {"NodeNotAvail", "a node that it needs is not available"},
    {"UnavailableNodes", "a node that it needs is not available"},
    {"QOS", "a limit of its QOS is reached"},
    {"Assoc", "a limit of its account is reached"},
    {"MaxCpuPerAccount", "a limit of its account is reached"},
    {"MaxBB", "a limit of the burst buffer is reached"},
    {"MCS", "another security label holds the nodes"},
    {0},
};

// Slurm's own words are a sentence that says no more than ours.
static const struct reason_word waiting_sentences[] = {
    {"Nodes required for job are DOWN", "nodes that it needs are down, drained, or reserved for jobs of higher priority"},
    {0},
};

static const struct reason_word ending[] = {
    {"NonZeroExitCode", ""}, // the code says it
    {"TimeLimit", ""},       // and so does the state
    {"OutOfMemory", ""},
    {"NodeDown", ""},
    {"NodeFail", ""},
    {"JobLaunchFailure", "it could not be launched, or was killed"},
    {"BadConstraints", "no nodes can have what it asks for"},
    {"SystemFailure", "Slurm itself, a file system or the network failed"},
    {"InactiveLimit", "it was inactive for too long"},
    {"DeadLine", ""},
    {"BootFail", ""},
    {"Prolog", "its prolog failed"},
    {"Dependency", "a job that it waited for did not end as it should have"},
    {"DependencyNeverSatisfied", "a job that it waited for did not end as it should have"},
    {0},
};

static bool is_same(const char *raw, const char *word, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (raw[i] != word[i] && !(raw[i] == '_' && word[i] == ' '))
            return false;
    return true;
}

static const char *look_up(const struct reason_word *table, const char *raw, bool beginnings)
{
    for (; table->raw; table++) {
        size_t length = strlen(table->raw);
        if ((beginnings ? strlen(raw) >= length : strlen(raw) == length) && is_same(raw, table->raw, length))
            return table->words;
    }
    return NULL;
}

static bool says_nothing(const char *raw)
{
    return !raw[0] || strcmp(raw, "None") == 0 || strcmp(raw, "(null)") == 0;
}

void reason_waiting(char *out, size_t size, const char *raw)
{
    out[0] = 0;
    if (says_nothing(raw))
        return;
    const char *sentence = look_up(waiting_sentences, raw, true), *words = look_up(waiting, raw, false);
    if (!words)
        words = look_up(waiting_beginnings, raw, true);
    if (sentence)
        snprintf(out, size, "%s", sentence);
    else if (words)
        snprintf(out, size, "%s (%s)", words, raw);
    else
        snprintf(out, size, "%s", raw);
}

void reason_ended(char *out, size_t size, const char *raw)
{
    out[0] = 0;
    if (says_nothing(raw))
        return;
    const char *words = look_up(ending, raw, false);
    if (words && words[0])
        snprintf(out, size, "%s (%s)", words, raw);
    else if (strncmp(raw, "RaisedSignal", 12) != 0)
        snprintf(out, size, "(%s)", raw);
}
