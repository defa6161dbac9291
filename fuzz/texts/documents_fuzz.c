// Fuzzing of the input of `tern data`: text and JSON lines, plain, as gzip that may be damaged, and
// packed here, so that mutations reach the inside. The first byte says which.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "fuzz/support.h"
#include "train/data/data.h"
#ifdef TERN_ZLIB
#include <zlib.h>
#endif

enum { JSON = 1, GZIP = 2, PACK = 4, ONE_DOCUMENT = 8 };

static const char *write_packed(const char *name, const uint8_t *bytes, size_t n) {
#ifdef TERN_ZLIB
    z_stream z = {0};
    fuzz_require(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t room = deflateBound(&z, (uLong)n) + 64;
    uint8_t *packed = malloc(room);
    fuzz_require(packed != NULL);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = packed;
    z.avail_out = (uInt)room;
    fuzz_require(deflate(&z, Z_FINISH) == Z_STREAM_END);
    const char *path = fuzz_write(name, packed, room - z.avail_out);
    deflateEnd(&z);
    free(packed);
    return path;
#else
    return fuzz_write(name, bytes, n);
#endif
}

static void read_documents(const char *path, const char *separator) {
    const tern_data_source source = {.paths = &path, .n_paths = 1, .separator = separator};
    tern_documents *d;
    tern_document document;
    tern_sketcher sketcher = {0};
    tern_sketch sketch;
    tern_dedup *dedup = NULL;
    tern_verdict verdict;
    tern_error err = {0};
    bool more;
    if (tern_documents_open(&d, &source, &err) != TERN_OK) return;
    tern_dedup_desc desc = {true, true, 0.8, 1 << 16};
    tern_status status = tern_dedup_open(&dedup, &desc, &err);
    while (status == TERN_OK) {
        status = tern_documents_next(d, &document, &more, &err);
        fuzz_require(status == TERN_OK || err.message[0]);
        if (status != TERN_OK || !more) break;
        fuzz_require(document.text.len > 0 && document.text.len <= TERN_DATA_VALUE_MAX);
        volatile char last = document.text.ptr[document.text.len - 1];
        if (document.chat) {
            tern_json_doc request = {0};
            const tern_strbuf *json = &document.chat->request;
            tern_status parsed = tern_json_parse(&request, json->ptr, json->len, NULL);
            fuzz_require(parsed == TERN_OK || parsed == TERN_ERR_MEMORY);
            tern_json_free(&request);
        }
        (void)last;
        status = tern_sketch_text(&sketcher, document.text, true, &sketch, &err);
        if (status == TERN_OK) status = tern_dedup_check(dedup, &sketch, &verdict, &err);
    }
    double fraction = tern_documents_fraction(d);
    fuzz_require(fraction >= 0 && fraction <= 1);
    tern_dedup_close(dedup);
    tern_free(sketcher.words);
    tern_documents_close(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (n == 0) return 0;
    int flags = *bytes++;
    const char *name = flags & JSON   ? flags & GZIP ? "d.jsonl.gz" : "d.jsonl"
                       : flags & GZIP ? "d.txt.gz"
                                      : "d.txt";
    const char *path =
        flags & PACK ? write_packed(name, bytes, n - 1) : fuzz_write(name, bytes, n - 1);
    read_documents(path, flags & ONE_DOCUMENT ? "" : NULL);
    return 0;
}
