#include "apps/serve/engine/blocks.h"

#include <stdint.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json.h"

// Nine letters and digits: the longest id that all templates accept (Mistral's requires exactly
// nine).
static void make_id(const blocks *b, char id[12]) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    const int numbers[2] = {b->index, b->n_calls};
    uint32_t low = tern_crc32(0, b->salt, strlen(b->salt));
    low = tern_crc32(low, numbers, sizeof numbers);
    uint64_t all = (uint64_t)tern_crc32(~low, b->salt, strlen(b->salt)) << 32 | low;
    for (int i = 0; i < 9; i++, all /= 36) id[i] = digits[all % 36];
    id[9] = 0;
}

static answer_block *add_block(blocks *b, block_kind kind) {
    if (tern_array_reserve(TERN_MEM_SESSION, &b->list, &b->capacity, b->n, 1) != 0) return NULL;
    b->list[b->n] = (answer_block){.kind = kind};
    return &b->list[b->n++];
}

static void add_part(blocks *b, bool begins, const char *text, size_t n) {
    if (tern_array_reserve(TERN_MEM_SESSION, &b->parts, &b->parts_capacity, b->n_parts, 1) != 0) {
        b->failed = true;
        return;
    }
    answer_block *last = &b->list[b->n - 1];
    b->parts[b->n_parts++] = (answer_part){b->n - 1, last->text.len, n, begins};
    tern_strbuf_append(&last->text, text, n);
    b->failed |= last->text.failed;
}

static void begin_call(blocks *b, const tern_part *p) {
    b->skips = b->one_call && b->n_calls > 0;
    if (b->skips) return;
    answer_block *call = add_block(b, BLOCK_CALL);
    if (!call) {
        b->failed = true;
        return;
    }
    make_id(b, call->id);
    call->call = b->n_calls++;
    tern_strbuf_append(&call->name, p->text, p->n_bytes);
    b->failed |= call->name.failed;
    add_part(b, true, "", 0);
}

static void on_part(void *user, const tern_part *p) {
    blocks *b = user;
    bool is_text = p->kind == TERN_PART_TEXT || p->kind == TERN_PART_REASONING;
    if (b->failed || (b->skips && !is_text)) return;
    if (p->kind == TERN_PART_CALL) {
        begin_call(b, p);
    } else if (p->kind == TERN_PART_ARGUMENTS) {
        add_part(b, false, p->text, p->n_bytes);
    } else if (p->kind == TERN_PART_CALL_END) {
        b->list[b->n - 1].is_whole = true;
    } else {
        block_kind kind = p->kind == TERN_PART_TEXT ? BLOCK_TEXT : BLOCK_REASONING;
        bool begins = b->n == 0 || b->list[b->n - 1].kind != kind;
        if (begins && !add_block(b, kind))
            b->failed = true;
        else
            add_part(b, begins, p->text, p->n_bytes);
    }
}

bool blocks_take(blocks *b, const char *text, size_t n, bool at_end) {
    b->n_parts = 0;
    if (!b->answer) {
        const tern_part all = {text, n, TERN_PART_TEXT, 0};
        if (n) on_part(b, &all);
        return !b->failed;
    }
    if (n && tern_answer_put(b->answer, text, n, on_part, b, NULL) != TERN_OK) b->failed = true;
    if (at_end && tern_answer_end(b->answer, on_part, b, NULL) != TERN_OK) b->failed = true;
    return !b->failed;
}

void blocks_free(blocks *b) {
    for (size_t i = 0; i < b->n; i++) {
        tern_strbuf_free(&b->list[i].text);
        tern_strbuf_free(&b->list[i].name);
    }
    tern_free(b->list);
    tern_free(b->parts);
    tern_answer_close(b->answer);
    *b = (blocks){0};
}

void blocks_text(const blocks *b, block_kind kind, tern_strbuf *out) {
    for (size_t i = 0; i < b->n; i++)
        if (b->list[i].kind == kind)
            tern_strbuf_append(out, tern_strbuf_text(&b->list[i].text), b->list[i].text.len);
}

bool blocks_end_in_calls(const blocks *b) {
    bool all = b->n_calls > 0;
    for (size_t i = 0; i < b->n; i++) all &= b->list[i].kind != BLOCK_CALL || b->list[i].is_whole;
    return all;
}

const char *block_arguments(const answer_block *b) { return b->text.len ? b->text.ptr : "{}"; }

bool block_has_object(const answer_block *b) {
    tern_json_doc doc = {0};
    const char *text = block_arguments(b);
    bool ok = tern_json_parse(&doc, text, strlen(text), NULL) == TERN_OK &&
              tern_json_is(tern_json_root(&doc), TERN_JSON_OBJECT);
    tern_json_free(&doc);
    return ok;
}
