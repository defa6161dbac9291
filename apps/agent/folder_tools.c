// list_folder and read_file: access to one folder's contents, and nothing else.
//
// A path is walked part by part from the open root; each part is opened relative to the folder
// before it, and no link is followed. So neither ".." nor a link leads out, even one created
// meanwhile.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "apps/agent/beneath.h"
#include "apps/agent/tools.h"
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/os/os_file.h"
#include "base/utf8.h"

#define READ_BYTES  ((size_t)1 << 20)    // of a file in one call, if the model may read as much
#define NOTE_BYTES  100                  // for the note about the rest
#define FILE_BYTES  ((uint64_t)64 << 20) // of the longest file that is read
#define ENTRIES_MAX 1000                 // of a folder

typedef struct root {
    int fd;
    char *path;
    size_t n_users; // the two tools
    const agent_tools *tools;
} root;

static void free_root(void *user) {
    root *r = user;
    if (--r->n_users) return;
    if (r->fd >= 0) tern_fd_close(r->fd);
    tern_free(r->path);
    tern_free(r);
}

// ---- Paths -------------------------------------------------------------------------------------

// Opens the file or folder at a path below the root; -1: *why says why not.
static int open_below(const root *r, tern_str path, const char **why) {
    *why = "paths are relative to the root";
    if (path.len && (tern_is_slash(path.ptr[0]) || memchr(path.ptr, 0, path.len))) return -1;
    *why = "the root cannot be opened";
    int at = beneath_open(r->fd, ".", why);
    for (size_t i = 0, end; at >= 0 && i < path.len; i = end + 1) {
        for (end = i; end < path.len && !tern_is_slash(path.ptr[end]);) end++;
        tern_str part = {path.ptr + i, end - i};
        if (!part.len || tern_str_is(part, ".")) continue;
        char *name = tern_strndup(TERN_MEM_MISC, part.ptr, part.len);
        *why = "out of memory";
        int next = name ? beneath_open(at, name, why) : -1;
        tern_free(name);
        tern_fd_close(at);
        at = next;
    }
    return at;
}

typedef struct arguments {
    tern_json_doc doc;
    tern_str path;
    int64_t first_line, n_lines;
} arguments;

static bool read_arguments(arguments *a, const tern_agent_call *call) {
    *a = (arguments){.path = TERN_STR("")};
    if (tern_json_parse(&a->doc, call->arguments, strlen(call->arguments), NULL) != TERN_OK)
        return false;
    const tern_json *o = tern_json_root(&a->doc);
    tern_str path = tern_json_str(tern_json_get(&a->doc, o, "path"));
    if (path.ptr) a->path = path;
    a->first_line = tern_json_int(tern_json_get(&a->doc, o, "first_line"), 1);
    a->n_lines = tern_json_int(tern_json_get(&a->doc, o, "n_lines"), INT64_MAX);
    if (a->first_line < 1) a->first_line = 1;
    return true;
}

static bool fail_path(const arguments *a, const char *why, tern_text_fn put, void *put_user) {
    return agent_tool_fail(put, put_user, "'%.*s': %s", a->path.len < 400 ? (int)a->path.len : 400,
                           a->path.ptr, why);
}

// ---- A folder ----------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void put_entry(int folder, const char *name, tern_strbuf *out) {
    uint64_t n;
    tern_path_kind kind = beneath_look(folder, name, &n);
    if (kind == TERN_PATH_FOLDER)
        tern_strbuf_printf(out, "%s/\n", name);
    else if (kind == TERN_PATH_FILE)
        tern_strbuf_printf(out, "%s  %llu byte%s\n", name, (unsigned long long)n,
                           n == 1 ? "" : "s");
    else
        tern_strbuf_printf(out, "%s  (%s)\n", name,
                           kind == TERN_PATH_LINK ? "link, not followed" : "no file");
}

static bool list_names(int fd, tern_strbuf *out) {
    tern_names names = {0};
    bool ok = beneath_names(fd, 100 * ENTRIES_MAX, &names);
    if (ok && names.n) qsort(names.list, names.n, sizeof *names.list, by_name);
    for (size_t i = 0; ok && i < names.n && i < ENTRIES_MAX; i++) put_entry(fd, names.list[i], out);
    if (names.n > ENTRIES_MAX) tern_strbuf_printf(out, "[%zu more]\n", names.n - ENTRIES_MAX);
    if (ok && names.n == 0) tern_strbuf_puts(out, "[the folder is empty]\n");
    tern_names_free(&names);
    return ok && !out->failed;
}

static bool run_list(void *user, const tern_agent_call *call, tern_text_fn put, void *put_user) {
    arguments a;
    const char *why;
    tern_strbuf out = {0};
    uint64_t n;
    bool ok = false;
    if (!read_arguments(&a, call)) return agent_tool_fail(put, put_user, "no arguments");
    int fd = open_below(user, a.path, &why);
    if (fd < 0) {
        fail_path(&a, why, put, put_user);
    } else if (beneath_kind(fd, &n) != TERN_PATH_FOLDER) {
        fail_path(&a, "that is not a folder", put, put_user);
    } else if (!list_names(fd, &out)) {
        fail_path(&a, "the folder cannot be read", put, put_user);
    } else {
        ok = agent_tool_put(put, put_user, &out);
    }
    if (fd >= 0) tern_fd_close(fd);
    tern_strbuf_free(&out);
    tern_json_free(&a.doc);
    return ok;
}

