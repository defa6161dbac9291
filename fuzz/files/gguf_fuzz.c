// Fuzzing of the GGUF reader, and of that of whisper.cpp's files, which takes those with its magic:
// whatever it accepts must lie inside the given bytes, and it must find
// the same in a file that it reads as in one that lies in memory.
#include "base/hash.h"
#include "formats/file_private.h"
#include "fuzz/support.h"

static bool no_memory; // a run with failing allocations

static void look_at_tensors(const tern_file *f, size_t n, uint32_t *sum) {
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tern_tensor *t = &f->tensors[i];
        tern_hold h;
        fuzz_require(t->bytes > 0 && t->data.n == t->bytes && t->data.at <= n - t->bytes);
        fuzz_require(tern_file_tensor(f, t->name) == t);
        *sum = tern_crc32(*sum, &t->scale, sizeof t->scale);
        no_memory |= tern_blob_hold(&t->data, &h, NULL) != TERN_OK;
        if (no_memory) return;
        *sum = tern_crc32(*sum, h.data, (size_t)t->bytes);
        tern_blob_release(&h);
    }
}

static void look_at_metas(const tern_file *f, uint32_t *sum) {
    for (size_t i = 0; i < f->n_metas; i++) {
        const tern_meta *m = &f->metas[i];
        double value;
        for (uint64_t k = 0; m->strings && k < m->n; k++)
            *sum = tern_crc32(*sum, m->strings[k].ptr, m->strings[k].len);
        if (m->type == TERN_META_STRING)
            *sum = tern_crc32(*sum, m->data, (size_t)m->n);
        else if (!m->strings && m->n) {
            bool array = m->type == TERN_META_ARRAY;
            size_t each = tern_meta_type_bytes(array ? m->element_type : m->type);
            *sum = tern_crc32(*sum, m->data, (size_t)m->n * each);
        }
        if (m->type == TERN_META_ARRAY && m->n) tern_meta_element(m, m->n - 1, &value);
        fuzz_require(tern_file_meta(f, m->key) == m);
        tern_file_meta_float(f, m->key, &value);
    }
}

// What is in it as a sum; 0: refused.
static uint32_t parse(const tern_blob *all, int shard, tern_error *err) {
    tern_file *f;
    tern_gguf_split split;
    uint32_t sum = 0;
    if (tern_file_new(&f, "fuzz", err) != TERN_OK) return 0;
    if ((tern_whisper_bin_is(all) ? tern_whisper_bin_parse(f, all, err)
                                  : tern_gguf_parse(f, shard, all, &split, err)) == TERN_OK &&
        tern_file_index_tensors(f, err) == TERN_OK) {
        look_at_tensors(f, (size_t)all->n, &sum);
        look_at_metas(f, &sum);
        sum |= 1;
    }
    tern_file_close(f);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const tern_blob memory = tern_blob_of(bytes, n);
    tern_blob_file *file;
    tern_blob all;
    no_memory = false;
    tern_blob_map_never(true);
    if (tern_blob_open(&file, fuzz_write("file.gguf", bytes, n), false, &all, NULL) != TERN_OK)
        return 0;
    for (int shard = 0; shard < 2; shard++) { // metadata of later parts takes another path
        tern_error first = {0}, second = {0};
        uint32_t wanted = parse(&memory, shard, &first), found = parse(&all, shard, &second);
        no_memory |= first.status == TERN_ERR_MEMORY || second.status == TERN_ERR_MEMORY;
        fuzz_require(no_memory || wanted == found);
    }
    tern_blob_close(file);
    return 0;
}
