#include "daemon/cli/client.h"
#include "daemon/cli/format.h"
#include "daemon/cli/home.h"
#include "daemon/serve/address.h"
#include "daemon/serve/target.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPLY_BYTES_MAX = 256 << 20, CONNECT_SECONDS = 5, GET_SECONDS = 60, POST_SECONDS = 1800 };

struct client {
    CURL *curl;
    char *url, *token;
    bool here;           // found by this home's daemon.json: looked up again when the daemon was started anew
    struct curl_slist *headers;
    void (*waiting)(void *context); // called while an answer is awaited; NULL: nobody is
    void *waiting_context;
    char fault[CURL_ERROR_SIZE];
};

volatile sig_atomic_t client_interrupts;
int client_interrupts_heard;

static void interrupted(int number)
{
    (void)number;
    client_interrupts++;
}

void client_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = interrupted}; // no SA_RESTART: sleeps end at once
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

// Cuts "#token=…" (as `serve` prints it) and trailing slashes from url; the token, or NULL.
static char *take_fragment(char *url)
{
    char *fragment = strchr(url, '#'), *token = NULL;
    if (fragment) {
        *fragment++ = '\0';
        if (strncmp(fragment, "token=", 6) == 0)
            token = string_format("%.*s", (int)strspn(fragment + 6, "0123456789abcdef"), fragment + 6);
    }
    for (size_t length = strlen(url); length && url[length - 1] == '/'; length--)
        url[length - 1] = '\0';
    return token;
}

static int find_elsewhere(struct client *client, const char *url, struct error *err)
{
    client->url = string_copy(url);
    char *token = take_fragment(client->url);
    const char *given = getenv("SWITCHYARD_TOKEN");
    client->token = token ? token : string_copy(given && *given ? given : NULL);
    if (strncmp(client->url, "http://", 7) != 0 && strncmp(client->url, "https://", 8) != 0)
        return error_set(err, "'%s' is no address of a daemon: it begins with http:// or https://", url);
    return 0;
}

static int find_here(struct client *client, struct error *err)
{
    char *home = home_directory();
    struct address address;
    int found = address_read(&address, home, err);
    if (found == 1)
        found = error_set(err, "no daemon runs on %s: start one with `switchyard serve`, or name one elsewhere with --url", home);
    else if (found == 0 && address.elsewhere)
        found = error_set(err, "the daemon of %s runs on %s (%s): use this command there, or reach it with --url", home, address.host,
            address.url);
    else if (found == 0 && !address.alive)
        found = error_set(err, "the daemon of %s (process %lld) has ended: start it again with `switchyard serve`; its jobs run on", home,
            (long long)address.pid);
    if (found == 0) {
        client->url = string_copy(address.url);
        client->token = string_copy(address.token);
        client->here = true;
    }
    address_release(&address);
    free(home);
    return found;
}

static int stop_on_interrupt(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    (void)a, (void)b, (void)c, (void)d;
    const struct client *client = context;
    if (client->waiting)
        client->waiting(client->waiting_context);
    return client_interrupts > client_interrupts_heard ? 1 : 0;
}

static size_t take_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct reply *reply = context;
    text_add_bytes(&reply->text, bytes, size * count);
    return reply->text.overflowed ? 0 : size * count;
}

static void set_headers(struct client *client)
{
    curl_slist_free_all(client->headers);
    client->headers = curl_slist_append(NULL, "Content-Type: application/json");
    if (client->token) {
        char *header = string_format("Authorization: Bearer %s", client->token);
        client->headers = curl_slist_append(client->headers, header);
        free(header);
    }
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, client->headers);
}

// True if the home has another daemon by now, or the same at another address.
static bool found_anew(struct client *client)
{
    char *home = home_directory();
    struct address address;
    bool changed = client->here && address_read(&address, home, NULL) == 0 && address.alive && address.token &&
        (strcmp(address.url, client->url) != 0 || !client->token || strcmp(address.token, client->token) != 0);
    if (changed) {
        free(client->url);
        free(client->token);
        client->url = string_copy(address.url);
        client->token = string_copy(address.token);
        set_headers(client);
    }
    if (client->here)
        address_release(&address);
    free(home);
    return changed;
}

// Proxies of the environment are for the way out of the house; a daemon is inside, and its token must not take that way.
static void set_options(struct client *client)
{
    CURL *curl = client->curl;
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->fault);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, stop_on_interrupt);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, client);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_bytes);
    set_headers(client);
}

const char *client_elsewhere(const struct arguments *arguments)
{
    const char *environment = getenv("SWITCHYARD_URL");
    return argument_value(arguments, "url", environment && *environment ? environment : NULL);
}

int client_open(struct client **client, const struct arguments *arguments, struct error *err)
{
    struct client *opened = allocate(1, sizeof *opened);
    const char *url = client_elsewhere(arguments);
    if ((url ? find_elsewhere(opened, url, err) : find_here(opened, err)) != 0) {
        client_close(opened);
        return -1;
    }
    opened->curl = curl_easy_init();
    if (!opened->curl) {
        client_close(opened);
        return error_set(err, "libcurl does not start");
    }
    set_options(opened);
    *client = opened;
    return 0;
}

void client_close(struct client *client)
{
    if (client->curl)
        curl_easy_cleanup(client->curl);
    curl_slist_free_all(client->headers);
    free(client->url);
    free(client->token);
    free(client);
}

