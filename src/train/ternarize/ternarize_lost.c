// Where the ternary model lost what it lost. A mean hides it: a model that errs where the float
// model hardly knew either is as far away as one that forgot what it knew for certain.
#include <stdio.h>
#include <string.h>
#include "base/utf8.h"
#include "train/ternarize/ternarize.h"

enum { LEAST_TOKENS = 16, BEGINNING_TOKENS = 32, BEGINNING_BYTES = 72 };

static const float bounds[TERN_LOST_GROUPS] = {0.9f, 0.5f, 0.1f, 0};
static const char *const bound_names[TERN_LOST_GROUPS] = {"0.9 and more", "0.5 to 0.9",
                                                          "0.1 to 0.5", "below 0.1"};

// ---- Finding -----------------------------------------------------------------------------------

static void add(tern_lost_part *part, const tern_eval_token *t) {
    part->kl += (double)t->kl;
    part->n++;
    part->n_same += t->same_top;
}

static double mean(const tern_lost_part *p) { return p->n ? p->kl / (double)p->n : 0; }

// Into its place among the furthest, which falls.
static void keep(tern_lost *out, const tern_lost_part *document) {
    size_t at = out->n_documents;
    if (document->n < LEAST_TOKENS) return;
    while (at > 0 && mean(&out->documents[at - 1]) < mean(document)) at--;
    if (at == TERN_LOST_DOCUMENTS) return;
    if (out->n_documents < TERN_LOST_DOCUMENTS) out->n_documents++;
    memmove(&out->documents[at + 1], &out->documents[at],
            (out->n_documents - at - 1) * sizeof *document);
    out->documents[at] = *document;
}

void tern_lost_find(const tern_eval_documents *d, tern_lost *out) {
    *out = (tern_lost){0};
    for (size_t i = 0, at = 0; i < d->n; i++) {
        tern_lost_part document = {.first = at};
        for (; at < d->ends[i]; at++) {
            const tern_eval_token *t = &d->tokens[at];
            int group = 0;
            if (!t->is_scored) continue;
            while (group < TERN_LOST_GROUPS - 1 && t->certainty < bounds[group]) group++;
            add(&out->groups[group], t);
            add(&document, t);
            out->n_scored++;
        }
        keep(out, &document);
    }
}

// ---- Saying ------------------------------------------------------------------------------------

static bool take_text(void *user, const char *text, size_t n) {
    tern_strbuf_append(user, text, n);
    return true;
}

// One line of a table, cut between characters.
static void put_line(tern_strbuf *out, const tern_strbuf *text) {
    const char *s = tern_strbuf_text(text);
    size_t n = text->len < BEGINNING_BYTES ? text->len : BEGINNING_BYTES;
    n = tern_utf8_complete_prefix(s, n);
    for (size_t i = 0; i < n; i++) {
        const bool is_plain = (unsigned char)s[i] >= ' ' && s[i] != 127;
        if (s[i] == '|') tern_strbuf_puts(out, "\\");
        tern_strbuf_append(out, is_plain ? &s[i] : " ", 1);
    }
}

static tern_status put_document(const tern_lost_part *p, const tern_eval_documents *d,
                                const tern_model *model, tern_strbuf *both[2], tern_error *err) {
    tern_strbuf text = {0};
    size_t n = p->n + 1 < BEGINNING_TOKENS ? p->n + 1 : BEGINNING_TOKENS;
    const tern_ids ids = {.ids = (int32_t *)d->ids + p->first, .n = n};
    const tern_status status = tern_detokenize(model, &ids, false, take_text, &text, err);
    if (status == TERN_OK) {
        tern_strbuf_puts(both[0], "| ");
        put_line(both[0], &text);
        tern_strbuf_printf(both[0], " | %zu | %.4f | %.1f%% |\n", p->n, mean(p),
                           100 * (double)p->n_same / (double)p->n);
        tern_strbuf_puts(both[1], "{\"begin\":");
        tern_strbuf_json(both[1], tern_strbuf_text(&text), text.len);
        tern_strbuf_printf(both[1], ",\"tokens\":%zu,\"kl\":%.9g,\"top1_agreement\":%.9g}", p->n,
                           mean(p), (double)p->n_same / (double)p->n);
        both[0]->failed |= text.failed;
    }
    tern_strbuf_free(&text);
    return status;
}

static void put_group(const tern_lost *lost, int i, tern_strbuf *markdown, tern_strbuf *json) {
    const tern_lost_part *p = &lost->groups[i];
    double all = 0, n = p->n ? (double)p->n : 1;
    for (int g = 0; g < TERN_LOST_GROUPS; g++) all += lost->groups[g].kl;
    const double of_tokens = (double)p->n / (double)lost->n_scored,
                 of_kl = all > 0 ? p->kl / all : 0;
    tern_strbuf_printf(markdown, "| %s | %.1f%% | %.4f | %.1f%% | %.1f%% |\n", bound_names[i],
                       100 * of_tokens, mean(p), 100 * of_kl, 100 * (double)p->n_same / n);
    tern_strbuf_printf(json,
                       "%s{\"certainty\":%g,\"tokens\":%zu,\"kl\":%.9g,\"share_of_kl\":%.9g,"
                       "\"top1_agreement\":%.9g}",
                       i ? "," : "", (double)bounds[i], p->n, mean(p), of_kl,
                       (double)p->n_same / n);
}

tern_status tern_lost_put(const tern_lost *lost, const tern_eval_documents *d,
                          const tern_model *model, tern_strbuf *markdown, tern_strbuf *json,
                          tern_error *err) {
    tern_strbuf *both[2] = {markdown, json};
    tern_strbuf_puts(markdown,
                     "\n## Where it lost\n\n"
                     "| the float model's p of its likeliest token | tokens | KL | of all KL | "
                     "same likeliest token |\n|---|---:|---:|---:|---:|\n");
    tern_strbuf_puts(json, "{\"by_certainty\":[");
    for (int i = 0; i < TERN_LOST_GROUPS; i++) put_group(lost, i, markdown, json);
    tern_strbuf_puts(markdown, "\n| documents that are furthest begin with | tokens | KL | same "
                               "likeliest token |\n|---|---:|---:|---:|\n");
    tern_strbuf_puts(json, "],\"documents\":[");
    for (size_t i = 0; i < lost->n_documents; i++) {
        tern_strbuf_puts(json, i ? "," : "");
        TERN_TRY(put_document(&lost->documents[i], d, model, both, err));
    }
    tern_strbuf_puts(json, "]}");
    return TERN_OK;
}
