#include "apps/serve/api/infill.h"

#include <string.h>
#include "apps/serve/request/long_text.h"
#include "base/alloc.h"

#define FILES_MAX 256 // more than an editor remembers

// The names that llama-server gives to what it does not know, so that prompts are the same.
#define REPOSITORY "myproject\n"
#define FILE_NAME  "filename\n"
#define NO_MARK    "\n\n--- snippet ---\n\n" // for models without a separator

typedef struct id_list {
    int32_t *ids;
    size_t n, capacity;
} id_list;

static void put_ids(id_list *to, const int32_t *ids, size_t n, api_error *e) {
    if (is_refused(e)) return;
    if (tern_array_reserve(TERN_MEM_SESSION, &to->ids, &to->capacity, to->n, n) != 0) {
        api_fail_memory(e);
        return;
    }
    if (n) memcpy(to->ids + to->n, ids, n * sizeof *ids);
    to->n += n;
}

static void put_mark(id_list *to, int32_t mark, api_error *e) {
    if (mark >= 0) put_ids(to, &mark, 1, e);
}

// The text is only text, also where it has names of marks.
static void put_text(request *req, id_list *to, tern_str text, const char *param, api_error *e) {
    const text_wanted wanted = {.text = text, .flags = TERN_TOKENIZE_PLAIN};
    size_t n = 0;
    int32_t *ids = text.len && !is_refused(e) ? read_tokens(req, &wanted, 0, &n, param, e) : NULL;
    if (ids) put_ids(to, ids, n, e);
    tern_free(ids);
}

// ---- Texts that are far too long ---------------------------------------------------------------

static size_t most_bytes(const served *s) { return (size_t)s->n_context * s->token_bytes * 4; }

static bool is_within(const char *at) { return (*at & 0xc0) == 0x80; } // a character

static tern_str last_bytes(tern_str s, size_t most) {
    size_t skip = s.len > most ? s.len - most : 0;
    while (skip && skip < s.len && is_within(s.ptr + skip)) skip++;
    return (tern_str){s.ptr + skip, s.len - skip};
}

static tern_str first_bytes(tern_str s, size_t most) {
    if (s.len <= most) return s;
    while (most && is_within(s.ptr + most)) most--;
    return (tern_str){s.ptr, most};
}

// ---- Other files -------------------------------------------------------------------------------

static void put_file(request *req, id_list *to, const fields *file) {
    const tern_str text = field_text(file, "text"), name = field_text(file, "filename");
    tern_strbuf head = {0};
    if (!text.ptr) field_fail(file, "text", "a string");
    if (is_refused(file->error)) return;
    put_mark(to, req->model->infill.separator_token, file->error);
    if (req->model->infill.separator_token < 0)
        tern_strbuf_puts(&head, NO_MARK);
    else if (name.len)
        tern_strbuf_printf(&head, "%.*s\n", (int)(name.len < 4096 ? name.len : 4096), name.ptr);
    else
        tern_strbuf_puts(&head, "tmp\n");
    if (head.failed) api_fail_memory(file->error);
    put_text(req, to, (tern_str){tern_strbuf_text(&head), head.len}, "input_extra", file->error);
    put_text(req, to, last_bytes(text, most_bytes(req->model)), "input_extra", file->error);
    tern_strbuf_free(&head);
}

static void put_files(request *req, id_list *to, const infill_wanted *w, const fields *f) {
    if (w->extra && w->extra->n > FILES_MAX)
        api_fail(f->error, 400, NULL, "input_extra", "'input_extra' has more than %d files",
                 FILES_MAX);
    if (req->model->infill.repository_token >= 0) {
        put_mark(to, req->model->infill.repository_token, f->error);
        put_text(req, to, TERN_STR(REPOSITORY), "input_extra", f->error);
    }
    for (const tern_json *item = w->extra ? tern_json_first(f->doc, w->extra) : NULL;
         item && !is_refused(f->error); item = tern_json_next(f->doc, w->extra, item)) {
        const fields file = {f->doc, item, "input_extra.", f->error};
        put_file(req, to, &file);
    }
    if (req->model->infill.separator_token >= 0) {
        put_mark(to, req->model->infill.separator_token, f->error);
        put_text(req, to, TERN_STR(FILE_NAME), "input_extra", f->error);
    }
}

// ---- The prompt --------------------------------------------------------------------------------

typedef struct infilling {
    id_list files, prefix, begun, suffix;
} infilling;

