// Records: a line of JSON each, with the text, its quality and what it was made from.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "base/alloc.h"
#include "base/hash.h"
#include "base/json/json_write.h"
#include "base/lines.h"
#include "base/os/os_file.h"
#include "tasks/datagen/datagen.h"

const char *tern_datagen_reason_name(tern_datagen_reason reason) {
    static const char *const names[TERN_DATAGEN_REASONS] = {
        [TERN_DATAGEN_ACCEPTED] = "accepted",
        [TERN_DATAGEN_OUTDONE] = "outdone",
        [TERN_DATAGEN_CUT] = "cut",
        [TERN_DATAGEN_SHORT] = "short",
        [TERN_DATAGEN_LACKING] = "lacking",
        [TERN_DATAGEN_FORBIDDEN] = "forbidden",
        [TERN_DATAGEN_REPETITIVE] = "repetitive",
        [TERN_DATAGEN_SIMILAR] = "similar",
        [TERN_DATAGEN_LOW] = "low",
        [TERN_DATAGEN_NO_ROOM] = "no room",
    };
    return (unsigned)reason < TERN_DATAGEN_REASONS ? names[reason] : NULL;
}

bool tern_datagen_is_json(const tern_datagen_desc *d) {
    return d->grammar &&
           (d->grammar->kind == TERN_GRAMMAR_JSON_SCHEMA || d->grammar->kind == TERN_GRAMMAR_JSON);
}

// ---- Writing -----------------------------------------------------------------------------------

static void put_message(tern_json_writer *w, const char *role, const tern_strbuf *content,
                        const tern_strbuf *reasoning) {
    tern_json_open(w, NULL, '{');
    tern_json_put_text(w, "role", role);
    if (reasoning && reasoning->len)
        tern_json_put_bytes(w, "reasoning_content", reasoning->ptr, reasoning->len);
    tern_json_put_bytes(w, "content", tern_strbuf_text(content), content->len);
    tern_json_close(w, '}');
}

// As `tern data build` reads them: a chat, or a text.
static void put_text(tern_json_writer *w, const datagen_job *j, const datagen_item *item,
                     const datagen_candidate *c) {
    if (j->desc->raw) {
        tern_strbuf whole = {0};
        tern_strbuf_append(&whole, item->prompt.ptr, item->prompt.len);
        tern_strbuf_append(&whole, c->said.ptr, c->said.len);
        tern_json_put_bytes(w, "prompt", tern_strbuf_text(&item->prompt), item->prompt.len);
        tern_json_put_bytes(w, "text", tern_strbuf_text(&whole), whole.len);
        w->out->failed = w->out->failed || whole.failed;
        tern_strbuf_free(&whole);
        return;
    }
    tern_json_open(w, "messages", '[');
    if (j->desc->system) put_message(w, "system", &item->system, NULL);
    put_message(w, "user", &item->prompt, NULL);
    put_message(w, "assistant", &c->said, &c->reasoning);
    tern_json_close(w, ']');
}

static double rounded(double x) { return (double)(int64_t)(x * 10000 + 0.5) / 10000; }

static void put_quality(tern_json_writer *w, const datagen_candidate *c) {
    tern_json_open(w, "quality", '{');
    tern_json_put_number(w, "score", rounded(c->score));
    tern_json_put_number(w, "variety", rounded(c->variety));
    tern_json_put_number(w, "novelty", rounded(c->novelty));
    if (c->confidence >= 0) tern_json_put_number(w, "confidence", rounded(c->confidence));
    tern_json_put_bool(w, "ended", c->ended);
    tern_json_close(w, '}');
}

static void put_hex(tern_json_writer *w, const char *key, uint64_t value) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)value);
    tern_json_put_text(w, key, text);
}

