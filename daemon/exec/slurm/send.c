// Calls of sbatch, and what their answers mean. Runs at SEND that differ in nothing but their names share one call, as elements of an array
// (array.h). All else stays each run's own: on a clear answer each is the element that it is, on any other each goes through CHECK by itself.
// A refusal of an array may be due to its being one: its runs are sent by themselves, so that each gets its own answer.
#include "daemon/exec/environment.h"
#include "daemon/exec/slurm/errand.h"
#include "daemon/exec/slurm/options.h"
#include "schema/base/clock.h"
#include "schema/record/layout.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MAX = 64 << 10 };
#define COMPANY_WAIT 0.5   // seconds without another run of its kind after which an array is full enough
#define COMPANY_MAX 5.0    // … that its first run waits at most
#define SWEEP_AGAIN 3600.0 // seconds between two looks for what arrays have left behind

// What belongs to another job, or would change what is asked for, is not passed on; where the cluster is, is.
// alone: it is told whose it is; an array's elements find that out by themselves.
static const char **environment_of(const struct entry *entry, bool alone, struct word_list *own)
{
    static const char *const kept[] = {"SLURM_CONF", "SLURM_CONF_SERVER"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (getenv(kept[i]))
            word_list_addf(own, "%s=%s", kept[i], getenv(kept[i]));
    for (size_t i = 0; i < entry->errand->environment.count; i++)
        word_list_add(own, entry->errand->environment.at[i]);
    if (alone) {
        word_list_addf(own, TAG_VARIABLE "=%s", entry->tag);
        word_list_addf(own, SUBMISSION_VARIABLE "=%" PRId64, entry->serial);
    }
    const char **list = job_environment((const char *const *)own->at, NULL);
    size_t count = 0;
    for (size_t i = 0; list[i]; i++)
        if (strncmp(list[i], "SBATCH_", 7) != 0)
            list[count++] = list[i];
    list[count] = NULL;
    return list;
}

// words: sbatch's. Where it cannot even be started, nothing is sent.
static void send_parcel(struct slurm *slurm, struct entry **entries, size_t count, const char *directory, const struct word_list *words)
{
    struct word_list own = {0};
    const char **environment = environment_of(entries[0], count == 1, &own);
    struct command_request request = {.argv = (const char *const *)words->at,
        .environment = environment,
        .directory = directory,
        .deadline = slurm->settings.deadline,
        .output_max = ANSWER_MAX};
    struct error err = {0};
    struct command *command = command_start(&request, &err);
    struct parcel *parcel = command ? allocate(1, sizeof *parcel) : NULL;
    if (parcel)
        *parcel = (struct parcel){.command = command, .count = count, .holders = count};
    slurm->sending += parcel != NULL;
    for (size_t i = 0; i < count; i++) {
        struct errand *errand = entries[i]->errand;
        entries[i]->clean = false;
        errand->parcel = parcel;
        errand->element = i;
        if (!parcel)
            snprintf(errand->fault, sizeof errand->fault, "%.500s", err.text);
        errand_go(errand, parcel ? SENDING : REFUSED);
    }
    free(environment);
    word_list_release(&own);
}

static void send_job(struct slurm *slurm, struct entry *entry)
{
    struct errand *errand = entry->errand;
    struct word_list words = {0};
    if (!errand_mark_sent(entry))
        return;
    slurm_sbatch(&words, (const char *const *)errand->options.at, entry->tag, entry->serial, slurm->job_script, entry->directory,
        (const char *const *)errand->modules.at, (const char *const *)errand->argv.at);
    send_parcel(slurm, &entry, 1, entry->directory, &words);
    word_list_release(&words);
}

static struct array *make_array(struct slurm *slurm, struct entry *const *entries, size_t count)
{
    double now = clock_steady();
    struct error err = {0};
    char **directories = allocate(count, sizeof *directories);
    struct element *elements = allocate(count, sizeof *elements);
    for (size_t i = 0; i < count; i++) {
        directories[i] = entries[i]->directory;
        memcpy(elements[i].tag, entries[i]->tag, sizeof elements[i].tag);
        elements[i].submission = entries[i]->serial;
    }
    struct array *array = array_make(&slurm->arrays, directories, elements, count, now, &err);
    if (array && now - slurm->swept >= SWEEP_AGAIN && queue_health(slurm->queue)->answered_ever) {
        slurm->swept = now;
        arrays_sweep(slurm->arrays, array);
    }
    free(elements);
    free(directories);
    return array;
}

// False where the array cannot be written down: its runs go by themselves then.
static bool send_array(struct slurm *slurm, struct entry **entries, size_t count)
{
    struct errand *first = entries[0]->errand;
    struct array *array = make_array(slurm, entries, count);
    struct word_list words = {0}, shared = {0}, argv = {0};
    if (!array)
        return false;
    char *name = entries[0]->name ? array_job_name(array, entries[0]->name, entries[0]->directory) : NULL;
    slurm_options_shared(&shared, (const char *const *)first->options.at);
    array_argv(&argv, &first->argv, entries[0]->directory, array);
    struct slurm_array_words about = {
        .id = array->id, .directory = array->directory, .name = name ? name : array->id, .count = count, .options = (const char *const *)shared.at};
    slurm_sbatch_array(&words, &about, slurm->job_script, (const char *const *)first->modules.at, (const char *const *)argv.at);
    send_parcel(slurm, entries, count, array->directory, &words);
    word_list_release(&argv);
    word_list_release(&shared);
    word_list_release(&words);
    free(name);
    return true;
}

void errand_leave_parcel(struct slurm *slurm, struct errand *errand)
{
    struct parcel *parcel = errand->parcel;
    errand->parcel = NULL;
    if (!parcel || --parcel->holders > 0)
        return;
    command_free(parcel->command);
    free(parcel);
    slurm->sending--;
}

// ---- sbatch's answer ----

// "1234" or "1234;cluster", alone on the last line that says something: a site's own filters may print before it.
static bool read_number(char id[32], const struct text *output)
{
    size_t end = output->length;
    while (end > 0 && (output->at[end - 1] == '\n' || output->at[end - 1] == '\r' || output->at[end - 1] == ' '))
        end--;
    size_t begin = end;
    while (begin > 0 && output->at[begin - 1] != '\n')
        begin--;
    size_t digits = strspn(output->at + begin, "0123456789");
    if (digits == 0 || digits > 18 || (begin + digits != end && output->at[begin + digits] != ';'))
        return false;
    memcpy(id, output->at + begin, digits);
    id[digits] = 0;
    return strtoll(id, NULL, 10) > 0;
}

// This user, this account or this quality of service has as many jobs there as it may have: AssocMaxSubmitJobLimit, QOSGrpSubmitJobsLimit….
static bool is_limit(const struct command_result *result)
{
    return result->end == COMMAND_EXITED && result->code != 0 && strstr(result->talk.at, "SubmitJob") != NULL;
}

// No answer, or one that says that later may be different, or that does not say what was wrong. After these there may be a job, or not.
// What Slurm itself says stands behind a head of its own: before it may stand names that people chose.
static bool is_unclear(const struct command_result *result)
{
    static const char *const words[] = {"timed out", "Unable to contact", "Zero Bytes", "Connection", "connection", "receive failure",
        "send failure", "missing socket", "Transport endpoint", "in standby", "temporarily un", "authenticat", "Munge", "munge",
        "being shut down", "configuration source", "configuration file", "Cannot allocate memory", "Too many open files", "Interrupted system call",
        "I/O error writing", "No space left", "quota exceeded"}; // the controller's own disk is full
    const char *talk = result->talk.at, *verdict = strstr(talk, "Batch job submission failed: ");
    if (result->end != COMMAND_EXITED || result->code == 0 || result->talk.length == 0 || is_limit(result))
        return true;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(verdict ? verdict : talk, words[i]))
            return true;
    return false;
}

