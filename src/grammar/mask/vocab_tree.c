// A vocabulary's bytes as trees.
#include "grammar/mask/vocab_tree.h"

#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "base/utf8.h"

// Sorting compares the first eight bytes as a number, and the rest only if these are equal.
typedef struct entry {
    uint64_t head;
    const char *bytes;
    uint32_t n, id;
} entry;

static int by_bytes(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n > 8 ? memcmp(x->bytes + 8, y->bytes + 8, n - 8) : 0;
    if (order) return order;
    if (x->n != y->n) return x->n < y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static uint64_t head_of(tern_str s) {
    uint64_t head = 0;
    for (size_t i = 0; i < 8; i++) head = head << 8 | (i < s.len ? (unsigned char)s.ptr[i] : 0);
    return head;
}

static void *take(tern_vocab_tree *v, size_t n, size_t size) {
    v->bytes += n * size;
    return tern_alloc_array(TERN_MEM_TOKENIZER, n, size);
}

static tern_status keep_bytes(tern_vocab_tree *v, const tern_str *bytes, tern_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < v->n_vocab; i++) n += bytes[i].len;
    if (n >= UINT32_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "a vocabulary of %zu bytes is too large", n);
    v->pool = take(v, n + 1, 1);
    v->text = take(v, v->n_vocab + 1, sizeof *v->text);
    if (!v->pool || !v->text) return tern_fail_memory(err, n);
    n = 0;
    for (size_t i = 0; i < v->n_vocab; i++) {
        v->text[i] = (uint32_t)n;
        if (bytes[i].len) memcpy(v->pool + n, bytes[i].ptr, bytes[i].len);
        n += bytes[i].len;
    }
    v->text[v->n_vocab] = (uint32_t)n;
    return TERN_OK;
}

// ---- Trees --------------------------------------------------------------------------------------

// How many nodes the tree of sorted entries has: one for each byte that an entry does not share
// with the entry before.
static size_t count_nodes(const entry *e, size_t n) {
    size_t n_nodes = 1;
    for (size_t i = 0; i < n; i++) {
        size_t shared = 0, most = i ? (e[i].n < e[i - 1].n ? e[i].n : e[i - 1].n) : 0;
        while (shared < most && e[i].bytes[shared] == e[i - 1].bytes[shared]) shared++;
        n_nodes += e[i].n - shared;
    }
    return n_nodes;
}

// Lays the nodes out level by level. ends[i]: where the entries below node i end.
static bool lay_nodes(tern_tree *t, const entry *e, uint32_t *ends) {
    size_t n = 1, level_end = 1, depth = 0;
    ends[0] = (uint32_t)t->n_ids;
    for (size_t i = 0; i < t->n_nodes; i++) {
        if (i == level_end) {
            level_end = n;
            depth++;
        }
        t->nodes[i].child = (uint32_t)n;
        size_t at = t->nodes[i].ids, end = ends[i], from = at;
        while (at < end && e[at].n == depth) at++;
        if (at - from > UINT16_MAX) return false;
        t->nodes[i].n_own = (uint16_t)(at - from);
        while (at < end) {
            unsigned char byte = (unsigned char)e[at].bytes[depth];
            t->nodes[n].byte = byte;
            t->nodes[n].depth = (uint8_t)(depth < 255 ? depth + 1 : 255);
            t->nodes[n].ids = (uint32_t)at;
            while (at < end && (unsigned char)e[at].bytes[depth] == byte) at++;
            ends[n++] = (uint32_t)at;
        }
    }
    t->nodes[t->n_nodes].child = (uint32_t)n;
    return true;
}

static tern_status build_tree(tern_vocab_tree *v, tern_tree *t, entry *e, size_t n,
                              tern_error *err) {
    if (n) qsort(e, n, sizeof *e, by_bytes);
    t->n_ids = n;
    t->n_nodes = count_nodes(e, n);
    t->nodes = take(v, t->n_nodes + 1, sizeof *t->nodes);
    t->ids = take(v, n, sizeof *t->ids);
    uint32_t *ends = tern_alloc_array(TERN_MEM_MISC, t->n_nodes, sizeof *ends);
    tern_status status = TERN_OK;
    if (!t->nodes || !t->ids || !ends)
        status = tern_fail_memory(err, t->n_nodes * sizeof *t->nodes);
    for (size_t i = 0; i < n && status == TERN_OK; i++) t->ids[i] = e[i].id;
    if (status == TERN_OK && !lay_nodes(t, e, ends))
        status = tern_fail(err, TERN_ERR_UNSUPPORTED, "more than %d tokens have the same text",
                           UINT16_MAX);
    tern_free(ends);
    return status;
}

