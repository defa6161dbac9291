// The best texts by their words: bm25 over those with at least one of the query's words.
//
// Ranking takes two microseconds per text, so only a query's rarest words are taken, as many as
// match a few thousand texts: a word in half of the texts means almost nothing, and bm25 would give
// it no weight. If all words are common, vectors decide alone; if there are no vectors, either, all
// texts are ranked.
#include <stdlib.h>
#include <string.h>
#include "base/alloc.h"
#include "store/store_recall.h"

#define WORDS_MAX 64   // of a query
#define RANKED    2000 // texts, about

typedef struct word {
    const char *text;
    size_t n;
    int64_t n_texts; // texts with it, at most RANKED + 1
    bool is_prefix;  // stands for all words that begin with it
} word;

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (unsigned char)c >= 0x80;
}

static bool same(const word *a, const word *b) {
    return a->n == b->n && memcmp(a->text, b->text, a->n) == 0;
}

static size_t add_word(word *out, size_t n_words, word more) {
    size_t i = 0;
    if (n_words == WORDS_MAX) return n_words;
    out[n_words] = more;
    while (!same(&out[i], &out[n_words])) i++;
    return n_words + (i == n_words);
}

// Adds a word's entries in the index: pairs of characters of scripts without blanks, and the parts
// between them. A single such character is a prefix of pairs.
static size_t add_pairs(word *out, size_t n_words, const char *text, size_t n) {
    bool is_pair, follows, is_alone = true;
    for (size_t at = 0, end; at < n; at = end) {
        end = at + tern_pair_at(text + at, n - at, &is_pair);
        size_t next = end < n ? tern_pair_at(text + end, n - end, &follows) : 0;
        if (is_pair && next && follows)
            n_words = add_word(out, n_words, (word){text + at, end + next - at, 0, false});
        else if (is_pair && is_alone)
            n_words = add_word(out, n_words, (word){text + at, end - at, 0, true});
        is_alone = !is_pair;
        if (is_pair) continue;
        for (; end < n && (next = tern_pair_at(text + end, n - end, &follows), !follows);)
            end += next;
        n_words = add_word(out, n_words, (word){text + at, end - at, 0, false});
    }
    return n_words;
}

// The different words of a query; n: bytes.
static size_t find_words(word *out, const char *text, size_t n, bool has_pairs) {
    size_t n_words = 0;
    for (size_t at = 0, end; at < n && n_words < WORDS_MAX; at = end) {
        end = at + 1;
        if (!is_word(text[at])) continue;
        while (end < n && is_word(text[end])) end++;
        n_words = has_pairs ? add_pairs(out, n_words, text + at, end - at)
                            : add_word(out, n_words, (word){text + at, end - at, 0, false});
    }
    return n_words;
}

// In FTS5's syntax: "word" OR "word" ... Quoted, so that nothing in a query is an operator.
static tern_status bind_words(sqlite3_stmt *st, const word *words, size_t n, tern_error *err) {
    tern_strbuf text = {0};
    for (size_t i = 0; i < n; i++) {
        tern_strbuf_puts(&text, i ? " OR \"" : "\"");
        tern_strbuf_append(&text, words[i].text, words[i].n);
        tern_strbuf_puts(&text, words[i].is_prefix ? "\" *" : "\"");
    }
    int code = text.failed ? SQLITE_NOMEM
                           : sqlite3_bind_text64(st, 1, tern_strbuf_text(&text), text.len,
                                                 SQLITE_TRANSIENT, SQLITE_UTF8);
    tern_strbuf_free(&text);
    return code == SQLITE_OK ? TERN_OK : tern_fail_memory(err, 1);
}

static int rarest_first(const void *a, const void *b) {
    const word *x = a, *y = b;
    if (x->n_texts != y->n_texts) return x->n_texts < y->n_texts ? -1 : 1;
    return (x->text > y->text) - (x->text < y->text); // in the query's order
}

static tern_status count_texts(tern_recall *r, word *words, size_t n, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool has_row = true;
    TERN_TRY(tern_store_prepare(
        r->s, &st, "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)", err));
    tern_status status = TERN_OK;
    for (size_t i = 0; i < n && status == TERN_OK; i++) {
        status = bind_words(st, &words[i], 1, err);
        sqlite3_bind_int64(st, 2, RANKED + 1);
        if (status == TERN_OK) status = tern_store_step(r->s, st, &has_row, err);
        words[i].n_texts = sqlite3_column_int64(st, 0);
        sqlite3_reset(st);
    }
    sqlite3_finalize(st);
    if (n) qsort(words, n, sizeof *words, rarest_first);
    return status;
}

// How many of the rarest words to search for.
static size_t choose(const tern_recall *r, const word *words, size_t n) {
    int64_t sum = 0;
    size_t first = 0, chosen = 0;
    while (first < n && words[first].n_texts == 0) first++;
    if (first == n) return 0;
    if (words[first].n_texts > RANKED) return r->n_near ? 0 : n;
    for (chosen = first; chosen < n && sum + words[chosen].n_texts <= RANKED; chosen++)
        sum += words[chosen].n_texts;
    return chosen;
}

static tern_status rank(tern_recall *r, const word *words, size_t n, tern_error *err) {
    sqlite3_stmt *st = NULL;
    bool more = true;
    TERN_TRY(tern_store_prepare(
        r->s, &st, "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank, rowid", err));
    tern_status status = bind_words(st, words, n, err);
    while (status == TERN_OK && r->n_words < r->k &&
           (status = tern_store_step(r->s, st, &more, err)) == TERN_OK && more) {
        int64_t id = sqlite3_column_int64(st, 0);
        if (tern_recall_allows(r, id)) r->words[r->n_words++] = id;
    }
    sqlite3_finalize(st);
    return status;
}

tern_status tern_recall_words(tern_recall *r, tern_error *err) {
    word words[WORDS_MAX + 1];
    size_t n = find_words(words, r->query->text, r->query->n_bytes, r->s->has_pairs);
    TERN_TRY(count_texts(r, words, n, err));
    n = choose(r, words, n);
    return n ? rank(r, words, n, err) : TERN_OK;
}
