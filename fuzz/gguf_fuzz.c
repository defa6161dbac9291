// Fuzzing of the GGUF reader: whatever it accepts must lie inside the given bytes.
#include <stdlib.h>
#include "formats/file_private.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static void look_at_everything(const tern_file *f, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        const uint8_t *data = t->data;
        require(data >= bytes && t->bytes <= n - (size_t)(data - bytes) && t->bytes > 0);
        require(tern_file_tensor(f, t->name) == t);
    }
    for (size_t i = 0; i < f->n_metas; i++) {
        const tern_meta *m = &f->metas[i];
        double value;
        volatile char last = 0;
        for (uint64_t k = 0; m->strings && k < m->n; k++)
            if (m->strings[k].len) last = m->strings[k].ptr[m->strings[k].len - 1];
        (void)last;
        if (m->type == TERN_META_ARRAY && m->n) tern_meta_element(m, m->n - 1, &value);
        require(tern_file_meta(f, m->key) == m);
        tern_file_meta_float(f, m->key, &value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    tern_file *f;
    tern_gguf_split split;
    tern_error err;
    for (int shard = 0; shard < 2; shard++) { // metadata of later parts takes another path
        if (tern_file_new(&f, "fuzz", &err) != TERN_OK) return 0;
        if (tern_gguf_parse(f, shard, bytes, n, &split, &err) == TERN_OK &&
            tern_file_index_tensors(f, &err) == TERN_OK)
            look_at_everything(f, bytes, n);
        tern_file_close(f);
    }
    return 0;
}
