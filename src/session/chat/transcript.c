// A conversation that owns its messages, and its transcript as a file: JSON, or Markdown that reads
// well and is read back exactly. In Markdown a line `<!-- tern: ROLE -->` stands before each
// message, and a heading for the reader; a line of a message that looks like such a line, with any
// number of backslashes in front, gets one backslash more.
#include <string.h>
#include "base/alloc.h"
#include "base/json/json.h"
#include "base/lines.h"
#include "base/file/out_set.h"
#include "session/session.h"

struct tern_chat {
    tern_message *messages; // roles, contents and the lists of images are owned
    size_t n, capacity;
};

tern_status tern_chat_open(tern_chat **out, tern_error *err) {
    tern_clear(err);
    if (!out) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chat_open: NULL argument");
    *out = tern_alloc(TERN_MEM_SESSION, sizeof **out);
    return *out ? TERN_OK : tern_fail_memory(err, sizeof **out);
}

static void free_message(tern_message *m) {
    for (size_t i = 0; i < m->n_images; i++) tern_image_tokens_close(m->images[i]);
    tern_free((tern_image_tokens **)m->images);
    tern_free((char *)m->role);
    tern_free((char *)m->content);
}

void tern_chat_cut(tern_chat *chat, size_t n_messages) {
    while (chat && chat->n > n_messages) free_message(&chat->messages[--chat->n]);
}

static void free_lists(tern_chat *chat) {
    tern_chat_cut(chat, 0);
    tern_free(chat->messages);
}

void tern_chat_close(tern_chat *chat) {
    if (!chat) return;
    free_lists(chat);
    tern_free(chat);
}

static char *copy(tern_str s) {
    char *text = tern_alloc_array(TERN_MEM_SESSION, s.len + 1, 1);
    if (text && s.len) memcpy(text, s.ptr, s.len);
    return text;
}

// A role must be one nonempty line, for Markdown; and no text may have a zero byte, which would
// truncate it.
static bool is_message(tern_str role, tern_str content) {
    for (size_t i = 0; i < role.len; i++)
        if ((unsigned char)role.ptr[i] < 32) return false;
    return role.len && !(content.len && memchr(content.ptr, 0, content.len));
}

// Makes room first, so that a failure changes nothing.
static tern_status insert(tern_chat *chat, size_t at, tern_str role, tern_str content,
                          tern_error *err) {
    if (!is_message(role, content))
        return tern_fail(err, TERN_ERR_FORMAT,
                         "message %zu: expected a role of one line and a text without zero bytes",
                         at + 1);
    tern_message m = {.role = copy(role), .content = copy(content)};
    if (!m.role || !m.content ||
        tern_array_reserve(TERN_MEM_SESSION, &chat->messages, &chat->capacity, chat->n, 1) != 0) {
        free_message(&m);
        return tern_fail_memory(err, content.len);
    }
    memmove(chat->messages + at + 1, chat->messages + at, (chat->n - at) * sizeof m);
    chat->messages[at] = m;
    chat->n++;
    return TERN_OK;
}

static tern_str text_of(const char *s) { return (tern_str){s, strlen(s)}; }

tern_status tern_chat_add(tern_chat *chat, const char *role, const char *content, tern_error *err) {
    tern_clear(err);
    if (!chat || !role || !content)
        return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chat_add: NULL argument");
    return insert(chat, chat->n, text_of(role), text_of(content), err);
}

tern_status tern_chat_set_system(tern_chat *chat, const char *content, tern_error *err) {
    tern_clear(err);
    if (!chat) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chat_set_system: NULL argument");
    bool has = chat->n > 0 && !strcmp(chat->messages[0].role, "system");
    if (content && *content) TERN_TRY(insert(chat, 0, TERN_STR("system"), text_of(content), err));
    if (!has) return TERN_OK;
    size_t old = content && *content ? 1 : 0;
    free_message(&chat->messages[old]);
    chat->n--;
    memmove(chat->messages + old, chat->messages + old + 1,
            (chat->n - old) * sizeof *chat->messages);
    return TERN_OK;
}

