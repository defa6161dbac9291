// What a call leaves for the page: the last error message, and results in JSON.
#include "web.h"

#include "base/alloc.h"
#include "base/status.h"

static tern_error last;
static tern_strbuf result;

WEB_EXPORT(web_alloc) void *web_alloc(uint32_t n);
WEB_EXPORT(web_free) void web_free(void *block);
WEB_EXPORT(web_error) const char *web_error(void);
WEB_EXPORT(web_result) const char *web_result(void);
WEB_EXPORT(web_result_bytes) uint32_t web_result_bytes(void);

void *web_alloc(uint32_t n) { return tern_alloc(TERN_MEM_MISC, n); } // NULL: out of memory
void web_free(void *block) { tern_free(block); }
const char *web_error(void) { return last.message; }
const char *web_result(void) { return tern_strbuf_text(&result); }
uint32_t web_result_bytes(void) { return (uint32_t)result.len; }

int32_t web_fail(const tern_error *err) {
    last = *err;
    return -(int32_t)(err->status != TERN_OK ? err->status : TERN_ERR_ARGUMENT);
}

tern_strbuf *web_result_begin(void) {
    if (result.capacity > 1u << 20 || result.failed) tern_strbuf_free(&result);
    tern_strbuf_clear(&result);
    return &result;
}

int32_t web_result_end(void) {
    tern_error err = {0};
    if (!result.failed) return 0;
    tern_fail_memory(&err, result.len);
    return web_fail(&err);
}

bool web_append(void *buffer, const char *text, size_t n_bytes) {
    tern_strbuf *b = buffer;
    tern_strbuf_append(b, text, n_bytes);
    return !b->failed;
}
