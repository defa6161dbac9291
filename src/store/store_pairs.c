// Words in scripts without blanks: Chinese, Japanese, Korean, Thai and related ones. The index has
// pairs of characters in their place, and so has a query: "设备清单" is
// 设备 备清 清单, and 单, so that each character begins one.
#include "base/utf8.h"
#include "store/store.h"

static bool has_no_blanks(uint32_t c) {
    static const struct {
        uint32_t first, last;
    } scripts[] = {{0x0E01, 0x0EFF},  {0x1000, 0x109F}, {0x1780, 0x17FF}, {0x2E80, 0x2FDF},
                   {0x3005, 0x3007},  {0x3040, 0x30FF}, {0x31F0, 0x31FF}, {0x3400, 0x4DBF},
                   {0x4E00, 0x9FFF},  {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFF66, 0xFF9F},
                   {0x20000, 0x3FFFF}};
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts && c >= scripts[i].first; i++)
        if (c <= scripts[i].last) return true;
    return false;
}

size_t tern_pair_at(const char *text, size_t n, bool *is_pair) {
    uint32_t code;
    int length = tern_utf8_decode(text, n, &code);
    *is_pair = length > 0 && has_no_blanks(code);
    return length > 0 ? (size_t)length : 1;
}

void tern_pairs_put(tern_strbuf *out, const char *text, size_t n) {
    bool in_run = false, is_pair, follows;
    for (size_t at = 0; at < n;) {
        size_t first = tern_pair_at(text + at, n - at, &is_pair), second = 0;
        if (is_pair) {
            if (at + first < n) second = tern_pair_at(text + at + first, n - at - first, &follows);
            tern_strbuf_putc(out, ' ');
            tern_strbuf_append(out, text + at, first + (second && follows ? second : 0));
        } else {
            if (in_run) tern_strbuf_putc(out, ' ');
            tern_strbuf_append(out, text + at, first);
        }
        in_run = is_pair;
        at += first;
    }
}

tern_status tern_store_do_words(tern_memory_store *s, sqlite3_stmt *st, tern_str heading,
                                tern_str text, tern_error *err) {
    tern_str all[] = {heading, text};
    tern_strbuf pairs[2] = {{0}, {0}};
    tern_status status = TERN_OK;
    for (int i = 0; i < 2 && status == TERN_OK; i++) {
        if (s->has_pairs) {
            tern_pairs_put(&pairs[i], all[i].ptr, all[i].len);
            if (pairs[i].failed) status = tern_fail_memory(err, all[i].len);
            all[i] = (tern_str){tern_strbuf_text(&pairs[i]), pairs[i].len};
        }
        sqlite3_bind_text64(st, i + 2, all[i].ptr, all[i].len, SQLITE_STATIC, SQLITE_UTF8);
    }
    if (status == TERN_OK) status = tern_store_do(s, st, err);
    for (int i = 0; i < 2; i++) tern_strbuf_free(&pairs[i]);
    return status;
}