tern_status tern_chat_add_image(tern_chat *chat, tern_image_tokens *image, tern_error *err) {
    tern_clear(err);
    TERN_NEED(chat);
    TERN_NEED(image);
    tern_message *m = chat->n ? &chat->messages[chat->n - 1] : NULL;
    if (!m || !strcmp(m->role, "system"))
        return tern_fail(err, TERN_ERR_ARGUMENT, "there is no message to add an image to");
    tern_image_tokens **more = tern_alloc_array(TERN_MEM_SESSION, m->n_images + 1, sizeof *more);
    if (!more) return tern_fail_memory(err, (m->n_images + 1) * sizeof *more);
    if (m->n_images) memcpy(more, m->images, m->n_images * sizeof *more);
    tern_model_hold_image(image->model, image->first_id);
    tern_model_hold(image->model);
    more[m->n_images++] = image;
    tern_free((tern_image_tokens **)m->images);
    m->images = more;
    return TERN_OK;
}

const tern_message *tern_chat_messages(const tern_chat *chat, size_t *n_messages) {
    if (n_messages) *n_messages = chat ? chat->n : 0;
    return chat ? chat->messages : NULL;
}

// ---- Writing -----------------------------------------------------------------------------------

static const char mark[] = "<!-- tern: ", mark_end[] = " -->";

static void write_json(const tern_chat *chat, tern_strbuf *out) {
    tern_strbuf_putc(out, '[');
    for (size_t i = 0; i < chat->n; i++) {
        const tern_message *m = &chat->messages[i];
        tern_strbuf_puts(out, i ? ",\n{\"role\":" : "\n{\"role\":");
        tern_strbuf_json(out, m->role, strlen(m->role));
        tern_strbuf_puts(out, ",\"content\":");
        tern_strbuf_json(out, m->content, strlen(m->content));
        tern_strbuf_putc(out, '}');
    }
    tern_strbuf_puts(out, "\n]\n");
}

// Whether a line is a mark, apart from backslashes in front.
static bool looks_like_mark(tern_str line) {
    while (line.len && line.ptr[0] == '\\') line.ptr++, line.len--;
    return line.len >= sizeof mark - 1 && !memcmp(line.ptr, mark, sizeof mark - 1);
}

static tern_str take_line(tern_str *rest) {
    const char *end = rest->len ? memchr(rest->ptr, '\n', rest->len) : NULL;
    tern_str line = {rest->ptr, end ? (size_t)(end - rest->ptr) : rest->len};
    size_t used = line.len + (end != NULL);
    *rest = (tern_str){rest->ptr + used, rest->len - used};
    return line;
}

static void write_markdown(const tern_chat *chat, tern_strbuf *out) {
    for (size_t i = 0; i < chat->n; i++) {
        const tern_message *m = &chat->messages[i];
        tern_str rest = text_of(m->content);
        tern_strbuf_printf(out, "%s%s%s\n## %s\n\n", mark, m->role, mark_end, m->role);
        while (rest.len) {
            size_t before = rest.len;
            tern_str line = take_line(&rest);
            if (looks_like_mark(line)) tern_strbuf_putc(out, '\\');
            tern_strbuf_append(out, line.ptr, line.len);
            if (line.len + rest.len < before) tern_strbuf_putc(out, '\n');
        }
        tern_strbuf_puts(out, "\n\n");
    }
}

static bool is_markdown(const char *path) {
    size_t n = strlen(path);
    return n >= 3 && !strcmp(path + n - 3, ".md");
}

tern_status tern_chat_save(const tern_chat *chat, const char *path, tern_error *err) {
    tern_clear(err);
    tern_strbuf out = {0};
    if (!chat || !path) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chat_save: NULL argument");
    (is_markdown(path) ? write_markdown : write_json)(chat, &out);
    tern_status status = out.failed ? tern_fail_memory(err, out.len)
                                    : tern_file_write_private(path, out.ptr, out.len, err);
    tern_strbuf_free(&out);
    return status;
}

// ---- Reading -----------------------------------------------------------------------------------

static tern_status read_json(tern_chat *chat, tern_str text, tern_error *err) {
    tern_json_doc doc;
    TERN_TRY(tern_json_parse(&doc, text.ptr, text.len, err));
    const tern_json *list = tern_json_root(&doc);
    tern_status status = TERN_OK;
    if (tern_json_is(list, TERN_JSON_OBJECT)) list = tern_json_get(&doc, list, "messages");
    if (!tern_json_is(list, TERN_JSON_ARRAY))
        TERN_TRY_GOTO(tern_fail(err, TERN_ERR_FORMAT,
                                "expected a list of messages, or an object with \"messages\""));
    for (const tern_json *m = tern_json_first(&doc, list); m; m = tern_json_next(&doc, list, m)) {
        const tern_json *role = NULL, *content = NULL;
        if (tern_json_is(m, TERN_JSON_OBJECT)) {
            role = tern_json_get(&doc, m, "role");
            content = tern_json_get(&doc, m, "content");
        }
        if (!tern_json_is(role, TERN_JSON_STRING) || !tern_json_is(content, TERN_JSON_STRING))
            TERN_TRY_GOTO(
                tern_fail(err, TERN_ERR_FORMAT,
                          "message %zu (line %u): expected the texts \"role\" and \"content\"",
                          chat->n + 1, (unsigned)m->line));
        TERN_TRY_GOTO(insert(chat, chat->n, tern_json_str(role), tern_json_str(content), err));
    }
fail:
    tern_json_free(&doc);
    return status;
}

