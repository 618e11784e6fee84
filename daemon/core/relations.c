// How the runs of a submission stand to each other: body["relations"][i] says of body["runs"][i] what kind it is, which others it needs, and of
// what sweep it is a trial. Whoever asks, runs that wait for each other in a circle are refused: none of them could ever begin.
#include "daemon/core/draft.h"

#include <stdlib.h>
#include <string.h>

const struct json *relation_of(const struct json *body, size_t index)
{
    return js_at(js_get(body, "relations"), index);
}

static int check_one(const struct json *relation, size_t index, size_t count, struct error *err)
{
    static const char *const kinds[] = {"train", "tokenize"};
    const char *kind = js_string_of(js_get(relation, "kind"), "train"), *entry = js_string_of(js_get(relation, "entry"), NULL);
    const struct json *needs = js_get(relation, "needs"), *sweep = js_get(relation, "sweep");
    if (strcmp(kind, kinds[0]) != 0 && strcmp(kind, kinds[1]) != 0)
        return error_set(err, "relations[%zu]: kind is train or tokenize, not '%.40s'", index, kind);
    if (js_kind(sweep) != JSON_KIND_NULL && (js_kind(sweep) != JSON_KIND_OBJECT || !entry || !*entry || strlen(entry) > 64))
        return error_set(err, "relations[%zu]: sweep is {key: value}, and entry names what it is a trial of", index);
    if (js_kind(needs) != JSON_KIND_NULL && js_kind(needs) != JSON_KIND_ARRAY)
        return error_set(err, "relations[%zu]: needs is a list of indices of runs", index);
    for (size_t i = 0; i < js_count(needs); i++) {
        int64_t need = js_integer_of(js_at(needs, i), -1);
        if (need < 0 || need >= (int64_t)count || need == (int64_t)index)
            return error_set(err, "relations[%zu]: needs has %lld, which is no other run of these %zu", index, (long long)need, count);
    }
    return 0;
}

struct order { // who needs whom, the other way round: users of run i are users[first[i]] … users[first[i + 1] - 1]
    size_t *first, *users, *open, *ready; // open: needs that are not taken away yet; ready: those that have none left
};

static size_t need_at(const struct json *needs, size_t index)
{
    return (size_t)js_integer_of(js_at(needs, index), 0);
}

static void turn_round(struct order *order, const struct json *body, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct json *needs = js_get(relation_of(body, i), "needs");
        order->open[i] = js_count(needs);
        for (size_t j = 0; j < order->open[i]; j++)
            order->first[need_at(needs, j) + 2]++;
    }
    for (size_t i = 2; i < count + 2; i++)
        order->first[i] += order->first[i - 1];
    for (size_t i = 0; i < count; i++) {
        const struct json *needs = js_get(relation_of(body, i), "needs");
        for (size_t j = 0; j < order->open[i]; j++)
            order->users[order->first[need_at(needs, j) + 1]++] = i;
    }
}

// Takes away the runs whose needs are all taken away already; what is left waits for itself.
static int check_order(const struct json *body, size_t count, size_t pairs, struct error *err)
{
    struct order order = {allocate(count + 2, sizeof(size_t)), allocate(pairs + 1, sizeof(size_t)), allocate(count, sizeof(size_t)),
        allocate(count, sizeof(size_t))};
    size_t found = 0;
    turn_round(&order, body, count);
    for (size_t i = 0; i < count; i++)
        if (order.open[i] == 0)
            order.ready[found++] = i;
    for (size_t taken = 0; taken < found; taken++)
        for (size_t i = order.first[order.ready[taken]]; i < order.first[order.ready[taken] + 1]; i++)
            if (--order.open[order.users[i]] == 0)
                order.ready[found++] = order.users[i];
    free(order.first);
    free(order.users);
    free(order.open);
    free(order.ready);
    return found == count ? 0
                          : error_set(err, "relations: %zu runs need each other in a circle: none of them could begin", count - found);
}

int relations_check(const struct json *body, size_t count, struct error *err)
{
    const struct json *relations = js_get(body, "relations");
    size_t pairs = 0;
    if (js_kind(relations) == JSON_KIND_NULL)
        return 0;
    if (js_kind(relations) != JSON_KIND_ARRAY || js_count(relations) != count)
        return error_set(err, "relations is a list of as many as there are runs, %zu", count);
    for (size_t i = 0; i < count; i++) {
        if (check_one(relation_of(body, i), i, count, err) != 0)
            return -1;
        pairs += js_count(js_get(relation_of(body, i), "needs"));
    }
    if (pairs > RELATIONS_MAX)
        return error_set(err, "relations: %zu runs with %zu needs together: %d needs are the most", count, pairs, RELATIONS_MAX);
    return check_order(body, count, pairs, err);
}

// ---- as rows ----

static int store_needs(struct daemon *daemon, const struct drafts *drafts, const struct draft *draft, struct error *err)
{
    const struct json *needs = js_get(draft->relation, "needs");
    for (size_t i = 0; i < js_count(needs); i++) {
        const struct draft *needed = &drafts->at[drafts->first + (size_t)js_integer_of(js_at(needs, i), 0)];
        int64_t id = needed->dropped ? needed->instead : needed->row.id;
        if (id && state_add_need(daemon->state, draft->row.id, id, err) != 0)
            return -1;
    }
    return 0;
}

int relations_store(struct daemon *daemon, const struct drafts *drafts, const struct draft *draft, struct error *err)
{
    const struct json *sweep = js_get(draft->relation, "sweep");
    if (js_kind(sweep) == JSON_KIND_OBJECT &&
        state_add_trial(daemon->state, draft->row.id, draft->row.experiment, js_string_of(js_get(draft->relation, "entry"), ""), sweep, err) != 0)
        return -1;
    return store_needs(daemon, drafts, draft, err);
}
