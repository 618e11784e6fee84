#include "daemon/exec/slurm/probe.h"
#include "daemon/exec/slurm/ask.h"
#include "daemon/exec/slurm/command.h"

#include <ctype.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROBE_SECONDS 20.0

// What all of Slurm's commands say, at last, where neither SLURM_CONF nor the usual places nor DNS lead to a slurm.conf.
#define NO_CONFIGURATION "Could not establish a configuration source"

// With the first line that it said; it begins with its own name.
static void refuse(struct error *err, const char *program, const char *talk)
{
    if (strstr(talk, NO_CONFIGURATION))
        error_set(err, "no Slurm answers here: %s finds no slurm.conf: is SLURM_CONF set, and is this a machine of the cluster?", program);
    else if (*talk)
        error_set(err, "no Slurm answers here: %.*s", (int)strcspn(talk, "\n"), talk);
    else if (command_on_path(program))
        error_set(err, "no Slurm answers here: %s gave no answer within %.0f s", program, PROBE_SECONDS);
    else
        error_set(err, "no Slurm answers here: there is no %s on PATH; on many clusters `module load slurm`, or a login node, brings it", program);
}

int slurm_probe(struct slurm_probe *probe, struct error *err)
{
    static const char *const programs[PROBES] = {"sinfo", "scontrol", "srun", "sacctmgr"};
    const struct passwd *user = getpwuid(geteuid());
    char *who = string_format("user=%s", user ? user->pw_name : "");
    const char *const commands[PROBES][10] = {
        [PROBE_SINFO] = {"sinfo", "-h", "-a", "-e", "-o", "%P|%R|%a|%l|%D|%c|%m|%G", NULL}, // -e: nodes that differ on lines of their own
        [PROBE_CONFIG] = {"scontrol", "show", "config", NULL},
        [PROBE_MPI] = {"srun", "--mpi=list", NULL},
        [PROBE_LIMITS] = {"sacctmgr", "-n", "-P", "show", "assoc", who, "format=Account,MaxSubmitJobs", NULL},
    };
    *probe = (struct slurm_probe){0};
    for (int i = 0; i < PROBES; i++) {
        struct slurm_answer answer;
        bool ended = slurm_ask(&answer, commands[i], PROBE_SECONDS);
        if (ended && answer.code == 0)
            probe->said[i] = string_format("%s%s", answer.output.at, i == PROBE_MPI ? answer.talk.at : ""); // older ones list on standard error
        else if (i <= PROBE_CONFIG)
            refuse(err, programs[i], answer.talk.at);
        slurm_answer_release(&answer);
        if (i <= PROBE_CONFIG && !probe->said[i])
            break;
    }
    free(who);
    if (probe->said[PROBE_SINFO] && probe->said[PROBE_CONFIG])
        return 0;
    slurm_probe_release(probe);
    return -1;
}

void slurm_probe_release(struct slurm_probe *probe)
{
    for (int i = 0; i < PROBES; i++)
        free(probe->said[i]);
    *probe = (struct slurm_probe){0};
}

// ---- scontrol show config ----

// The value of "Name   = value". free(); NULL if it is not there.
static char *setting(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *at = line + length;
        if (strncmp(line, name, length) != 0 || (*at != ' ' && *at != '='))
            continue;
        at += strspn(at, " ");
        if (*at != '=')
            continue;
        at += 1 + strspn(at + 1, " ");
        return string_format("%.*s", (int)strcspn(at, "\n"), at);
    }
    return NULL;
}

static void write_setting(struct text *yaml, const struct slurm_probe *probe, const char *name, const char *key, const char *note)
{
    char *value = setting(probe->said[PROBE_CONFIG], name);
    if (value && *value && value[strspn(value, "0123456789")] == 0 && strtoll(value, NULL, 10) > 0)
        text_addf(yaml, "  %s: %s # `scontrol show config`: %s%s\n", key, value, name, note);
    free(value);
}

// ---- srun --mpi=list ----

static bool is_listed(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        bool begins = at == list || isspace((unsigned char)at[-1]), ends = !at[length] || isspace((unsigned char)at[length]);
        if (begins && ends)
            return true;
    }
    return false;
}

static void write_mpi(struct text *yaml, const struct slurm_probe *probe, const char *known)
{
    static const char *const preferred[] = {"pmix", "pmix_v5", "pmix_v4", "pmix_v3", "pmi2"};
    const char *list = probe->said[PROBE_MPI], *best = NULL;
    for (size_t i = 0; list && !best && i < sizeof preferred / sizeof *preferred; i++)
        best = is_listed(list, preferred[i]) ? preferred[i] : NULL;
    if (known && !(best && strcmp(known, best) == 0))
        text_addf(yaml, "  mpi: %s # kept from the file that was here\n", known);
    else if (best)
        text_addf(yaml, "  mpi: %s # `srun --mpi=list` offers it%s\n", best, strncmp(best, "pmix", 4) == 0 ? "" : "; Open MPI would want pmix");
    else
        text_addf(yaml, "  # mpi: pmix # %s\n", list ? "`srun --mpi=list` offers none that is known here" : "`srun --mpi=list` did not answer");
}

