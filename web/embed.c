// Build-time tool: `embed OUT.c FILE…` writes the table behind web/web.h. index.html is served at "/", all others at "/assets/NAME".
#include "schema/base/file.h"
#include "schema/base/hash.h"

#include <stdio.h>
#include <string.h>

enum { FILE_BYTES_MAX = 4 << 20, FILES_MAX = 64 };

static const char *content_type(const char *name)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"}, {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"}, {".svg", "image/svg+xml"},
    };
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof types / sizeof *types; i++)
        if (strcmp(ending, types[i][0]) == 0)
            return types[i][1];
    return NULL;
}

// Adds "static const unsigned char file_N[] = {…};" to out, and the file's row to rows.
static int embed(struct text *out, struct text *rows, const char *path, int number)
{
    struct error err = {0};
    struct text bytes;
    text_init(&bytes, FILE_BYTES_MAX);
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path, *type = content_type(name);
    int status = type ? file_read(path, &bytes, &err) : error_set(&err, "%s: no content type is known for this ending", path);
    if (status != 0) {
        fprintf(stderr, "embed: %s\n", err.text);
    } else {
        char digest[HASH_HEX];
        hash_bytes(digest, bytes.at, bytes.length);
        text_addf(out, "static const unsigned char file_%d[] = {", number);
        for (size_t i = 0; i < bytes.length; i++)
            text_addf(out, "%s%u,", i % 32 ? "" : "\n", (unsigned)(unsigned char)bytes.at[i]);
        text_add(out, "0\n};\n"); // the 0 is not served: it only makes an empty file a valid array
        text_addf(rows, "    {\"%s%s\", \"%s\", \"\\\"%.32s\\\"\", file_%d, %zu},\n", strcmp(name, "index.html") ? "/assets/" : "/",
            strcmp(name, "index.html") ? name : "", type, digest, number, bytes.length);
    }
    text_release(&bytes);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > FILES_MAX) {
        fprintf(stderr, "usage: embed OUT.c FILE...\n");
        return 2;
    }
    struct error err = {0};
    struct text out, rows;
    text_init(&out, 64 << 20);
    text_init(&rows, 1 << 20);
    text_add(&out, "#include \"web/web.h\"\n#include <string.h>\n\n");
    int status = 0;
    for (int i = 2; i < argc && status == 0; i++)
        status = embed(&out, &rows, argv[i], i);
    text_addf(&out, "\nstatic const struct web_file files[] = {\n%s};\n\nconst struct web_file *web_find(const char *path)\n{\n", rows.at);
    text_add(&out, "    for (size_t i = 0; i < sizeof files / sizeof *files; i++)\n        if (strcmp(files[i].path, path) == 0)\n"
                   "            return &files[i];\n    return NULL;\n}\n");
    if (status == 0 && file_write_atomic(argv[1], out.at, out.length, 0644, &err) != 0) {
        fprintf(stderr, "embed: %s\n", err.text);
        status = -1;
    }
    text_release(&out);
    text_release(&rows);
    return status == 0 ? 0 : 1;
}