static const char *last_part(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void put_provenance(tern_json_writer *w, const datagen_job *j, const datagen_item *item,
                           const datagen_candidate *c) {
    const char *name = j->info.name && *j->info.name ? j->info.name : last_part(j->info.path);
    tern_json_open(w, "provenance", '{');
    tern_json_put_int(w, "item", item->number);
    if (c->item) tern_json_put_int(w, "candidate", c - item->candidates);
    if (j->desc->seeds) tern_json_put_int(w, "seed_line", (int64_t)j->seeds[item->seed].number);
    tern_json_put_int(w, "random_seed", (int64_t)c->random_seed);
    tern_json_put_text(w, "model", name);
    put_hex(w, "model_digest", j->model_digest);
    put_hex(w, "settings", j->settings);
    tern_json_put_int(w, "prompt_tokens", (int64_t)item->n_ids);
    tern_json_put_int(w, "tokens", (int64_t)c->n_tokens);
    tern_json_put_text(w, "tern", tern_version());
    tern_json_close(w, '}');
}

void tern_datagen_write(const datagen_job *j, const datagen_item *item, const datagen_candidate *c,
                        tern_strbuf *out) {
    tern_json_writer w = {.out = out};
    tern_strbuf seed = {0};
    tern_json_open(&w, NULL, '{');
    if (c->reason != TERN_DATAGEN_ACCEPTED)
        tern_json_put_text(&w, "rejected", tern_datagen_reason_name(c->reason));
    put_text(&w, j, item, c);
    if (c->object.n_nodes > 0)
        tern_json_put_value(&w, "object", &c->object, tern_json_root(&c->object));
    if (j->desc->seeds) {
        tern_datagen_put_seed(j, item->seed, &seed);
        tern_json_put_raw(&w, "seed", tern_strbuf_text(&seed));
        out->failed = out->failed || seed.failed;
    }
    put_quality(&w, c);
    put_provenance(&w, j, item, c);
    tern_json_close(&w, '}');
    tern_strbuf_free(&seed);
}

// ---- Settings ----------------------------------------------------------------------------------

static void put_grammar(tern_json_writer *w, const tern_grammar_desc *g) {
    tern_json_open(w, "grammar", '{');
    tern_json_put_int(w, "kind", g->kind);
    if (g->text) tern_json_put_bytes(w, "text", g->text, g->n_bytes ? g->n_bytes : strlen(g->text));
    tern_json_put_bool(w, "compact", g->compact);
    tern_json_open(w, "choices", '[');
    for (size_t i = 0; i < g->n_choices; i++) tern_json_put_text(w, NULL, g->choices[i]);
    tern_json_close(w, ']');
    tern_json_close(w, '}');
}

static void put_texts(tern_json_writer *w, const char *key, const char *const *texts, size_t n) {
    tern_json_open(w, key, '[');
    for (size_t i = 0; i < n; i++) tern_json_put_text(w, NULL, texts[i]);
    tern_json_close(w, ']');
}

// The rarely used samplers, only if used: records without them stay unchanged.
static void put_further(tern_json_writer *w, const tern_sampling *s) {
    tern_sampling usual = tern_sampling_default();
    const struct {
        const char *name;
        float is, was;
    } numbers[] = {
        {"top_n_sigma", s->top_n_sigma, usual.top_n_sigma},
        {"typical_p", s->typical_p, usual.typical_p},
        {"xtc_probability", s->xtc_probability, usual.xtc_probability},
        {"xtc_threshold", s->xtc_threshold, usual.xtc_threshold},
        {"dynatemp_range", s->dynatemp_range, usual.dynatemp_range},
        {"dynatemp_exponent", s->dynatemp_exponent, usual.dynatemp_exponent},
        {"dry_multiplier", s->dry_multiplier, usual.dry_multiplier},
        {"dry_base", s->dry_base, usual.dry_base},
        {"dry_allowed_length", (float)s->dry_allowed_length, (float)usual.dry_allowed_length},
        {"dry_penalty_last_n", (float)s->dry_penalty_last_n, (float)usual.dry_penalty_last_n},
        {"mirostat", (float)s->mirostat, (float)usual.mirostat},
        {"mirostat_tau", s->mirostat_tau, usual.mirostat_tau},
        {"mirostat_eta", s->mirostat_eta, usual.mirostat_eta},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].is != numbers[i].was) tern_json_put_float(w, numbers[i].name, numbers[i].is);
    if (s->samplers[0]) tern_json_put_text(w, "samplers", s->samplers);
}

static void put_sampling(tern_json_writer *w, const tern_sampling *s) {
    tern_json_open(w, "sampling", '{');
    tern_json_put_float(w, "temperature", s->temperature);
    tern_json_put_int(w, "top_k", s->top_k);
    tern_json_put_float(w, "top_p", s->top_p);
    tern_json_put_float(w, "min_p", s->min_p);
    tern_json_put_float(w, "repeat_penalty", s->repeat_penalty);
    tern_json_put_float(w, "frequency_penalty", s->frequency_penalty);
    tern_json_put_float(w, "presence_penalty", s->presence_penalty);
    tern_json_put_int(w, "penalty_window", s->penalty_window);
    put_hex(w, "seed", s->seed);
    put_further(w, s);
    tern_json_close(w, '}');
}

// A hash of everything that determines a record, besides its item's number. 0: out of memory.
uint64_t tern_datagen_settings(const datagen_job *j) {
    const tern_datagen_desc *d = j->desc;
    tern_strbuf text = {0};
    tern_json_writer w = {.out = &text};
    tern_json_open(&w, NULL, '{');
    put_hex(&w, "model", j->model_digest);
    tern_json_put_text(&w, "prompt", d->prompt);
    tern_json_put_text(&w, "system", d->system);
    if (d->seeds) put_hex(&w, "seeds", tern_hash64(0, d->seeds, d->n_seed_bytes));
    if (d->grammar) put_grammar(&w, d->grammar);
    put_sampling(&w, d->sampling);
    put_texts(&w, "stops", d->stops, d->n_stops);
    put_texts(&w, "mentions", d->mentions, d->n_mentions);
    put_texts(&w, "required", d->required, d->n_required);
    put_texts(&w, "forbidden", d->forbidden, d->n_forbidden);
    tern_json_put_int(&w, "candidates", d->n_candidates);
    tern_json_put_int(&w, "context", d->n_context);
    tern_json_put_int(&w, "min_tokens", d->min_tokens);
    tern_json_put_int(&w, "max_tokens", d->max_tokens);
    tern_json_put_float(&w, "min_quality", d->min_quality);
    tern_json_put_float(&w, "max_repetition", d->max_repetition);
    tern_json_put_float(&w, "max_similarity", d->max_similarity);
    tern_json_put_bool(&w, "keep_cut", d->keep_cut);
    tern_json_put_bool(&w, "raw", d->raw);
    tern_json_close(&w, '}');
    uint64_t hash = text.failed ? 0 : tern_hash64(1, text.ptr, text.len) | 1;
    tern_strbuf_free(&text);
    return hash;
}

