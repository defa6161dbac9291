// Forms that clients send with files: what a field holds, whatever is wrong with the rest.
#include <string.h>
#include "apps/serve/api/interfaces.h"
#include "base/alloc.h"
#include "tests/support/harness.h"

static tern_str field(const char *type, const char *body, size_t n, const char *name) {
    const http_field given[] = {{TERN_STR("Content-Type"), {type, strlen(type)}}};
    const http_request r = {.fields = given, .n_fields = 1, .body = {body, n}};
    return form_field(&r, name);
}

#define TYPE "multipart/form-data; boundary=XyZ"
static const char form[] = "--XyZ\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm-1\r\n"
                           "--XyZ\r\nContent-Disposition: form-data; filename=\"name=q\"; "
                           "name=\"file\"\r\nContent-Type: audio/wav\r\n\r\na\0--Xy\r\nb\r\n"
                           "--XyZ\r\nContent-Disposition: form-data; name=empty\r\n\r\n\r\n"
                           "--XyZ--\r\n";

static bool is(tern_str s, const char *text, size_t n) {
    return s.ptr && s.len == n && memcmp(s.ptr, text, n) == 0;
}

// Seen to fail with "filename" taken for a name.
TEST(serve_form_fields_hold_what_was_sent) {
    size_t n = sizeof form - 1;
    CHECK(is(field(TYPE, form, n, "model"), "m-1", 3));
    CHECK(is(field("multipart/form-data; boundary=\"XyZ\"", form, n, "model"), "m-1", 3));
    CHECK(is(field(TYPE, form, n, "file"), "a\0--Xy\r\nb", 9));
    CHECK(is(field(TYPE, form, n, "empty"), "", 0));
    CHECK(!field(TYPE, form, n, "q").ptr && !field(TYPE, form, n, "mode").ptr);
    CHECK(!field("application/json", form, n, "model").ptr);
    CHECK(!field("multipart/form-data", form, n, "model").ptr);
    CHECK(!field("multipart/form-data; boundary=", form, n, "model").ptr);
    CHECK(!field("multipart/form-data; boundary=abc", form, n, "model").ptr);
}

// Cut anywhere, a body has no fields that it did not have.
TEST(serve_form_bodies_may_end_anywhere) {
    for (size_t n = 0; n < sizeof form; n++) {
        tern_str model = field(TYPE, form, n, "model"), file = field(TYPE, form, n, "file");
        CHECK(!model.ptr || is(model, "m-1", 3));
        CHECK(!file.ptr || is(file, "a\0--Xy\r\nb", 9));
        CHECK(!field(TYPE, form, n, "other").ptr);
    }
    tern_mem_fail_at(1);
    CHECK(!field(TYPE, form, sizeof form - 1, "model").ptr);
    tern_mem_fail_at(0);
}