// ---- sinfo ----

struct partition {
    char name[128], type[64];
    bool standard;
    struct config_partition sizes;
};

// gpu:8, gpu:h100:8, gpu:h100:8(S:0-1): how many, whatever else the node has.
static int64_t count_gpus(const char *gres, char type[64])
{
    int64_t count = 0;
    char *copy = string_copy(gres), *rest = NULL;
    int depth = 0;
    for (char *at = copy; *at; at++) { // commas in parentheses part nothing
        depth += *at == '(' ? 1 : *at == ')' ? -1 : 0;
        if (*at == ',' && depth > 0)
            *at = ';';
    }
    for (char *item = strtok_r(copy, ",", &rest); item; item = strtok_r(NULL, ",", &rest)) {
        if (strncmp(item, "gpu:", 4) != 0)
            continue;
        item[strcspn(item, "(")] = 0;
        char *last = strrchr(item, ':');
        count += strtoll(last + 1, NULL, 10);
        if (last > item + 4)
            snprintf(type, 64, "%.*s", (int)strcspn(item + 4, ":"), item + 4);
    }
    free(copy);
    return count;
}

// infinite, 30 (minutes), mm:ss, hh:mm:ss, d-hh:mm:ss; 0: none.
static double seconds_of(const char *text)
{
    long days = 0, parts[3] = {0};
    int count = 0;
    const char *dash = strchr(text, '-'), *at = dash ? dash + 1 : text;
    if (!isdigit((unsigned char)*text))
        return 0;
    if (dash)
        days = strtol(text, NULL, 10);
    for (; count < 3 && isdigit((unsigned char)*at); count++) {
        char *end;
        parts[count] = strtol(at, &end, 10);
        at = *end == ':' ? end + 1 : end;
    }
    if (dash || count == 3)
        return (double)(days * 86400 + parts[0] * 3600 + parts[1] * 60 + parts[2]);
    return (double)(parts[0] * 60 + parts[1]);
}

