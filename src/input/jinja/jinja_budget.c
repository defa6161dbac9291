// What a run may take of steps, depth and text, counted where it is taken; and how a run fails.
#include "input/jinja/jinja.h"
#include "base/cancel.h"

#include <stdio.h>
#include <string.h>

const jlimits tern_jinja_limits = {
    .n_steps = 100000000, // one or two seconds
    .memory_bytes = 256 << 20,
    .text_bytes = 64 << 20,
    .depth = 250, // each level takes some 400 bytes of stack: a thread with 128 KB is enough
};

bool tern_jinja_fail_status(jrun *r, tern_status status, const char *format, ...) {
    char text[480];
    va_list args;
    if (r->status != TERN_OK) return false; // the first failure counts
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->status = tern_fail(r->err, status, "line %u: %s", r->line, text);
    return false;
}

bool tern_jinja_fail(jrun *r, const char *format, ...) {
    char text[480];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return tern_jinja_fail_status(r, TERN_ERR_FORMAT, "%s", text);
}

#define LOOK_EACH ((uint64_t)1 << 16) // steps between two checks for cancellation

bool tern_jinja_work(jrun *r, uint64_t n_bytes) {
    uint64_t n = n_bytes / 64 + 1;
    bool looks = r->steps_left / LOOK_EACH != (r->steps_left - n) / LOOK_EACH;
    if (n > r->steps_left)
        return tern_jinja_fail(r, "takes more than %llu steps",
                               (unsigned long long)r->limits->n_steps);
    r->steps_left -= n;
    if (looks && tern_is_cancelled())
        return tern_jinja_fail_status(r, TERN_ERR_CANCELLED, "was cancelled");
    return true;
}

bool tern_jinja_enter(jrun *r) {
    if (++r->depth > r->limits->depth)
        return tern_jinja_fail(r, "nested deeper than %u levels", r->limits->depth);
    return tern_jinja_work(r, 0);
}

bool tern_jinja_put(jrun *r, const char *text, size_t n) {
    if (n > r->limits->text_bytes || r->out->len - r->out_base > r->limits->text_bytes - n)
        return tern_jinja_fail(r, "makes more than %zu MiB of text", r->limits->text_bytes >> 20);
    if (!tern_jinja_work(r, n)) return false;
    tern_strbuf_append(r->out, text, n);
    if (r->out->failed) r->status = tern_fail_memory(r->err, r->out->len + n);
    return !r->out->failed;
}

bool tern_jinja_take(jrun *r, size_t mark, jvalue *out) {
    size_t n = r->out->len - mark;
    char *copy = tern_jinja_alloc(r, n, 1);
    if (!copy) return false;
    if (n) memcpy(copy, r->out->ptr + mark, n);
    r->out->len = mark;
    *out = J_STR_OF(copy, n);
    return true;
}
