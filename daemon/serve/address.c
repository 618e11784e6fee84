#include "daemon/serve/address.h"
#include "schema/base/clock.h"
#include "schema/base/file.h"
#include "schema/base/json.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ADDRESS_BYTES_MAX = 65536 };

static char *address_path(const char *home)
{
    return path_join(home, "daemon.json");
}

// A pid means something only since the boot in which it was given.
static char *boot_id(void)
{
    struct text text;
    text_init(&text, 256);
    if (file_read("/proc/sys/kernel/random/boot_id", &text, NULL) != 0)
        text_clear(&text);
    text.at[strcspn(text.at, "\n")] = '\0';
    char *id = string_copy(text.at);
    text_release(&text);
    return id;
}

static void host_name(char out[256])
{
    if (gethostname(out, 255) != 0)
        strcpy(out, "localhost");
    out[255] = '\0';
}

int address_write(const char *home, const char *url, const char *token, struct error *err)
{
    char host[256], started[CLOCK_TEXT];
    host_name(host);
    clock_text(started, clock_wall());
    char *boot = boot_id(), *path = address_path(home);
    struct json *body = js_object();
    js_set(body, "url", js_string(url));
    js_set(body, "token", js_string(token));
    js_set(body, "pid", js_integer(getpid()));
    js_set(body, "boot_id", js_string(boot));
    js_set(body, "started", js_string(started));
    js_set(body, "host", js_string(host));
    struct text text;
    text_init(&text, ADDRESS_BYTES_MAX);
    js_write_pretty(&text, body);
    int status = file_write_atomic(path, text.at, text.length, 0600, err);
    text_release(&text);
    js_free(body);
    free(path);
    free(boot);
    return status;
}

static void fill(struct address *address, const struct json *body)
{
    char here[256];
    host_name(here);
    char *boot = boot_id();
    address->url = string_copy(js_string_of(js_get(body, "url"), ""));
    address->token = string_copy(js_string_of(js_get(body, "token"), NULL));
    address->host = string_copy(js_string_of(js_get(body, "host"), ""));
    address->pid = js_integer_of(js_get(body, "pid"), 0);
    address->elsewhere = strcmp(address->host, here) != 0;
    bool same_boot = strcmp(js_string_of(js_get(body, "boot_id"), ""), boot) == 0;
    address->alive = !address->elsewhere && same_boot && address->pid > 0 && (kill((pid_t)address->pid, 0) == 0 || errno == EPERM);
    free(boot);
}

int address_read(struct address *address, const char *home, struct error *err)
{
    *address = (struct address){0};
    char *path = address_path(home);
    struct stat info;
    struct json *body = NULL;
    int status = -1;
    if (lstat(path, &info) != 0) {
        status = errno == ENOENT || errno == ENOTDIR ? 1 : error_errno(err, "%s", path);
        goto out;
    }
    if (!S_ISREG(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077)) {
        error_set(err, "%s is not a private file of yours (mode 0600): not using it", path);
        goto out;
    }
    body = js_read_file(path, ADDRESS_BYTES_MAX, err);
    if (!body)
        goto out;
    fill(address, body);
    status = 0;
out:
    js_free(body);
    free(path);
    return status;
}

void address_remove(const char *home)
{
    char *path = address_path(home);
    unlink(path);
    free(path);
}

void address_release(struct address *address)
{
    free(address->url);
    free(address->token);
    free(address->host);
    *address = (struct address){0};
}