// ---- A file ------------------------------------------------------------------------------------

// Writes the requested lines, up to n_most bytes, and how much is left of the file.
static void put_lines(const arguments *a, size_t n_most, const char *text, size_t n,
                      tern_strbuf *out) {
    int64_t line = 1,
            last = a->n_lines > INT64_MAX - a->first_line ? INT64_MAX : a->first_line + a->n_lines;
    size_t from = 0, end;
    for (; from < n && line < a->first_line; from++) line += text[from] == '\n';
    for (end = from; end < n && line < last && end - from < n_most; end++)
        line += text[end] == '\n';
    if (end - from == n_most) // only whole lines, if there is one
        for (size_t cut = end; cut > from; cut--)
            if (text[cut - 1] == '\n') {
                end = cut;
                break;
            }
    tern_strbuf_append(out, text + from, end - from);
    size_t n_left = 0;
    line = 1;
    for (size_t i = 0; i < end; i++) line += text[i] == '\n';
    for (size_t i = end; i < n; i++) n_left += text[i] == '\n' || i == n - 1;
    if (from == n && n)
        tern_strbuf_puts(out, "[the file has fewer lines]");
    else if (n == 0)
        tern_strbuf_puts(out, "[the file is empty]");
    else if (n_left)
        tern_strbuf_printf(out, "\n[%zu more lines: go on with first_line %lld]", n_left,
                           (long long)line);
}

static bool read_whole(int fd, size_t n, tern_strbuf *text) {
    char *bytes = tern_alloc(TERN_MEM_MISC, n + 1);
    int64_t got = bytes ? tern_fd_read(fd, bytes, n) : -1;
    size_t n_mark = got > 0 ? tern_utf8_mark(bytes, (size_t)got) : 0;
    if (got > 0) tern_strbuf_append(text, bytes + n_mark, (size_t)got - n_mark);
    tern_free(bytes);
    return got >= 0 && !text->failed;
}

static bool run_read(void *user, const tern_agent_call *call, tern_text_fn put, void *put_user) {
    const root *r = user;
    arguments a;
    const char *why;
    tern_strbuf text = {0}, out = {0};
    uint64_t n = 0;
    bool ok = false;
    if (!read_arguments(&a, call)) return agent_tool_fail(put, put_user, "no arguments");
    int fd = open_below(r, a.path, &why);
    if (fd < 0)
        fail_path(&a, why, put, put_user);
    else if (beneath_kind(fd, &n) != TERN_PATH_FILE)
        fail_path(&a, "that is not a file", put, put_user);
    else if (n > FILE_BYTES)
        fail_path(&a, "the file is too large", put, put_user);
    else if (!read_whole(fd, (size_t)n, &text))
        fail_path(&a, "the file cannot be read", put, put_user);
    else if (text.len && memchr(text.ptr, 0, text.len))
        fail_path(&a, "that is not text", put, put_user);
    else {
        size_t most = r->tools->result_bytes;
        most = most && most < READ_BYTES ? most : READ_BYTES;
        put_lines(&a, most > 2 * NOTE_BYTES ? most - NOTE_BYTES : most, tern_strbuf_text(&text),
                  text.len, &out);
        ok = agent_tool_put(put, put_user, &out);
    }
    if (fd >= 0) tern_fd_close(fd);
    tern_strbuf_free(&text);
    tern_strbuf_free(&out);
    tern_json_free(&a.doc);
    return ok;
}

static const char list_parameters[] =
    "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":"
    "\"The folder, relative to the root; \\\"\\\" is the root\"}},\"required\":[\"path\"],"
    "\"additionalProperties\":false}";
static const char read_parameters[] =
    "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":"
    "\"The file, relative to the root\"},\"first_line\":{\"type\":\"integer\",\"minimum\":1,"
    "\"description\":\"Where to begin, from 1\"},\"n_lines\":{\"type\":\"integer\",\"minimum\":1,"
    "\"description\":\"How many lines\"}},\"required\":[\"path\"],"
    "\"additionalProperties\":false}";

tern_status agent_add_folder(agent_tools *t, const char *path, tern_error *err) {
    agent_tool *tool;
    root *r = tern_alloc(TERN_MEM_MISC, sizeof *r);
    if (!r) return tern_fail_memory(err, sizeof *r);
    *r = (root){.tools = t, .n_users = 1, .fd = beneath_root(path)};
    r->path = tern_strdup(TERN_MEM_MISC, path);
    tern_status status = r->path ? TERN_OK : tern_fail_memory(err, strlen(path));
    if (status == TERN_OK && r->fd < 0)
        status = tern_fail(err, TERN_ERR_IO, "%s: cannot be opened as a folder: %s", path,
                           strerror(errno));
    for (int i = 0; i < 2 && status == TERN_OK; i++) {
        status = i == 0
                     ? agent_tools_add(t, "list_folder", "Lists the files in a folder.",
                                       list_parameters, &tool, err)
                     : agent_tools_add(t, "read_file", "Reads a text file, or some of its lines.",
                                       read_parameters, &tool, err);
        if (status != TERN_OK) break;
        r->n_users++;
        tool->from = r->path;
        tool->run = i == 0 ? run_list : run_read;
        tool->user = r;
        tool->free = free_root;
    }
    free_root(r);
    return status;
}
