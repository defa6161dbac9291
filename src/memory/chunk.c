// Cuts a text into chunks, at the breaks of its structure.
//
// First the text becomes *atoms* (atoms.c): sentences of prose, lines of code. Each has the
// strength of the break before it: a heading, an empty line, a line, a sentence, a word. Then atoms
// are packed: as many as fit, but a chunk that is a quarter full ends before a heading, and a full
// one ends at the strongest break in its second half. The next chunk repeats the last atoms that
// fit the overlap, unless a heading is between them.
#include <string.h>
#include "base/alloc.h"
#include "memory/atoms.h"

typedef struct packer {
    const char *text;
    const tern_chunking *how;
    const tern_atom *atoms;
    size_t n;
    size_t trail[6], n_trail; // atoms of the headings above this place
    tern_text_chunks *out;
} packer;

// The end of the chunk that begins with atom `first`; the atoms before `own` are repeated.
static size_t find_end(const packer *p, size_t first, size_t own) {
    size_t most = p->how->max_tokens, sum = 0, end = first;
    while (end < p->n && (end <= own || sum + p->atoms[end].n_tokens <= most)) {
        if (end > own && p->atoms[end].strength == TERN_BREAK_HEADING && 4 * sum >= most)
            return end;
        sum += p->atoms[end++].n_tokens;
    }
    if (end == p->n) return end;
    size_t best = end, back = sum;
    for (size_t i = end; i > own && 2 * back >= most; i--) {
        if (p->atoms[i].strength > p->atoms[best].strength) best = i;
        back -= p->atoms[i - 1].n_tokens;
    }
    return best;
}

// Where the chunk after the break at `own` begins: with the atoms before it that fit the overlap.
static size_t find_overlap(const packer *p, size_t before, size_t own) {
    size_t first = own, sum = 0;
    if (own == p->n || p->atoms[own].strength == TERN_BREAK_HEADING) return own;
    while (first > before + 1 && p->atoms[first].strength != TERN_BREAK_HEADING &&
           sum + p->atoms[first - 1].n_tokens <= p->how->overlap_tokens)
        sum += p->atoms[--first].n_tokens;
    return first;
}

static bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

void tern_chunk_trim(const char *text, size_t *begin, size_t *end) {
    size_t line = *begin; // the first line keeps its indentation
    while (*begin < *end && is_white(text[*begin]))
        if (text[(*begin)++] == '\n') line = *begin;
    while (*end > *begin && is_white(text[*end - 1])) --*end;
    if (*begin < *end) *begin = line;
}

static tern_status measure(const packer *p, size_t first, size_t end, tern_text_chunk *c,
                           tern_error *err) {
    size_t from = c->begin = p->atoms[first].begin, to = c->end = p->atoms[end - 1].end;
    tern_chunk_trim(p->text, &from, &to);
    const tern_token_counter *counter = &p->how->counter;
    return counter->count(counter->user, p->text + from, to - from, &c->n_tokens, err);
}

// A heading's words, without its marks.
static void add_title(const packer *p, size_t atom) {
    size_t begin = p->atoms[atom].begin, end = p->atoms[atom].end;
    const char *feed = memchr(p->text + begin, '\n', end - begin);
    if (feed) end = (size_t)(feed - p->text);
    while (begin < end && (p->text[begin] == ' ' || p->text[begin] == '#')) begin++;
    while (end > begin && (is_white(p->text[end - 1]) || p->text[end - 1] == '#')) end--;
    tern_strbuf_append(&p->out->headings, p->text + begin, end - begin);
}

// Updates the trail by the headings from atom `seen` to atom i, inclusive.
static void follow_headings(packer *p, size_t seen, size_t i) {
    for (; seen <= i && seen < p->n; seen++) {
        if (!p->atoms[seen].level) continue;
        while (p->n_trail && p->atoms[p->trail[p->n_trail - 1]].level >= p->atoms[seen].level)
            p->n_trail--;
        p->trail[p->n_trail++] = seen;
    }
}

static tern_status emit(packer *p, const tern_text_chunk *c, size_t own, tern_error *err) {
    tern_text_chunks *out = p->out;
    if (tern_array_reserve(TERN_MEM_MISC, &out->list, &out->capacity, out->n, 1) != 0)
        return tern_fail_memory(err, sizeof *c);
    tern_text_chunk *to = &out->list[out->n++];
    *to = *c;
    to->line = p->atoms[own].line;
    to->heading = out->headings.len;
    for (size_t i = 0; i < p->n_trail; i++) {
        if (i) tern_strbuf_puts(&out->headings, " > ");
        add_title(p, p->trail[i]);
    }
    to->n_heading = out->headings.len - to->heading;
    return out->headings.failed ? tern_fail_memory(err, 1) : TERN_OK;
}

static tern_status pack(packer *p, tern_error *err) {
    size_t seen = 0;
    for (size_t own = 0, before = 0; own < p->n;) {
        size_t first = own ? find_overlap(p, before, own) : 0, end = find_end(p, first, own);
        tern_text_chunk c = {0};
        TERN_TRY(measure(p, first, end, &c, err));
        // The whole may have more tokens than its parts: repeat less, then take less.
        while (c.n_tokens > p->how->max_tokens && (first < own || end > own + 1)) {
            if (first < own)
                first++;
            else
                end--;
            TERN_TRY(measure(p, first, end, &c, err));
        }
        follow_headings(p, seen, first);
        TERN_TRY(emit(p, &c, first, err));
        seen = first + 1;
        before = first;
        own = end;
    }
    return TERN_OK;
}

tern_status tern_chunk_text(tern_text_chunks *out, const char *text, size_t n,
                            const tern_chunking *how, tern_error *err) {
    tern_atoms atoms = {0};
    tern_status status = tern_atoms_find(&atoms, text, n, how, err);
    packer p = {.text = text, .how = how, .atoms = atoms.list, .n = atoms.n, .out = out};
    if (status == TERN_OK) status = pack(&p, err);
    tern_free(atoms.list);
    return status;
}

void tern_text_chunks_free(tern_text_chunks *c) {
    tern_free(c->list);
    tern_strbuf_free(&c->headings);
    *c = (tern_text_chunks){0};
}