// ---- Flat trees ---------------------------------------------------------------------------------

// Children come after their parent, so one pass from the end finds how many nodes lie below each,
// and one from the beginning finds the place of each.
static tern_status flatten(tern_vocab_tree *v, const tern_tree *t, tern_flat_tree *f,
                           tern_error *err) {
    const size_t n = t->n_nodes;
    if (v->depth_max > TERN_FLAT_DEPTH_MAX)
        return tern_fail(err, TERN_ERR_UNSUPPORTED, "a token of %zu bytes is too long",
                         v->depth_max);
    uint32_t *size = tern_alloc_array(TERN_MEM_MISC, 2 * n, sizeof *size), *place = size + n;
    f->nodes = take(v, n + 1, sizeof *f->nodes);
    f->bytes = take(v, n, 1);
    f->depths = take(v, n, sizeof *f->depths);
    f->node = take(v, n, sizeof *f->node);
    if (!size || !f->nodes || !f->bytes || !f->depths || !f->node) {
        tern_free(size);
        return tern_fail_memory(err, n * sizeof *f->nodes);
    }
    for (size_t i = n; i-- > 0;) {
        size[i] = 1;
        for (uint32_t c = t->nodes[i].child; c < t->nodes[i + 1].child; c++) size[i] += size[c];
    }
    place[0] = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = place[i] + 1;
        for (uint32_t c = t->nodes[i].child; c < t->nodes[i + 1].child; c++) {
            place[c] = at;
            f->depths[at] = (uint16_t)(2 * (f->depths[place[i]] / 2 + 1));
            at += size[c];
        }
        f->nodes[place[i]] = (tern_flat_node){at, t->nodes[i].ids};
        f->bytes[place[i]] = t->nodes[i].byte;
        f->n_of[t->nodes[i].byte]++;
        f->depths[place[i]] |= size[i] > TERN_FLAT_LARGE;
        f->node[place[i]] = i;
    }
    f->nodes[n] = (tern_flat_node){(uint32_t)n, (uint32_t)t->n_ids};
    f->n = n;
    tern_free(size);
    return TERN_OK;
}

// ---- Plain tokens -------------------------------------------------------------------------------

// The number of characters of a plain token, including a cut one; 0: it is special.
static size_t plain_chars(tern_str s) {
    size_t n_chars = 0;
    for (size_t i = 0; i < s.len; n_chars++) {
        uint32_t code = ' ';
        int length = tern_utf8_decode(s.ptr + i, s.len - i, &code);
        if (length == 0) return 0;
        if (length > 0 && (code < 0x20 || code == '"' || code == '\\')) return 0;
        i += length > 0 ? (size_t)length : s.len;
    }
    return n_chars;
}

// Sorts plain tokens by their characters, the longest first, by counting.
static tern_status sort_by_chars(tern_vocab_tree *v, const uint32_t *chars, size_t n_plain,
                                 tern_error *err) {
    v->plain = take(v, v->n_words, sizeof *v->plain);
    v->by_chars = take(v, n_plain, sizeof *v->by_chars);
    v->n_over = take(v, v->depth_max + 2, sizeof *v->n_over);
    uint32_t *next = tern_alloc_array(TERN_MEM_MISC, v->depth_max + 2, sizeof *next);
    if (!v->plain || !v->by_chars || !v->n_over || !next) {
        tern_free(next);
        return tern_fail_memory(err, n_plain * sizeof *v->by_chars);
    }
    for (size_t i = 0; i < v->n_vocab; i++)
        if (chars[i]) v->n_over[chars[i] - 1]++;
    for (size_t k = v->depth_max; k-- > 0;) v->n_over[k] += v->n_over[k + 1];
    for (size_t k = 0; k <= v->depth_max; k++) next[k] = v->n_over[k];
    for (uint32_t i = 0; i < v->n_vocab; i++) {
        if (!chars[i]) continue;
        v->by_chars[next[chars[i]]++] = i;
        v->plain[i >> 6] |= (uint64_t)1 << (i & 63);
    }
    tern_free(next);
    return TERN_OK;
}