void client_while_waiting(struct client *client, void (*call)(void *context), void *context)
{
    client->waiting = call;
    client->waiting_context = context;
}

const char *client_url(const struct client *client)
{
    return client->url;
}

char *client_link(const struct client *client, const char *route)
{
    if (client->token)
        return string_format("%s/#token=%s%s", client->url, client->token, route);
    return string_format("%s/#%s", client->url, route);
}

static void read_reply(struct client *client, struct reply *reply)
{
    struct curl_header *header;
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &reply->status);
    if (curl_easy_header(client->curl, "X-Next-Offset", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
        reply->next_offset = strtoll(header->value, NULL, 10);
    if (curl_easy_header(client->curl, "Content-Type", 0, CURLH_HEADER, -1, &header) == CURLHE_OK &&
        strncmp(header->value, "application/json", 16) == 0)
        reply->json = js_parse(reply->text.at, reply->text.length, NULL);
}

static int ask(struct client *client, const char *method, const char *path, const struct json *body, struct reply *reply, struct error *err)
{
    *reply = (struct reply){.next_offset = -1};
    text_init(&reply->text, REPLY_BYTES_MAX);
    bool post = strcmp(method, "POST") == 0;
    char *url = string_format("%s%s", client->url, path);
    struct text sent;
    text_init(&sent, SIZE_MAX / 2);
    if (body)
        js_write(&sent, body);
    client->fault[0] = '\0';
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, reply);
    curl_easy_setopt(client->curl, CURLOPT_TIMEOUT, (long)(post ? POST_SECONDS : GET_SECONDS));
    if (post) {
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)sent.length);
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, sent.at);
    } else {
        curl_easy_setopt(client->curl, CURLOPT_HTTPGET, 1L);
    }
    CURLcode code = curl_easy_perform(client->curl);
    if (code == CURLE_OK)
        read_reply(client, reply);
    else
        error_set(err, "the daemon at %s does not answer (%s): start one with `switchyard serve`", client->url,
            client->fault[0] ? client->fault : curl_easy_strerror(code));
    text_release(&sent);
    free(url);
    return code == CURLE_OK ? 0 : -1;
}

int client_ask(struct client *client, const char *method, const char *path, const struct json *body, struct reply *reply, struct error *err)
{
    int status = ask(client, method, path, body, reply, err);
    bool lost = status != 0 || reply->status == 401;
    if (!lost || client_interrupts > client_interrupts_heard || !found_anew(client))
        return status;
    reply_release(reply);
    return ask(client, method, path, body, reply, err);
}

void reply_release(struct reply *reply)
{
    text_release(&reply->text);
    js_free(reply->json);
    *reply = (struct reply){0};
}

const char *reply_sentence(const struct reply *reply)
{
    const char *sentence = js_string_of(js_get(reply->json, "error"), NULL);
    return sentence ? sentence : "the answer is not one of a Switchyard daemon";
}

// Sentences may have several lines (faults of a spec); each is cleaned for the terminal.
void reply_say(const struct reply *reply)
{
    struct cleaner cleaner = {0};
    struct text text;
    text_init(&text, 1 << 20);
    const char *sentence = reply_sentence(reply);
    clean_bytes(&cleaner, &text, sentence, strlen(sentence));
    fprintf(stderr, "switchyard: %s\n", text.at);
    text_release(&text);
}

static struct json *ask_once(struct client *client, const char *method, const char *path, const struct json *body)
{
    struct error err = {0};
    struct reply reply;
    struct json *result = NULL;
    if (client_ask(client, method, path, body, &reply, &err) != 0)
        fprintf(stderr, "switchyard: %s\n", err.text);
    else if (reply.status < 200 || reply.status > 299 || !reply.json)
        reply_say(&reply);
    else
        result = js_keep(reply.json);
    reply_release(&reply);
    return result;
}

struct json *client_get(struct client *client, const char *path)
{
    return ask_once(client, "GET", path, NULL);
}

struct json *client_post(struct client *client, const char *path, const struct json *body)
{
    return ask_once(client, "POST", path, body);
}

bool client_is_run_name(const char *run)
{
    const char *slash = strchr(run, '/');
    char *project = slash ? string_format("%.*s", (int)(slash - run), run) : NULL;
    bool is = target_is_name(slash ? slash + 1 : run) && (!project || target_is_name(project));
    free(project);
    return is;
}

char *client_run_path(struct client *client, const char *run)
{
    char *path = NULL;
    if (!client_is_run_name(run)) {
        fprintf(stderr, "switchyard: '%s' is no name of a run: PROJECT/NAME, or NAME, of letters, digits, '-' and '_'\n", run);
    } else if (strchr(run, '/')) {
        path = string_format("/api/v1/runs/%s", run);
    } else {
        char *short_path = string_format("/api/v1/runs/%s", run);
        struct json *shown = client_get(client, short_path);
        if (shown)
            path = string_format("/api/v1/runs/%s/%s", js_string_of(js_get(shown, "project"), ""), js_string_of(js_get(shown, "name"), ""));
        js_free(shown);
        free(short_path);
    }
    return path;
}

struct client *client_for(const struct arguments *arguments)
{
    struct error err = {0};
    struct client *client = NULL;
    if (client_open(&client, arguments, &err) != 0) {
        fprintf(stderr, "switchyard: %s\n", err.text);
        return NULL;
    }
    return client;
}