// What sbatch said, on one line.
static void describe(char *out, size_t size, const struct command_result *result)
{
    static const char head[] = "sbatch: error: ";
    if (result->end != COMMAND_EXITED || result->talk.length == 0) {
        command_describe(out, size, result);
        return;
    }
    size_t length = 0;
    for (const char *at = result->talk.at; *at && length + 1 < size;) {
        size_t line = strcspn(at, "\n"), skip = strncmp(at, head, sizeof head - 1) == 0 ? sizeof head - 1 : 0;
        if (length && line > skip && length + 2 < size) {
            out[length++] = ';';
            out[length++] = ' ';
        }
        for (size_t i = skip; i < line && length + 1 < size; i++)
            out[length++] = (unsigned char)at[i] < ' ' || at[i] == 0x7f ? '?' : at[i];
        at += line + (at[line] == '\n');
    }
    out[length] = 0;
}

// Where Slurm does not take so many at once, half as many are tried, and more again where it does.
static void judge_size(struct slurm *slurm, struct parcel *parcel, bool handed, bool limit)
{
    size_t *most = &slurm->array_now, ceiling = (size_t)slurm->settings.array_max;
    if (parcel->judged)
        return;
    parcel->judged = true;
    if (limit && parcel->count > 1 && parcel->count / 2 < *most)
        *most = parcel->count / 2;
    else if (handed && parcel->count >= *most)
        *most = *most * 2 < ceiling ? *most * 2 : ceiling;
}

