// Which variables are secrets, and what they look like in a record.
#include "daemon/record/inside.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char mask[] = "***";

// A variable whose name holds one of these is masked whatever its value.
static const char *const secret_words[] = {"TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE",
    "JWT", "BEARER", "SIGNATURE", "CONNECTION_STRING", "DSN"};
static const char *const secret_ends[] = {"_PAT", "_PASS", "_PWD"};

// Beginnings of well-known tokens, for secrets under innocent names.
static const char *const secret_beginnings[] = {"hf_", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "sk-", "xoxb-", "xoxp-", "AKIA", "ASIA", "eyJ",
    "-----BEGIN"};
enum { TOKEN_LENGTH_MIN = 16 };

static bool is_secret_name(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof secret_words / sizeof secret_words[0]; i++)
        if (strcasestr(name, secret_words[i]))
            return true;
    for (size_t i = 0; i < sizeof secret_ends / sizeof secret_ends[0]; i++)
        if (length >= strlen(secret_ends[i]) && strcasecmp(name + length - strlen(secret_ends[i]), secret_ends[i]) == 0)
            return true;
    return strcasecmp(name, "PGPASS") == 0 || strcasecmp(name, "MYSQL_PWD") == 0;
}

static bool is_secret_value(const char *value)
{
    for (size_t i = 0; i < sizeof secret_beginnings / sizeof secret_beginnings[0]; i++)
        if (strlen(value) >= TOKEN_LENGTH_MIN && strncmp(value, secret_beginnings[i], strlen(secret_beginnings[i])) == 0)
            return true;
    return false;
}

struct json *provenance_mask(const struct json *variables, struct json *masked)
{
    struct json *shown = js_object();
    for (void *item = js_first(variables); item; item = js_next(variables, item)) {
        const char *name = js_key(item), *value = js_string_of(js_value(item), "");
        if (is_secret_name(name) || is_secret_value(value)) {
            js_set(shown, name, js_string(mask));
            if (masked)
                js_append(masked, js_string(name));
            continue;
        }
        char *clean = url_without_userinfo(value);
        js_set(shown, name, js_string(clean));
        free(clean);
    }
    return shown;
}
