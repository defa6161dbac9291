// Shared by HTTP and pipes: models, threads for tasks, tools.
#include <string.h>
#include <time.h>
#include "apps/serve/request/generation_request.h"
#include "apps/serve/cache/item_store.h"
#include "apps/serve/api/mcp/mcp_server.h"
#include "base/os/os_file.h"
#include "base/os/os_thread.h"
#include "tern.h"

// It is small and stays open.
static tern_status open_codec(server *s, tern_error *err) {
    const tern_model_desc desc = {.n_threads = s->desc->opening.n_threads,
                                  .cpu_features = s->desc->opening.cpu_features};
    tern_media_info info;
    if (!s->desc->codec) return TERN_OK;
    TERN_TRY(tern_model_open(&s->codec, s->desc->codec, &desc, err));
    tern_model_get_media_info(s->codec, &info);
    if (info.is_codec) return TERN_OK;
    return tern_fail(err, TERN_ERR_UNSUPPORTED, "%s: not a codec, which makes sound of codes",
                     s->desc->codec);
}

// An empty key is most likely an unset variable: refused, so that the server is not open by
// mistake.
static tern_status check_keys(const serve_desc *d, tern_error *err) {
    for (size_t i = 0; i < d->keys.n; i++) {
        const char *key = d->keys.items[i];
        size_t n = strlen(key);
        if (n == 0 || strspn(key, " \t\r\n") == n)
            return tern_fail(err, TERN_ERR_ARGUMENT,
                             "--api-key: a key is empty: is a variable not set?");
        for (size_t k = 0; k < n; k++)
            if ((unsigned char)key[k] < ' ' || key[k] == 0x7f || strchr(" \t", key[k ? n - 1 : 0]))
                return tern_fail(err, TERN_ERR_ARGUMENT,
                                 "--api-key: a key begins or ends with a blank, or has a control "
                                 "character: no client could send it");
    }
    return TERN_OK;
}

// In a folder that others can write, they could replace clients' files.
static tern_status check_slot_folder(const serve_desc *d, tern_error *err) {
    if (!d->slot_folder) return TERN_OK;
    TERN_TRY(tern_folder_make_private(d->slot_folder, err));
    if (!tern_folder_is_others(d->slot_folder)) return TERN_OK;
    return tern_fail(err, TERN_ERR_ARGUMENT,
                     "%s: other users may write there: what is saved must be this user's alone "
                     "(chmod go-w)",
                     d->slot_folder);
}

tern_status server_open(server *s, const serve_desc *desc, void (*wake)(void *user), void *user,
                        tern_error *err) {
    *s = (server){.desc = desc, .born = (int64_t)time(NULL)};
    TERN_TRY(check_keys(desc, err));
    if (!(s->items = item_store_open())) return tern_fail_memory(err, 1);
    TERN_TRY(check_slot_folder(desc, err));
    int n = tern_n_processors();
    size_t n_readers = n < 2 ? 2 : n > 4 ? 4 : (size_t)n;
    TERN_TRY(tasks_open(&s->tasks, 2, desc->n_queue, wake, user, err));
    TERN_TRY(tasks_open(&s->readers, n_readers, desc->n_queue, wake, user, err));
    TERN_TRY(tasks_open(&s->managers, 2, 16, wake, user, err));
    TERN_TRY(open_codec(s, err));
    TERN_TRY(registry_list(&s->registry, desc, wake, user, err));
    return mcp_server_open(s, err);
}

tern_status server_load(server *s, tern_error *err) {
    return s->desc->n_models ? served_open_now(s->registry->list[0], err) : TERN_OK;
}

void server_close(server *s) {
    tasks_close(s->tasks);
    tasks_close(s->readers);
    tasks_close(s->managers);
    mcp_server_close(s); // before the registry, which closes its model
    registry_close(s->registry);
    tern_model_close(s->codec);
    share_free(&s->inflight);
    item_store_close(s->items);
}

void server_take_events(server *s) {
    tasks_take_done(s->tasks);
    tasks_take_done(s->readers);
    tasks_take_done(s->managers);
    if (s->mcp && s->mcp->memory) mcp_memory_take(s);
    registry_take(s->registry);
    for (size_t i = 0; i < s->registry->n; i++)
        if (s->registry->list[i]->state == SERVED_OPEN)
            generation_take_events(s, s->registry->list[i]);
}
