#include "formats/file_private.h"

tern_status tern_mapping_open(tern_mapping *m, const char *path, bool missing_ok, tern_error *err) {
    tern_blob all;
    *m = (tern_mapping){0};
    TERN_TRY(tern_blob_open(&m->file, path, missing_ok, &all, err));
    if (!m->file) return TERN_OK;
    tern_status status = tern_blob_hold(&all, &m->hold, err);
    if (status != TERN_OK || m->hold.owned) { // bytes that were read need the file no longer
        tern_blob_close(m->file);
        m->file = NULL;
    }
    m->bytes = m->hold.data;
    m->n = status == TERN_OK ? all.n : 0;
    return status;
}

void tern_mapping_close(tern_mapping *m) {
    tern_blob_release(&m->hold);
    tern_blob_close(m->file);
    *m = (tern_mapping){0};
}