static int by_length(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static tern_status find_long(tern_vocab_tree *v, tern_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < v->n_vocab; i++) n += v->text[i + 1] - v->text[i] > TERN_LONG;
    entry *e = tern_alloc_array(TERN_MEM_MISC, n + 1, sizeof *e);
    v->by_bytes = take(v, n + 1, sizeof *v->by_bytes);
    if (!e || !v->by_bytes) {
        tern_free(e);
        return tern_fail_memory(err, n * sizeof *e);
    }
    for (uint32_t i = 0; i < v->n_vocab; i++) {
        const uint32_t length = v->text[i + 1] - v->text[i];
        if (length > TERN_LONG) e[v->n_long++] = (entry){.n = length, .id = i};
    }
    qsort(e, n, sizeof *e, by_length);
    for (size_t i = 0; i < n; i++) v->by_bytes[i] = e[i].id;
    tern_free(e);
    return TERN_OK;
}

static tern_status build(tern_vocab_tree *v, tern_error *err) {
    entry *e = tern_alloc_array(TERN_MEM_MISC, v->n_vocab + 1, sizeof *e);
    uint32_t *chars = tern_alloc_array(TERN_MEM_MISC, v->n_vocab + 1, sizeof *chars);
    size_t n_plain = 0, n_special = 0;
    tern_status status = TERN_OK;
    if (!e || !chars) status = tern_fail_memory(err, v->n_vocab * sizeof *e);
    // Plain ones from the front, special ones from the back.
    for (size_t i = 0; i < v->n_vocab && status == TERN_OK; i++) {
        const tern_str s = {v->pool + v->text[i], v->text[i + 1] - v->text[i]};
        if (!s.len) continue;
        if (s.len > v->depth_max) v->depth_max = s.len;
        chars[i] = (uint32_t)plain_chars(s);
        size_t at = chars[i] ? n_plain++ : v->n_vocab - ++n_special;
        e[at] = (entry){head_of(s), s.ptr, (uint32_t)s.len, (uint32_t)i};
    }
    if (status == TERN_OK) status = sort_by_chars(v, chars, n_plain, err);
    if (status == TERN_OK) status = find_long(v, err);
    if (status == TERN_OK) status = build_tree(v, &v->trees[TERN_TREE_PLAIN], e, n_plain, err);
    if (status == TERN_OK) status = flatten(v, &v->trees[TERN_TREE_PLAIN], &v->flat, err);
    if (status == TERN_OK)
        status =
            build_tree(v, &v->trees[TERN_TREE_SPECIAL], e + v->n_vocab - n_special, n_special, err);
    tern_free(chars);
    tern_free(e);
    return status;
}

tern_status tern_vocab_tree_open(tern_vocab_tree **out, const tern_str *bytes, size_t n_vocab,
                                 const int32_t *ends, size_t n_ends, tern_error *err) {
    *out = NULL;
    tern_vocab_tree *v = tern_alloc(TERN_MEM_TOKENIZER, sizeof *v);
    if (!v) return tern_fail_memory(err, sizeof *v);
    v->n_vocab = n_vocab;
    v->n_words = (n_vocab + 63) / 64;
    v->ends = take(v, n_ends, sizeof *v->ends);
    tern_status status = v->ends ? keep_bytes(v, bytes, err) : tern_fail_memory(err, n_ends * 4);
    for (size_t i = 0; i < n_ends && status == TERN_OK; i++) {
        if (ends[i] < 0 || (size_t)ends[i] >= n_vocab)
            status = tern_fail(err, TERN_ERR_ARGUMENT, "the end %d is not a token", (int)ends[i]);
        else
            v->ends[v->n_ends++] = ends[i];
    }
    if (status == TERN_OK) status = build(v, err);
    if (status == TERN_OK) status = tern_vocab_tree_find_string(v, err);
    if (status == TERN_OK)
        *out = v;
    else
        tern_vocab_tree_close(v);
    return status;
}

void tern_vocab_tree_close(tern_vocab_tree *v) {
    if (!v) return;
    for (int i = 0; i < TERN_TREES; i++) {
        tern_free(v->trees[i].nodes);
        tern_free(v->trees[i].ids);
    }
    tern_free(v->flat.nodes);
    tern_free(v->flat.bytes);
    tern_free(v->flat.depths);
    tern_free(v->flat.node);
    tern_free(v->plain);
    tern_free(v->by_chars);
    tern_free(v->by_bytes);
    tern_free(v->n_over);
    tern_string_tokens_free(&v->string);
    tern_free(v->ends);
    tern_free(v->pool);
    tern_free(v->text);
    tern_free(v);
}

tern_str tern_vocab_tree_token(const tern_vocab_tree *v, int32_t id) {
    if (id < 0 || (size_t)id >= v->n_vocab) return (tern_str){0};
    return (tern_str){v->pool + v->text[id], v->text[id + 1] - v->text[id]};
}

size_t tern_vocab_tree_bytes(const tern_vocab_tree *v) { return v->bytes; }