// The role that a mark names; {NULL, 0}: the line is not a mark.
static tern_str role_of(tern_str line) {
    size_t front = sizeof mark - 1, back = sizeof mark_end - 1;
    bool is_mark = line.len > front + back && line.ptr[0] == '<' && looks_like_mark(line) &&
                   !memcmp(line.ptr + line.len - back, mark_end, back);
    return is_mark ? (tern_str){line.ptr + front, line.len - front - back} : (tern_str){0};
}

static tern_status add_markdown(tern_chat *chat, tern_str role, tern_strbuf *content,
                                tern_error *err) {
    size_t n = content->len; // without the two newlines that end a message
    for (int i = 0; i < 2 && n && content->ptr[n - 1] == '\n'; i++) n--;
    if (content->failed) return tern_fail_memory(err, n);
    return insert(chat, chat->n, role, (tern_str){tern_strbuf_text(content), n}, err);
}

static tern_status read_markdown(tern_chat *chat, tern_str rest, tern_error *err) {
    tern_str role = {0};
    tern_strbuf content = {0};
    tern_status status = TERN_OK;
    int n_head = 0; // lines of the heading still to come
    while (rest.len && status == TERN_OK) {
        size_t before = rest.len;
        tern_str line = take_line(&rest), next = role_of(line);
        bool whole = line.len + rest.len < before;
        if (next.ptr) {
            if (role.ptr) status = add_markdown(chat, role, &content, err);
            tern_strbuf_clear(&content);
            role = next;
            n_head = 2;
        } else if (n_head > 0 && (line.len == 0 || line.ptr[0] == '#')) {
            n_head--;
        } else {
            n_head = 0;
            if (line.len && line.ptr[0] == '\\' && looks_like_mark(line)) line.ptr++, line.len--;
            tern_strbuf_append(&content, line.ptr, line.len);
            if (whole) tern_strbuf_putc(&content, '\n');
        }
    }
    if (status == TERN_OK && role.ptr) status = add_markdown(chat, role, &content, err);
    if (status == TERN_OK && !role.ptr)
        status = tern_fail(err, TERN_ERR_FORMAT, "no message in it: expected a line '%sROLE%s'",
                           mark, mark_end);
    tern_strbuf_free(&content);
    return status;
}

static tern_status read_file(const char *path, tern_strbuf *text, tern_error *err) {
    tern_lines l;
    TERN_TRY(tern_lines_open(&l, path, err));
    tern_status status = TERN_OK;
    for (bool more = true; more && status == TERN_OK;) {
        status = tern_lines_next(&l, &more, err);
        if (status != TERN_OK || !more) break;
        tern_strbuf_append(text, tern_strbuf_text(&l.line), l.line.len);
        if (l.is_whole) tern_strbuf_putc(text, '\n');
    }
    tern_lines_close(&l);
    if (status == TERN_OK && text->failed) status = tern_fail_memory(err, text->len);
    return status;
}

tern_status tern_chat_load(tern_chat *chat, const char *path, tern_error *err) {
    tern_clear(err);
    tern_strbuf text = {0};
    tern_chat read = {0};
    tern_error why = {0};
    if (!chat || !path) return tern_fail(err, TERN_ERR_ARGUMENT, "tern_chat_load: NULL argument");
    tern_status status = read_file(path, &text, err);
    if (status == TERN_OK) {
        tern_str all = {tern_strbuf_text(&text), text.len};
        status = (is_markdown(path) ? read_markdown : read_json)(&read, all, &why);
        if (status != TERN_OK) tern_fail(err, status, "%s: %s", path, why.message);
    }
    if (status == TERN_OK) {
        tern_chat old = *chat;
        *chat = read;
        read = old;
    }
    free_lists(&read);
    tern_strbuf_free(&text);
    return status;
}
