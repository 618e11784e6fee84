#include "daemon/core/retries.h"
#include "schema/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct retry_policy retry_policy_of(const struct json *spec)
{
    const struct json *retry = js_get(spec, "retry"), *on = js_get(retry, "on");
    struct retry_policy policy = {.limit = js_integer_of(js_get(retry, "limit"), 0), .delay = js_real_of(js_get(retry, "delay"), 0)};
    for (size_t i = 0; i < js_count(on); i++)
        for (int cause = CAUSE_FAILED; cause < CAUSES; cause++)
            if (strcmp(js_string_of(js_at(on, i), ""), cause_name((enum cause)cause)) == 0)
                policy.causes |= 1u << cause;
    return policy;
}

bool retry_wanted(const struct retry_policy *policy, int64_t used, enum cause cause)
{
    return cause != CAUSE_NONE && (policy->causes >> cause & 1) && used < policy->limit;
}

double retry_delay(const struct retry_policy *policy, int64_t used)
{
    double delay = policy->delay;
    for (int64_t i = 0; i < used && delay > 0 && delay < RETRY_DELAY_MAX; i++)
        delay *= 2;
    return delay < RETRY_DELAY_MAX ? delay : RETRY_DELAY_MAX;
}

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

static bool is_listed(const char *list, const char *name, size_t length)
{
    for (const char *at = list; *at; at += strspn(at, ",")) {
        size_t word = strcspn(at, ",");
        if (word == length && strncmp(at, name, length) == 0)
            return true;
        at += word;
    }
    return false;
}

static void add_node(struct text *list, const char *name, size_t length)
{
    if (length == 0 || length > NODE_NAME_MAX || name[0] == '-' || name[0] == '.' || list->length + length + 1 > RETRY_EXCLUDED_MAX ||
        is_listed(list->at, name, length))
        return;
    if (list->length)
        text_add(list, ",");
    text_add_bytes(list, name, length);
}

char *retry_exclude(const char *excluded, const char *nodes, const char *last_words)
{
    static const char said[] = "ode failure on ";
    struct text list;
    text_init(&list, 2 * RETRY_EXCLUDED_MAX);
    text_add(&list, excluded ? excluded : "");
    size_t only = nodes ? strspn(nodes, letters) : 0;
    if (only && !nodes[only])
        add_node(&list, nodes, only);
    for (const char *at = last_words ? strstr(last_words, said) : NULL; at; at = strstr(at, said)) {
        at += strlen(said);
        add_node(&list, at, strspn(at, letters));
    }
    if (list.length)
        return text_take(&list);
    text_release(&list);
    return NULL;
}
