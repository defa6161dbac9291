// Which answers become records.
//
// An answer is judged alone (does it end, is it long enough, does it say what it must, does it
// repeat itself) and then against the records so far (is it new). One that passes gets a score, the
// mean of
//   variety     1 - the share of its runs of four tokens that occurred earlier in it,
//   novelty     1 - the similarity to the most similar record,
//   confidence  the geometric mean of its tokens' probabilities, where they were computed,
// each from 0 to 1, and the best of a prompt's candidates is kept.
#include <string.h>
#include "base/alloc.h"
#include "tasks/datagen/datagen.h"

// ---- Expressions -------------------------------------------------------------------------------

static void close_all(tern_automaton **list, size_t n) {
    for (size_t i = 0; list && i < n; i++) tern_automaton_close(list[i]);
    tern_free(list);
}

static tern_status compile(const char *const *patterns, size_t n, tern_automaton ***out,
                           tern_error *err) {
    *out = tern_alloc_array(TERN_MEM_MISC, n, sizeof **out);
    if (!*out) return tern_fail_memory(err, n * sizeof **out);
    for (size_t i = 0; i < n; i++) {
        const tern_grammar_source source = {.kind = TERN_GRAMMAR_REGEX,
                                            .text = {patterns[i], strlen(patterns[i])},
                                            .anywhere = true};
        tern_status status = tern_automaton_open(&(*out)[i], &source, NULL, err);
        if (status != TERN_OK) return tern_fail_prefix(err, status, patterns[i]);
    }
    return TERN_OK;
}

tern_status tern_datagen_rules_open(datagen_job *j, tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    TERN_TRY(compile(d->required, d->n_required, &j->required, err));
    return compile(d->forbidden, d->n_forbidden, &j->forbidden, err);
}

void tern_datagen_rules_close(datagen_job *j) {
    close_all(j->required, j->desc->n_required);
    close_all(j->forbidden, j->desc->n_forbidden);
}

static tern_status matches(tern_automaton *a, const tern_strbuf *text, bool *out, tern_error *err) {
    tern_gplace place = tern_automaton_start(a);
    TERN_TRY(tern_automaton_add(a, &place, tern_strbuf_text(text), text->len, err));
    *out = place != TERN_PLACE_NONE && tern_automaton_accepts(a, place);
    return TERN_OK;
}

static tern_status check_expressions(const datagen_job *j, datagen_candidate *c, tern_error *err) {
    bool is_there;
    for (size_t i = 0; i < j->desc->n_required; i++) {
        TERN_TRY(matches(j->required[i], &c->said, &is_there, err));
        if (!is_there) c->reason = TERN_DATAGEN_LACKING;
    }
    for (size_t i = 0; i < j->desc->n_forbidden; i++) {
        TERN_TRY(matches(j->forbidden[i], &c->said, &is_there, err));
        if (is_there) c->reason = TERN_DATAGEN_FORBIDDEN;
    }
    return TERN_OK;
}

// ---- Mentions ----------------------------------------------------------------------------------

// An empty mention (the seed has nothing to be mentioned) counts as present.
static tern_status mentions_all(const datagen_job *j, const datagen_candidate *c, bool *out,
                                tern_error *err) {
    const tern_str said = {tern_strbuf_text(&c->said), c->said.len};
    *out = true;
    for (size_t i = 0; i < j->desc->n_mentions && *out; i++) {
        const tern_strbuf *mention = &c->item->mentions[i];
        const tern_str wanted = {tern_strbuf_text(mention), mention->len};
        TERN_TRY(tern_text_mentions(said, wanted, out, err));
    }
    return TERN_OK;
}

// ---- One answer by itself ----------------------------------------------------------------------