// Room for the answer is left; for most it is the same, so that what is cut is, too.
static size_t room_for(const request *req) {
    const size_t all = (size_t)req->model->n_context, marks = 8;
    size_t kept = (size_t)req->generation->params.max_tokens;
    if (kept < all / 8) kept = all / 8;
    if (kept > all / 4) kept = all / 4;
    return all > kept + marks ? all - kept - marks : 1;
}

static void leave_last(id_list *l, size_t n) {
    if (l->n <= n) return;
    memmove(l->ids, l->ids + l->n - n, n * sizeof *l->ids);
    l->n = n;
}

static void cut(const request *req, infilling *in) {
    size_t room = room_for(req);
    leave_last(&in->begun, room / 2);
    room -= in->begun.n;
    if (in->prefix.n + in->suffix.n > room) {
        const size_t after = room / 4, before = room - after;
        const size_t free_before = in->prefix.n < before ? before - in->prefix.n : 0;
        if (in->suffix.n > after + free_before) in->suffix.n = after + free_before;
        leave_last(&in->prefix, room - in->suffix.n);
    }
    leave_last(&in->files, room - in->prefix.n - in->suffix.n);
}

static void put_all(request *req, const infilling *in, id_list *to, api_error *e) {
    const bool backwards = req->model->infill.suffix_first;
    put_ids(to, in->files.ids, in->files.n, e);
    if (req->model->info.adds_bos && req->model->info.bos_id >= 0)
        put_ids(to, &req->model->info.bos_id, 1, e);
    for (int i = 0; i < 2; i++) {
        if ((i == 1) == backwards) {
            put_mark(to, req->model->infill.prefix_token, e);
            put_ids(to, in->prefix.ids, in->prefix.n, e);
            put_ids(to, in->begun.ids, in->begun.n, e);
        } else {
            put_mark(to, req->model->infill.suffix_token, e);
            put_ids(to, in->suffix.ids, in->suffix.n, e);
        }
    }
    if (!backwards) put_mark(to, req->model->infill.middle_token, e);
}

// Where another file begins the answer is over.
static void stop_at_files(request *req, api_error *e) {
    const tern_infill_info *marks = &req->model->infill;
    const int32_t ends[] = {marks->pad_token, marks->repository_token, marks->separator_token};
    generation *a = req->generation;
    const size_t n = a->params.n_stop_token_ids, n_ends = sizeof ends / sizeof *ends;
    int32_t *ids = tern_realloc(TERN_MEM_SESSION, a->stop_ids, (n + n_ends) * sizeof *ids);
    if (!ids) {
        api_fail_memory(e);
        return;
    }
    a->stop_ids = ids;
    for (size_t i = 0; i < n_ends; i++)
        if (ends[i] >= 0) ids[a->params.n_stop_token_ids++] = ends[i];
}

static void refuse(const request *req, api_error *e) {
    const served *s = req->model;
    const int status = req->error_format->unsupported ? req->error_format->unsupported : 400;
    const bool is_backwards = s->infill.suffix_first;
    api_fail(e, status, "unsupported_model", "model",
             "model '%s' does not fill in: its vocabulary has no token for%s%s%s", s->about.name,
             s->infill.prefix_token < 0 ? " a prefix" : "",
             s->infill.suffix_token < 0 ? " a suffix" : "",
             s->infill.middle_token < 0 && !is_backwards ? " a middle" : "");
}

void generation_add_infill(request *req, const infill_wanted *w, const fields *f) {
    api_error *e = f->error;
    const size_t most = most_bytes(req->model);
    infilling in = {0};
    id_list all = {0};
    if (is_refused(e)) return;
    if (!served_fills(req->model)) {
        refuse(req, e);
        return;
    }
    prefix_hash_take_text(req, w->prefix);
    if (w->is_file) put_files(req, &in.files, w, f);
    put_text(req, &in.prefix, last_bytes(w->prefix, most), "input_prefix", e);
    put_text(req, &in.begun, last_bytes(w->begun, most), "prompt", e);
    put_text(req, &in.suffix, first_bytes(w->suffix, most), "input_suffix", e);
    if (!e->status) {
        cut(req, &in);
        put_all(req, &in, &all, e);
        stop_at_files(req, e);
    }
    tern_free(in.files.ids);
    tern_free(in.prefix.ids);
    tern_free(in.begun.ids);
    tern_free(in.suffix.ids);
    if (e->status)
        tern_free(all.ids);
    else
        generation_add_prompt(req, all.ids, all.n, "prompt", e);
}
