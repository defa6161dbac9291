// llama-server's POST /slots/ID?action=save|restore|erase: the text that a slot computed last, in a
// file of the folder that --slot-save-path names. Restored, it is a prefix like any other: any
// request that begins with it can continue from it, in any slot.
//
// The files are read and written by a task, which visits the engine's thread for the sessions.
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "apps/serve/request/away.h"
#include "apps/serve/api/interfaces.h"
#include "apps/serve/request/generation_request.h"
#include "base/alloc.h"
#include "base/os/os_file.h"
#include "base/os/os_time.h"

#define N_NAME 200 // bytes of a file's name

typedef enum action_kind { ACTION_SAVE, ACTION_RESTORE, ACTION_ERASE, ACTIONS } action_kind;
static const char *const action_names[ACTIONS] = {"save", "restore", "erase"};

typedef struct action {
    task task;
    served *model;
    action_kind kind;
    size_t slot, owner;
    char *path, name[N_NAME + 1]; // of the file
    tern_session *session;
    slots_state state;
    float lora_scales[TERN_LORAS_MAX]; // of what is restored
    size_t n_loras, n_tokens;
    uint64_t n_bytes;
    double seconds;
    tern_error err;
} action;

// ---- On the engine's thread --------------------------------------------------------------------

static void copy(void *user, slots *s) {
    action *a = user;
    a->state = slots_copy(s, a->slot, a->owner, &a->session, &a->err);
}

static void put(void *user, slots *s) {
    action *a = user;
    slots_put(s, a->slot, a->owner, a->session);
    a->session = NULL;
}

static void erase(void *user, slots *s) {
    action *a = user;
    a->n_tokens = slots_erase(s, a->slot, a->owner);
}

// ---- On the tasks' thread --------------------------------------------------------------------

static void save(action *a) {
    struct stat info;
    scheduler_visit(a->model->scheduler, copy, a);
    while (a->state == SLOTS_COMING && task_pause(&a->task)) { // from disk
        tern_sleep(0.01);
        scheduler_visit(a->model->scheduler, copy, a);
    }
    if (!a->session) return;
    a->n_tokens = tern_session_n_tokens(a->session);
    if (tern_session_save(a->session, a->path, &a->err) == TERN_OK && stat(a->path, &info) == 0)
        a->n_bytes = (uint64_t)info.st_size;
}

static void restore(action *a) {
    struct stat info;
    tern_session_desc desc = a->model->registry->desc->session;
    desc.lora_scales = a->lora_scales;
    desc.n_lora_scales = a->n_loras;
    if (tern_session_open(&a->session, a->model->model, &desc, &a->err) != TERN_OK ||
        tern_session_load(a->session, a->path, &a->err) != TERN_OK)
        return;
    a->n_tokens = tern_session_n_tokens(a->session);
    if (stat(a->path, &info) == 0) a->n_bytes = (uint64_t)info.st_size;
    scheduler_visit(a->model->scheduler, put, a);
}

static void run(task *e) {
    action *a = (action *)e;
    double began = tern_seconds();
    if (a->kind == ACTION_SAVE)
        save(a);
    else if (a->kind == ACTION_RESTORE)
        restore(a);
    else
        scheduler_visit(a->model->scheduler, erase, a);
    a->seconds = tern_seconds() - began;
}

// ---- The answer --------------------------------------------------------------------------------

static void reply_done(request *req, const action *a) {
    static const char *const counts[ACTIONS] = {"n_saved", "n_restored", "n_erased"};
    static const char *const bytes[ACTIONS] = {"n_written", "n_read"};
    static const char *const times[ACTIONS] = {"save_ms", "restore_ms"};
    tern_strbuf out = {0};
    tern_json_writer w = {.out = &out};
    tern_json_open(&w, NULL, '{');
    tern_json_put_int(&w, "id_slot", (int64_t)a->slot);
    if (a->kind != ACTION_ERASE) tern_json_put_text(&w, "filename", a->name);
    tern_json_put_int(&w, counts[a->kind], (int64_t)a->n_tokens);
    if (a->kind != ACTION_ERASE) {
        tern_json_put_int(&w, bytes[a->kind], (int64_t)a->n_bytes);
        tern_json_open(&w, "timings", '{');
        tern_json_put_float(&w, times[a->kind], (float)(a->seconds * 1e3));
        tern_json_close(&w, '}');
    }
    tern_json_close(&w, '}');
    reply_json(req, &out);
    tern_strbuf_free(&out);
}