// ---- Reading -----------------------------------------------------------------------------------

static bool has_settings(const datagen_job *j, const tern_json_doc *doc) {
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)j->settings);
    return tern_str_is(tern_json_str(tern_json_path(doc, "provenance.settings")), text);
}

// The answer's text: the last message, or what follows the prompt.
static tern_str answer_of(const tern_json_doc *doc) {
    const tern_json *messages = tern_json_path(doc, "messages"), *last = NULL;
    tern_str prompt = tern_json_str(tern_json_path(doc, "prompt"));
    tern_str text = tern_json_str(tern_json_path(doc, "text"));
    if (text.ptr && prompt.len <= text.len)
        return (tern_str){text.ptr + prompt.len, text.len - prompt.len};
    for (const tern_json *m = tern_json_first(doc, messages); m;
         m = tern_json_next(doc, messages, m))
        last = m;
    return tern_json_str(tern_json_get(doc, last, "content"));
}

tern_status tern_datagen_read_record(datagen_job *j, const char *line, size_t n, tern_error *err) {
    tern_json_doc doc = {0}, object = {0};
    tern_sketch sketch;
    TERN_TRY(tern_json_parse_part(&doc, line, n, err));
    int64_t item = tern_json_int(tern_json_path(&doc, "provenance.item"), -1);
    tern_str said = answer_of(&doc);
    tern_status status = TERN_OK;
    if (item < j->next_item || !said.ptr)
        status = tern_fail(err, TERN_ERR_FORMAT, "not a record that was written in turn");
    else if (!has_settings(j, &doc))
        status = tern_fail(err, TERN_ERR_ARGUMENT,
                           "made with other settings, seeds or another model; name another file");
    if (status == TERN_OK && tern_datagen_is_json(j->desc))
        status = tern_json_parse(&object, said.ptr, said.len, err);
    if (status == TERN_OK) status = tern_datagen_sketch(j, &object, said, &sketch, err);
    if (status == TERN_OK) status = tern_datagen_keep(j, &sketch, err);
    j->next_item = item + 1;
    tern_json_free(&object);
    tern_json_free(&doc);
    return status;
}

// ---- The file ----------------------------------------------------------------------------------

static tern_status cannot_write(const datagen_job *j, tern_error *err) {
    return tern_fail(err, TERN_ERR_IO, "%s: cannot be written: %s", j->desc->path, strerror(errno));
}

// Reads all whole lines; *end is where the last of them ends.
static tern_status read_all(datagen_job *j, tern_lines *l, uint64_t *end, tern_error *err) {
    bool more;
    for (*end = 0;; *end = l->end) {
        tern_error why = {0};
        TERN_TRY(tern_lines_next(l, &more, err));
        if (!more || !l->is_whole) return TERN_OK;
        tern_status status = tern_datagen_read_record(j, l->line.ptr, l->line.len, &why);
        if (status != TERN_OK) return tern_lines_fail(l, err, status, why.message);
    }
}

tern_status tern_datagen_file_open(datagen_job *j, tern_error *err) {
    tern_lines l = {0};
    uint64_t end = 0;
    if (!j->desc->path) return TERN_OK;
    TERN_TRY(tern_file_open_log(&j->fd, j->desc->path, UINT64_MAX, false, err)); // locks: then read
    tern_status status = tern_lines_open(&l, j->desc->path, err);
    if (status == TERN_OK) status = read_all(j, &l, &end, err);
    tern_lines_close(&l);
    if (status != TERN_OK) return status;
    return tern_fd_cut(j->fd, end) ? TERN_OK : cannot_write(j, err); // half a line left by a kill
}

tern_status tern_datagen_file_add(datagen_job *j, tern_strbuf *line, tern_error *err) {
    if (j->fd < 0) return TERN_OK;
    tern_strbuf_putc(line, '\n');
    if (line->failed) return tern_fail_memory(err, line->len);
    if (!tern_fd_write(j->fd, line->ptr, line->len)) return cannot_write(j, err);
    line->ptr[--line->len] = 0;
    return TERN_OK;
}

tern_status tern_datagen_file_close(datagen_job *j, tern_error *err) {
    int fd = j->fd;
    j->fd = -1;
    if (fd < 0) return TERN_OK;
    bool ok = tern_fd_sync(fd);
    return tern_fd_close(fd) && ok ? TERN_OK : cannot_write(j, err);
}
