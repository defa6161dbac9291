// Fuzzing of transcripts, as JSON and as Markdown: what is read can be written and read again, and
// is the same then, in JSON if it is UTF-8.
#include <string.h>
#include "fuzz/support.h"
#include "input/unicode.h"

static bool is_text(const char *s) { return tern_unicode_is_valid(s, strlen(s)); }

static void check_same(const tern_chat *a, const tern_chat *b, bool only_text) {
    size_t n, n_again;
    const tern_message *x = tern_chat_messages(a, &n), *y = tern_chat_messages(b, &n_again);
    fuzz_require(n == n_again);
    for (size_t i = 0; i < n; i++)
        fuzz_require((only_text && !(is_text(x[i].role) && is_text(x[i].content))) ||
                     (!strcmp(x[i].role, y[i].role) && !strcmp(x[i].content, y[i].content)));
}

static void read_one(const char *name, const char *copy, const uint8_t *bytes, size_t n) {
    tern_chat *chat = NULL, *again = NULL;
    tern_error err = {0};
    const char *path = fuzz_write(name, bytes, n);
    if (tern_chat_open(&chat, &err) == TERN_OK && tern_chat_open(&again, &err) == TERN_OK) {
        tern_status status = tern_chat_load(chat, path, &err);
        fuzz_require(status == TERN_OK || err.message[0]);
        path = fuzz_path(copy);
        if (status == TERN_OK && tern_chat_save(chat, path, &err) == TERN_OK) {
            status = tern_chat_load(again, path, &err);
            fuzz_require(status == TERN_OK || status == TERN_ERR_MEMORY);
            if (status == TERN_OK) check_same(chat, again, !strcmp(name, "talk.json"));
        }
    }
    tern_chat_close(chat);
    tern_chat_close(again);
}

// Seen to find: roles and texts that a zero byte cut.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    read_one("talk.json", "copy.json", bytes, n);
    read_one("talk.md", "copy.md", bytes, n);
    return 0;
}