static void reply_action(request *req, const action *a) {
    api_error e = {0};
    bool is_file = a->err.status == TERN_ERR_IO || a->err.status == TERN_ERR_FORMAT;
    if (is_file) // the path is not shown to clients
        api_fail(&e, 400, NULL, "filename", "the file '%s' cannot be %s", a->name,
                 a->kind == ACTION_SAVE ? "written"
                 : a->err.status == TERN_ERR_FORMAT
                     ? "used: it is damaged, or of another model or other adapters"
                     : "read");
    else if (a->err.status != TERN_OK)
        api_fail_status(&e, &a->err, NULL);
    else if (a->kind == ACTION_SAVE && a->state == SLOTS_BUSY)
        api_fail(&e, 503, NULL, NULL, "the slot is computing an answer");
    else if (a->kind == ACTION_SAVE && a->n_tokens == 0)
        api_fail(&e, 400, NULL, NULL, "there is nothing in the slot");
    if (e.status)
        reply_error(req, &e);
    else
        reply_done(req, a);
}

static void free_action(action *a) {
    tern_session_close(a->session);
    tern_free(a->path);
    tern_free(a);
}

static void done(task *e) {
    action *a = (action *)e;
    request *req = e->user;
    if (req) {
        req->task = NULL;
        reply_action(req, a);
    }
    served *model = a->model;
    free_action(a); // before the model may close
    registry_release(model);
}

// ---- The request -------------------------------------------------------------------------------

// A name that stays in its folder, on any system.
static bool is_file_name(tern_str name) {
    if (!name.ptr || name.len == 0 || name.len > N_NAME || name.ptr[0] == '.') return false;
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] < ' ' || strchr("/\\:*?\"<>|\x7f", name.ptr[i]))
            return false;
    return true;
}

static void read_action(action *a, request *req, api_error *e) {
    tern_strbuf room = {0};
    const char *text = tern_strbuf_text(&req->path) + strlen(req->route);
    char *end;
    a->slot = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || a->slot >= req->server->desc->n_parallel)
        api_fail(e, 400, NULL, "id_slot", "there is no slot '%.40s'", text);
    tern_str what = request_query(req, "action", &room);
    while (a->kind < ACTIONS && !tern_str_is(what, action_names[a->kind])) a->kind++;
    if (a->kind == ACTIONS)
        api_fail(e, 400, NULL, "action", "the action must be save, restore or erase");
    tern_strbuf_free(&room);
}

static void read_name(action *a, request *req, api_error *e) {
    const char *folder = req->server->desc->slot_folder;
    fields f = fields_of_body(req, e);
    tern_str name = field_text(&f, "filename");
    if (!is_file_name(name)) {
        api_fail(e, 400, NULL, "filename", "'filename' must be a name without a folder");
        return;
    }
    memcpy(a->name, name.ptr, name.len);
    a->path = tern_path_join(folder, a->name);
    if (!a->path) api_fail_memory(e);
    a->n_loras = generation_adapters(req, a->lora_scales);
    const tern_json *loras = field_any(&f, "lora");
    if (loras) generation_read_adapters(req, &f, loras, a->lora_scales);
}

void llama_slot_action(request *req) {
    api_error e = {0};
    action *a = tern_alloc(TERN_MEM_SESSION, sizeof *a);
    if (!a)
        api_fail_memory(&e);
    else if (!req->server->desc->slot_folder)
        api_fail(&e, 501, NULL, NULL,
                 "slots are neither saved nor restored without --slot-save-path");
    else if (!req->model->generates)
        api_fail(&e, 501, NULL, NULL, "this model generates no text");
    if (!e.status) read_action(a, req, &e);
    if (!e.status && a->kind != ACTION_ERASE) read_name(a, req, &e);
    if (!e.status) {
        a->model = req->model;
        a->owner = req->owner;
        a->task = (task){.run = run, .done = done};
        request_run(req, req->server->tasks, &a->task, a->model);
        return;
    }
    if (a) free_action(a);
    reply_error(req, &e);
}
