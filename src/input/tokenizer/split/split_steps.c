// Splitters: lists of steps over lists of pieces.
#include "input/tokenizer/split/split.h"

#include <string.h>
#include "base/alloc.h"

#define METASPACE "\xE2\x96\x81" // U+2581

tern_split_step *tern_splitter_add(tern_splitter *s) {
    if (s->n_steps == TERN_SPLIT_STEPS_MAX) return NULL;
    tern_split_step *step = &s->steps[s->n_steps++];
    *step = (tern_split_step){0};
    return step;
}

void tern_splitter_close(tern_splitter *s) {
    for (int i = 0; i < s->n_steps; i++) tern_pattern_close(&s->steps[i].pattern);
    s->n_steps = 0;
}

void tern_pieces_free(tern_pieces *p) {
    tern_free(p->list);
    tern_free(p->spare);
    tern_strbuf_free(&p->rewritten[0]);
    tern_strbuf_free(&p->rewritten[1]);
    tern_matcher_close(&p->matcher);
    *p = (tern_pieces){0};
}

static bool push(tern_pieces *p, size_t at, size_t n) {
    if (tern_array_reserve(TERN_MEM_MISC, &p->spare, &p->spare_capacity, p->spare_n, 1) != 0)
        return false;
    p->spare[p->spare_n++] = (tern_piece){(uint32_t)at, (uint32_t)n};
    return true;
}

// State of a split between two parts of a piece.
typedef struct split_state {
    size_t first;        // p->spare[first..] belong to this piece
    bool any, was_match; // there was a part before, and it was a match
} split_state;

// Adds the next part [at, at + n) of a piece: a match, or the text between two.
static bool take_part(tern_pieces *p, split_state *s, const tern_split_step *step, size_t at,
                      size_t n, bool is_match) {
    if (step->invert) is_match = !is_match;
    bool joins = false, kept = !(is_match && step->behavior == TERN_SPLIT_REMOVED);
    switch (step->behavior) {
    case TERN_SPLIT_MERGE_PREVIOUS: joins = is_match && !s->was_match; break;
    // Read from the end, a match joins the part after it unless that is a match. So here a part
    // that is not a match joins a match before it.
    case TERN_SPLIT_MERGE_NEXT: joins = !is_match && s->was_match; break;
    case TERN_SPLIT_CONTIGUOUS: joins = is_match == s->was_match; break;
    default: break;
    }
    joins = joins && s->any && p->spare_n > s->first;
    s->any = true;
    s->was_match = is_match;
    if (!kept || n == 0) return true;
    if (!joins) return push(p, at, n);
    p->spare[p->spare_n - 1].n += (uint32_t)n;
    return true;
}

static tern_status split_piece(const tern_split_step *step, tern_pieces *p, tern_piece piece,
                               tern_error *err) {
    const char *text = p->text + piece.at;
    split_state s = {.first = p->spare_n};
    size_t done = 0, from = 0;
    while (from < piece.n) {
        tern_match_span span;
        TERN_TRY(tern_pattern_find(&step->pattern, &p->matcher, (tern_str){text, piece.n}, from,
                                   &span, err));
        const size_t start = span.start, end = span.end;
        if (start >= piece.n) break;
        from = end;
        if (end == start) // an empty match: go on after the next character
            for (from++; from < piece.n && ((unsigned char)text[from] & 0xC0) == 0x80;) from++;
        bool ok = start == done || take_part(p, &s, step, piece.at + done, start - done, false);
        if (!ok || !take_part(p, &s, step, piece.at + start, end - start, true))
            return tern_fail_memory(err, p->spare_capacity * 2 * sizeof *p->spare);
        done = end;
    }
    if (done < piece.n && !take_part(p, &s, step, piece.at + done, piece.n - done, false))
        return tern_fail_memory(err, p->spare_capacity * 2 * sizeof *p->spare);
    return TERN_OK;
}

static void rewrite_piece(const tern_split_step *step, const char *text, tern_piece piece,
                          bool is_first, tern_strbuf *out) {
    const char *s = text + piece.at, *end = s + piece.n;
    if (step->kind == TERN_STEP_PREFIX_SPACE) {
        if (*s != ' ') tern_strbuf_putc(out, ' ');
        tern_strbuf_append(out, s, piece.n);
        return;
    }
    bool wanted =
        step->prepend == TERN_PREPEND_ALWAYS || (step->prepend == TERN_PREPEND_FIRST && is_first);
    bool has = *s == ' ' || (piece.n >= 3 && memcmp(s, METASPACE, 3) == 0);
    if (wanted && !has) tern_strbuf_append(out, METASPACE, 3);
    while (s < end) {
        const char *space = memchr(s, ' ', (size_t)(end - s));
        tern_strbuf_append(out, s, (size_t)((space ? space : end) - s));
        if (space) tern_strbuf_append(out, METASPACE, 3);
        s = space ? space + 1 : end;
    }
}

static tern_status rewrite(const tern_split_step *step, tern_pieces *p, bool is_first,
                           tern_error *err) {
    tern_strbuf *out = &p->rewritten[p->text == p->rewritten[0].ptr];
    tern_strbuf_clear(out);
    for (size_t i = 0; i < p->n; i++) {
        size_t at = out->len;
        rewrite_piece(step, p->text, p->list[i], is_first && p->list[i].at == 0, out);
        if (out->failed) return tern_fail_memory(err, out->len);
        if (out->len > INT32_MAX) return tern_fail(err, TERN_ERR_ARGUMENT, "the text is too long");
        p->list[i] = (tern_piece){(uint32_t)at, (uint32_t)(out->len - at)};
    }
    p->text = out->ptr;
    return TERN_OK;
}

tern_status tern_splitter_run(const tern_splitter *s, const char *text, size_t n, bool is_first,
                              tern_pieces *out, tern_error *err) {
    out->text = text;
    out->n = out->spare_n = 0;
    if (n == 0) return TERN_OK;
    if (!push(out, 0, n)) return tern_fail_memory(err, sizeof *out->spare);
    for (int i = 0;; i++) {
        // The output of the last step is the input of the next.
        tern_piece *list = out->list;
        size_t capacity = out->capacity;
        out->list = out->spare, out->n = out->spare_n, out->capacity = out->spare_capacity;
        out->spare = list, out->spare_n = 0, out->spare_capacity = capacity;
        while (i < s->n_steps && s->steps[i].kind != TERN_STEP_SPLIT)
            TERN_TRY(rewrite(&s->steps[i++], out, is_first, err));
        if (i == s->n_steps) return TERN_OK;
        tern_matcher_begin(&out->matcher, n);
        for (size_t k = 0; k < out->n; k++)
            TERN_TRY(split_piece(&s->steps[i], out, out->list[k], err));
    }
}
