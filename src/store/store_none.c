// Replaces the functions of tern_memory.h if the library is built without SQLite, as for
// WebAssembly. Redaction, chunks, vectors and fusion (src/memory) do not need it.
#include "base/status.h"
#include "tern_memory.h"

static tern_status none(tern_error *err) {
    return tern_fail(err, TERN_ERR_UNSUPPORTED,
                     "this build has no memory: it was made without SQLite (libsqlite3-dev)");
}

tern_status tern_memory_open(tern_memory_store **out, const char *folder,
                             const tern_memory_desc *desc, tern_error *err) {
    tern_clear(err);
    (void)folder, (void)desc;
    if (out) *out = NULL;
    return none(err);
}

void tern_memory_close(tern_memory_store *store) { (void)store; }

tern_status tern_memory_get_info(tern_memory_store *store, tern_memory_info *info,
                                 tern_error *err) {
    tern_clear(err);
    (void)store;
    if (info) *info = (tern_memory_info){.model_name = "", .model_path = ""};
    return none(err);
}

tern_status tern_memory_add(tern_memory_store *store, const tern_memory_item *item,
                            const tern_memory_add_params *params, tern_memory_added *added,
                            tern_error *err) {
    tern_clear(err);
    (void)store, (void)item, (void)params;
    if (added) *added = (tern_memory_added){0};
    return none(err);
}

tern_status tern_memory_recall(tern_memory_store *store, const tern_memory_query *query,
                               tern_memory_hits **out, tern_error *err) {
    tern_clear(err);
    (void)store, (void)query;
    if (out) *out = NULL;
    return none(err);
}

void tern_memory_hits_free(tern_memory_hits *hits) { (void)hits; }

tern_status tern_memory_list(tern_memory_store *store, const tern_memory_filter *filters,
                             size_t n_filters, tern_memory_record_fn on_record, void *user,
                             tern_error *err) {
    tern_clear(err);
    (void)store, (void)filters, (void)n_filters, (void)on_record, (void)user;
    return none(err);
}

tern_status tern_memory_show(tern_memory_store *store, int64_t id, tern_memory_record_fn on_record,
                             void *user, tern_error *err) {
    tern_clear(err);
    (void)store, (void)id, (void)on_record, (void)user;
    return none(err);
}

tern_status tern_memory_forget(tern_memory_store *store, int64_t id, tern_error *err) {
    tern_clear(err);
    (void)store, (void)id;
    return none(err);
}

tern_status tern_memory_forget_where(tern_memory_store *store, const tern_memory_filter *filters,
                                     size_t n_filters, int64_t *n_records, tern_error *err) {
    tern_clear(err);
    (void)store, (void)filters, (void)n_filters;
    if (n_records) *n_records = 0;
    return none(err);
}

tern_status tern_memory_compact(tern_memory_store *store, tern_error *err) {
    tern_clear(err);
    (void)store;
    return none(err);
}

tern_status tern_memory_export(tern_memory_store *store, const tern_memory_filter *filters,
                               size_t n_filters, tern_text_fn on_text, void *user,
                               tern_error *err) {
    tern_clear(err);
    (void)store, (void)filters, (void)n_filters, (void)on_text, (void)user;
    return none(err);
}

tern_status tern_memory_import(tern_memory_store *store, const char *lines, size_t n_bytes,
                               const tern_memory_add_params *params, int64_t *n_records,
                               tern_error *err) {
    tern_clear(err);
    (void)store, (void)lines, (void)n_bytes, (void)params;
    if (n_records) *n_records = 0;
    return none(err);
}
