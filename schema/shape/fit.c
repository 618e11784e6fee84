// Whether a model of another description has the tensors of this one.
#include "schema/shape/params.h"

#include <string.h>

static const struct param *find_name(const struct param_table *table, const char *name, size_t *from)
{
    for (size_t i = 0; i < table->count; i++) { // mostly in the same order: the next one is it
        const struct param *param = &table->items[(*from + i) % table->count];
        if (strcmp(param->name, name) == 0) {
            *from = (*from + i + 1) % table->count;
            return param;
        }
    }
    return NULL;
}

static int tables_fit(const struct param_table *now, const struct param_table *then, struct error *err)
{
    size_t from = 0;
    for (size_t i = 0; i < now->count; i++) {
        const struct param *param = &now->items[i], *other = find_name(then, param->name, &from);
        if (!other)
            return error_set(err, "there is no %s in it", param->name);
        if (other->rows != param->rows || other->columns != param->columns)
            return error_set(err, "its %s is %lld × %lld, and this model's %lld × %lld", param->name, (long long)other->rows,
                (long long)other->columns, (long long)param->rows, (long long)param->columns);
    }
    return 0;
}

int params_fit(const struct spec *spec, const struct json *model, struct error *err)
{
    struct json *whole = spec_to_json(spec);
    struct spec then;
    js_set(whole, "model", js_copy(model));
    int status = 0;
    if (spec_from_json(&then, whole, NULL) == 0) {
        struct param_table now_table, then_table;
        param_table_init(&now_table, spec, 0, 1);
        param_table_init(&then_table, &then, 0, 1);
        status = tables_fit(&now_table, &then_table, err);
        param_table_release(&now_table);
        param_table_release(&then_table);
        spec_release(&then);
    }
    js_free(whole);
    return status;
}