void errand_take_answer(struct slurm *slurm, struct entry *entry)
{
    struct errand *errand = entry->errand;
    struct parcel *parcel = errand->parcel;
    const struct command_result *result = command_poll(parcel->command);
    if (!result)
        return;
    char id[32], words[500];
    bool handed = result->end == COMMAND_EXITED && result->code == 0 && read_number(id, &result->output);
    bool limit = is_limit(result), refused = !handed && !is_unclear(result), array = parcel->count > 1;
    describe(words, sizeof words, result);
    const char *how = refused                                                ? "refused the job"
                      : limit                                                ? "takes no more jobs at present"
                      : result->end == COMMAND_EXITED && result->code != 0 ? "could not hand it over"
                                                                             : "gave no clear answer";
    snprintf(errand->fault, sizeof errand->fault, "sbatch %s: %s", how, words);
    judge_size(slurm, parcel, handed, limit);
    errand->refused = refused && !array;
    if (refused && array)
        errand->key[0] = 0;
    if (handed && array)
        snprintf(id + strlen(id), sizeof id - strlen(id), "_%zu", errand->element);
    errand_leave_parcel(slurm, errand);
    entry->lacking = 0;
    errand_go(errand, CHECK);
    if (handed) {
        entry_hand_over(entry, id, clock_steady());
        errand_end(slurm, entry);
    }
}

// ---- turns ----

// Nothing is sent for a run that nobody asks for any more, nor while a job of it is being cancelled: the new one might get the old one's id.
static bool may_be_sent(struct slurm *slurm, const struct entry *entry, double now)
{
    return entry->errand && entry->errand->step == SEND && now >= entry->fault_until && now - entry->touched <= ATTENDED &&
           !cancel_is_open(slurm, entry->tag);
}

static int by_number(const void *a, const void *b)
{
    const struct errand *one = (*(struct entry *const *)a)->errand, *other = (*(struct entry *const *)b)->errand;
    return one->number < other->number ? -1 : one->number > other->number;
}

// All that may be sent together with first, itself included, in their order. *latest: when the last of its kind came that may yet be of them.
static size_t gather(struct slurm *slurm, const struct entry *first, struct entry ***list, double *latest)
{
    double now = clock_steady();
    size_t count = 0;
    *list = NULL;
    *latest = 0;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *entry = slurm->buckets[i]; entry; entry = entry->next) {
            const struct errand *errand = entry->errand;
            if (!errand || errand->step > SEND || !errand->key[0] || strcmp(errand->key, first->errand->key) != 0)
                continue;
            *latest = fmax(*latest, errand->begun);
            if (!may_be_sent(slurm, entry, now))
                continue;
            if ((count & (count - 1)) == 0)
                *list = reallocate(*list, count ? count * 2 : 1, sizeof **list);
            (*list)[count++] = entry;
        }
    if (count)
        qsort(*list, count, sizeof **list, by_number);
    return count;
}

static void send_together(struct slurm *slurm, struct entry **list, size_t count)
{
    size_t marked = 0;
    for (size_t i = 0; i < count; i++)
        if (errand_mark_sent(list[i]))
            list[marked++] = list[i];
    if (marked == 1)
        send_job(slurm, list[0]);
    else if (marked > 1 && !send_array(slurm, list, marked))
        for (size_t i = 0; i < marked; i++)
            list[i]->errand->key[0] = 0;
}

// False: it waits for more of its kind, which are on their way.
static bool send_with_company(struct slurm *slurm, struct entry *first)
{
    struct entry **list;
    double latest, now = clock_steady();
    size_t most = slurm->array_now, count = first->errand->key[0] && most > 1 ? gather(slurm, first, &list, &latest) : 0;
    if (count < 2) {
        if (count)
            free(list);
        send_job(slurm, first);
        return true;
    }
    bool waits = count < most && now - latest < COMPANY_WAIT && now - first->errand->since < COMPANY_MAX;
    if (!waits)
        send_together(slurm, list, array_take(count, most));
    free(list);
    return !waits;
}

// First come, first sent: the scheduler's own order begins with it.
void errands_send(struct slurm *slurm)
{
    while (slurm->sending < slurm->settings.submissions_max) {
        double now = clock_steady();
        struct entry *first = NULL;
        for (size_t i = 0; i < BUCKETS; i++)
            for (struct entry *entry = slurm->buckets[i]; entry; entry = entry->next)
                if (may_be_sent(slurm, entry, now) && (!first || entry->errand->number < first->errand->number))
                    first = entry;
        if (!first || !send_with_company(slurm, first))
            return;
    }
}