static struct partition *find(struct partition *list, size_t *count, const char *name)
{
    for (size_t i = 0; i < *count; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    if (*count == CONFIG_PARTITIONS_MAX)
        return NULL;
    struct partition *fresh = &list[(*count)++];
    *fresh = (struct partition){0};
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    return fresh;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// One line of sinfo: nodes of a partition that are alike. A line of another shape is left out, as a name that no spec could ask for is.
static void take_line(struct partition *list, size_t *count, char *line)
{
    enum { MARKED, NAME, AVAILABLE, LIMIT, NODES, CPUS, MEMORY, GRES, FIELDS };
    char *fields[FIELDS] = {line};
    for (int i = 1; i < FIELDS; i++) {
        char *bar = strchr(fields[i - 1], '|');
        if (!bar)
            return;
        *bar = 0;
        fields[i] = bar + 1;
    }
    const char *name = fields[NAME];
    if (!isalnum((unsigned char)*name) || strlen(name) > 100 || name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-")])
        return;
    struct partition *partition = find(list, count, name);
    if (!partition)
        return;
    struct config_partition *sizes = &partition->sizes;
    partition->standard |= fields[MARKED][0] && fields[MARKED][strlen(fields[MARKED]) - 1] == '*';
    sizes->nodes += strtoll(fields[NODES], NULL, 10);
    sizes->cpus_per_node = most(sizes->cpus_per_node, strtoll(fields[CPUS], NULL, 10));
    sizes->memory_per_node = most(sizes->memory_per_node, strtoll(fields[MEMORY], NULL, 10));
    sizes->gpus_per_node = most(sizes->gpus_per_node, count_gpus(fields[GRES], partition->type));
    sizes->time_limit = seconds_of(fields[LIMIT]);
}

static size_t read_sinfo(struct partition *list, const char *text)
{
    size_t count = 0;
    char *copy = string_copy(text), *rest = NULL;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        take_line(list, &count, line);
    free(copy);
    return count;
}

static void write_partition(struct text *yaml, const struct partition *partition)
{
    const struct config_partition *sizes = &partition->sizes;
    static const struct { double seconds; const char *unit; } units[] = {{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}};
    text_addf(yaml, "    %s: {nodes: %" PRId64 ", cpus_per_node: %" PRId64 ", memory_per_node: %" PRId64 "MiB", partition->name, sizes->nodes,
        sizes->cpus_per_node, sizes->memory_per_node);
    if (sizes->gpus_per_node)
        text_addf(yaml, ", gpus_per_node: %" PRId64, sizes->gpus_per_node);
    for (size_t i = 0; sizes->time_limit > 0 && i < sizeof units / sizeof *units; i++)
        if ((int64_t)sizes->time_limit % (int64_t)units[i].seconds == 0) {
            text_addf(yaml, ", time_limit: %.0f%s", sizes->time_limit / units[i].seconds, units[i].unit);
            break;
        }
    text_add(yaml, "}\n");
}

static void write_partitions(struct text *yaml, const struct slurm_probe *probe, const struct config_slurm *known)
{
    struct partition *list = allocate(CONFIG_PARTITIONS_MAX, sizeof *list);
    size_t count = read_sinfo(list, probe->said[PROBE_SINFO]);
    const char *type = NULL;
    bool types_differ = false;
    for (size_t i = 0; i < count; i++) {
        types_differ |= type && list[i].type[0] && strcmp(type, list[i].type) != 0;
        type = list[i].type[0] ? list[i].type : type;
    }
    if (known->gpu_type)
        text_addf(yaml, "  gpu_type: %s # kept from the file that was here\n", known->gpu_type);
    else if (type)
        text_addf(yaml, "  # gpu_type: %s # `sinfo`: GRES%s; unset, any type will do\n", type, types_differ ? ", one of several types" : "");
    const char *standard = NULL;
    for (size_t i = 0; i < count; i++)
        standard = list[i].standard ? list[i].name : standard;
    if (known->partition && !(standard && strcmp(known->partition, standard) == 0))
        text_addf(yaml, "  partition: %s # kept from the file that was here\n", known->partition);
    else if (standard)
        text_addf(yaml, "  partition: %s # `sinfo` marks it as the default\n", standard);
    text_addf(yaml, "  partitions:%s # `sinfo`: the largest node of each; no time_limit: none\n", count ? "" : " {}");
    for (size_t i = 0; i < count; i++)
        write_partition(yaml, &list[i]);
    free(list);
}

// ---- sacctmgr: Account|MaxSubmitJobs, one line an association ----

static void write_limits(struct text *yaml, const struct slurm_probe *probe, const struct config_slurm *known)
{
    const char *said = probe->said[PROBE_LIMITS];
    long long least = 0;
    size_t lines = 0;
    for (const char *line = said; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL, lines++) {
        const char *bar = strchr(line, '|');
        long long limit = bar && bar < line + strcspn(line, "\n") ? strtoll(bar + 1, NULL, 10) : 0;
        if (limit > 0 && (least == 0 || limit < least))
            least = limit;
    }
    if (known->account)
        text_addf(yaml, "  account: %s # kept from the file that was here\n", known->account);
    else
        text_addf(yaml, "  # account: NAME # unset, Slurm's own default for you%s\n", lines > 1 ? "; `sacctmgr` knows several of yours" : "");
    if (least > 0)
        text_addf(yaml, "  max_submit_jobs: %lld # `sacctmgr show assoc`: MaxSubmitJobs\n", least);
    else
        write_setting(yaml, probe, "MaxJobCount", "max_submit_jobs", ", of all users together: no limit of yours is known");
}

// ---- the file ----

void slurm_probe_write(struct text *yaml, const struct slurm_probe *probe, const struct config *known)
{
    const char *said = probe->said[PROBE_CONFIG];
    char *cluster = setting(said, "ClusterName"), *version = setting(said, "SLURM_VERSION"), *select = setting(said, "SelectType");
    text_addf(yaml,
        "# What `switchyard config slurm` found on cluster %s (Slurm %s). Change what you like: each value says where it came from, and\n"
        "# `switchyard config` prints what counts. A daemon that runs takes a change over.\n",
        cluster ? cluster : "?", version ? version : "?");
    if (known->allowed_hosts.count) {
        text_add(yaml, "allowed_hosts: [");
        for (size_t i = 0; i < known->allowed_hosts.count; i++)
            text_addf(yaml, "%s'%s'", i ? ", " : "", known->allowed_hosts.items[i]);
        text_add(yaml, "] # kept from the file that was here\n");
    }
    if (known->gpus >= 0)
        text_addf(yaml, "gpus: %lld # kept from the file that was here\n", (long long)known->gpus);
    text_add(yaml, "slurm:\n");
    write_mpi(yaml, probe, known->slurm.mpi);
    bool per_node = known->slurm.gpus == SLURM_GPUS_PER_NODE;
    text_addf(yaml, "  gpus: %s # %s\n", per_node ? "gpus-per-node" : "gres",
        per_node ? "kept from the file that was here"
                 : select && strstr(select, "cons_tres") ? "--gres=gpu:N; this cluster's SelectType (`scontrol show config`) takes gpus-per-node too"
                                                         : "--gres=gpu:N: this cluster's SelectType (`scontrol show config`) takes nothing else");
    write_limits(yaml, probe, &known->slurm);
    write_setting(yaml, probe, "MaxArraySize", "max_array_size", "");
    write_partitions(yaml, probe, &known->slurm);
    free(cluster);
    free(version);
    free(select);
}