tern_status tern_datagen_measure(datagen_job *j, datagen_candidate *c, tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    const tern_str said = {tern_strbuf_text(&c->said), c->said.len};
    bool mentioned = true;
    c->reason = TERN_DATAGEN_ACCEPTED;
    TERN_TRY(mentions_all(j, c, &mentioned, err));
    if (c->ended && tern_datagen_is_json(d))
        TERN_TRY(tern_json_parse(&c->object, said.ptr, said.len, err));
    TERN_TRY(tern_datagen_sketch(j, &c->object, said, &c->sketch, err));
    if (!c->ended && !d->keep_cut)
        c->reason = TERN_DATAGEN_CUT;
    else if (c->said.len == 0 || c->n_tokens < (size_t)d->min_tokens)
        c->reason = TERN_DATAGEN_SHORT;
    else if (!mentioned)
        c->reason = TERN_DATAGEN_LACKING;
    else if (d->max_repetition >= 0 && 1 - c->variety > (double)d->max_repetition)
        c->reason = TERN_DATAGEN_REPETITIVE;
    return c->reason == TERN_DATAGEN_ACCEPTED ? check_expressions(j, c, err) : TERN_OK;
}

// ---- An item -----------------------------------------------------------------------------------

static void compare(const datagen_job *j, datagen_candidate *c) {
    double most = 0;
    for (size_t i = 0; i < j->n_accepted; i++) {
        double s = tern_sketch_likeness(&c->sketch, &j->accepted[i]);
        if (s > most) most = s;
    }
    c->novelty = 1 - most;
    c->score = c->confidence >= 0 ? (c->variety + c->novelty + c->confidence) / 3
                                  : (c->variety + c->novelty) / 2;
    if (c->reason != TERN_DATAGEN_ACCEPTED) return;
    if (j->desc->max_similarity >= 0 && most > (double)j->desc->max_similarity)
        c->reason = TERN_DATAGEN_SIMILAR;
    else if (c->score < (double)j->desc->min_quality)
        c->reason = TERN_DATAGEN_LOW;
}

static datagen_candidate *choose(const datagen_job *j, datagen_item *item) {
    datagen_candidate *best = NULL;
    for (int32_t i = 0; i < j->desc->n_candidates; i++) {
        datagen_candidate *c = &item->candidates[i];
        compare(j, c);
        if (c->reason != TERN_DATAGEN_ACCEPTED) continue;
        if (best && c->score <= best->score) {
            c->reason = TERN_DATAGEN_OUTDONE;
            continue;
        }
        if (best) best->reason = TERN_DATAGEN_OUTDONE;
        best = c;
    }
    return best;
}

tern_status tern_datagen_keep(datagen_job *j, const tern_sketch *sketch, tern_error *err) {
    if (tern_array_reserve(TERN_MEM_MISC, &j->accepted, &j->accepted_capacity, j->n_accepted, 1))
        return tern_fail_memory(err, (j->n_accepted + 1) * sizeof *sketch);
    j->accepted[j->n_accepted++] = *sketch;
    return TERN_OK;
}

static tern_status give(datagen_job *j, const datagen_item *item, const datagen_candidate *c,
                        tern_error *err) {
    const tern_datagen_desc *d = j->desc;
    tern_strbuf line = {0};
    tern_status status = TERN_OK;
    j->stats->n_candidates[c->reason]++;
    tern_datagen_write(j, item, c, &line);
    if (line.failed)
        status = tern_fail_memory(err, line.len);
    else if (c->reason == TERN_DATAGEN_ACCEPTED)
        status = tern_datagen_file_add(j, &line, err);
    const tern_datagen_record record = {tern_strbuf_text(&line), line.len, c->reason};
    if (status == TERN_OK && d->on_record && !d->on_record(d->user, &record))
        status = tern_fail(err, TERN_ERR_CANCELLED, "cancelled");
    tern_strbuf_free(&line);
    return status;
}

tern_status tern_datagen_judge(datagen_job *j, datagen_item *item, tern_error *err) {
    if (item->no_room) {
        const datagen_candidate none = {.confidence = -1, .reason = TERN_DATAGEN_NO_ROOM};
        return give(j, item, &none, err);
    }
    const datagen_candidate *best = choose(j, item);
    for (int32_t i = 0; i < j->desc->n_candidates; i++)
        TERN_TRY(give(j, item, &item->candidates[i], err));
    return best ? tern_datagen_keep(j, &best->sketch, err) : TERN_OK;
}
